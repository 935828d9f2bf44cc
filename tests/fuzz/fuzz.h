// What the fuzz targets share. A target is one function,
// LLVMFuzzerTestOneInput, that takes any bytes and aborts where a property does
// not hold.
//
// Two kinds of input: text, which may end in a NUL and bytes for choices; and
// choices alone, from which a program is generated.
#ifndef HD_TESTS_FUZZ_H
#define HD_TESTS_FUZZ_H

#include "ir/module.h"
#include "tools/gen/generate.h"

HD_BEGIN_DECLS

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Aborts unless `holds`, with the property and what belongs to it on stderr.
void must(bool holds, const char *property, const char *detail);

// A call that fails says why.
void must_explain(hd_status status, hd_diag *diag, const char *call);

// The text up to a NUL. What is behind it, or else bytes made from the text,
// goes to `out` as choices; `room` holds the latter.
enum { CHOICES_ROOM = 64 };
size_t split_input(const uint8_t *data, size_t size, uint8_t room[CHOICES_ROOM],
                   choices *out);

// Prints; the caller frees it with hd_free.
char *print_module(const hd_module *module);
// With what is open declared as long as statements say.
char *print_whole(hd_module *module);

// What prints parses back to the same text.
void must_reparse(const hd_module *module);

// What the checker says of a program, which depends on that alone: the same
// once more.
hd_status must_check_alike(const hd_module *module,
                           const hd_check_options *options, hd_diag *said);

// Small enough that all of it may be walked, checked and executed within
// milliseconds.
bool is_small(const hd_module *module);

// Whether what a tensor program makes can be compared with another one in
// little time: counts have both evaluated some hundred times.
bool compares_soon(const hd_module *tensor);

// A program generated from the choices, parsed; it must parse.
hd_module *generate_module(choices *choices, bool integers, char **text);

// Lowers a copy of the program `text` with options drawn from the choices;
// NULL if it was refused, which must be with HD05xx.
hd_module *lower_text(const char *text, const hd_lower_options *options);

// The same of a program that makes what the program `does` does.
hd_module *lower_as(const char *text, const char *does,
                    const hd_lower_options *options);

// The same of a host program of moves generated from the choices, which makes
// what the tensor program beside it does; `tensor` is that, parsed.
hd_module *lower_moves(choices *choices, const hd_lower_options *options,
                       hd_module **tensor);

HD_END_DECLS

#endif
