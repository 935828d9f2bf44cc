"""Makes the C of the extension `_heddle` from the public headers.

usage: generate.py HEADERS OUT

cffi wants declarations without comments, macros and bodies, so that is what
the headers are brought to here. The compiler reads the headers themselves, too,
and an extension whose structs differ from them does not load: nothing is said
twice that could come to differ unseen.
"""
import pathlib
import re
import sys

import cffi

# In an order in which each has what it needs.
FIRST = ["heddle.h", "launch.h", "simulate.h"]

BRIDGE = """
hd_status heddle_run(hd_session *session, size_t n, const uintptr_t *capsules,
                     void **addresses, int64_t *strides,
                     const int64_t **rows, const hd_run_options *options,
                     hd_diag *diag);
hd_status heddle_fits(const hd_session *session, size_t i, uintptr_t capsule, hd_diag *diag);
void *heddle_address(uintptr_t capsule);
void *heddle_export(const hd_call_view *view, int32_t device, int32_t ordinal, uintptr_t owner);
void heddle_free_capsule(void *capsule);
void heddle_die_with_parent(void);
extern "Python" hd_status heddle_call(void *context, const hd_call_site *site);
extern "Python" hd_status heddle_allgather(void *context, const void *mine,
                                           size_t bytes, void *all);
extern "Python" void heddle_notify(void *context, hd_status status);
"""


def without_directives(text):
    """The lines that a C compiler sees."""
    kept, cpp = [], False
    for line in text.splitlines():
        word = line.split()[0] if line.startswith("#") else None
        if word == "#ifdef":
            cpp = "__cplusplus" in line
        elif word in ("#else", "#endif"):
            cpp = False
        elif word is None and not cpp:
            kept.append(line)
    return "\n".join(kept)


def declarations(text):
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"\\\n", "", text)
    numbers = dict(re.findall(r"^#define (HD_\w+) (\d+)\s*$", text, re.M))
    text = without_directives(text)
    text = re.sub(r"\bHD_(API|MUST_USE|BEGIN_DECLS|END_DECLS)\b", "", text)
    text = re.sub(r"static inline ([^{;]*?)\s*\{.*?^\}", r"\1;", text, flags=re.M | re.S)
    return text, numbers


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    rest = sorted(header.name for header in folder.glob("*.h") if header.name not in FIRST)
    names = FIRST + rest
    read = [declarations((folder / name).read_text()) for name in names]
    text = "\n".join(part for part, _ in read)
    numbers = {name: value for _, part in read for name, value in part.items()}
    for name, value in numbers.items():
        text = re.sub(rf"\b{name}\b", value, text)
    ffi = cffi.FFI()
    ffi.cdef(text + "".join(f"\n#define {name} {value}" for name, value in numbers.items()))
    ffi.cdef(BRIDGE)
    includes = "".join(f"#include <heddle/{name}>\n" for name in names)
    ffi.set_source("heddle._heddle", includes + '#include "bridge.h"\n', py_limited_api=True)
    ffi.emit_c_code(str(out))


main()
