"""Each paragraph of code that a page shows stands in one of the sources, which
are compiled: indentation apart.

usage: page.py PAGE.md SOURCE...
"""
import pathlib
import re
import sys


def dense(text):
    return "\n".join(line.strip() for line in text.splitlines())


page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
sources = [dense(pathlib.Path(name).read_text(encoding="utf-8")) for name in sys.argv[2:]]
blocks = re.findall(r"^```(?:c|cpp)\n(.*?)^```$", page, re.M | re.S)
missing = [part for block in blocks for part in block.split("\n\n")
           if not any(dense(part).strip() in source for source in sources)]
for part in missing:
    print(f"{sys.argv[1]}: no source has\n{part}")
if not blocks:
    print(f"{sys.argv[1]} has no code")
sys.exit(bool(missing) or not blocks)
