"""Every code of base/codes.def has its row in docs/diagnostics.md and a golden
test that shows it; neither names a code that does not exist.

usage: check.py ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
codes = set(re.findall(r"HD_CODE\((\d+)", (root / "base/codes.def").read_text()))
documented = re.findall(r"^\| HD(\d+) \|", (root / "docs/diagnostics.md").read_text(), re.M)
shown = set()
for want in (root / "tests/golden").rglob("*.want"):
    shown |= set(re.findall(r"\[HD(\d+)\]", want.read_text()))
wrong = []
for name, found in (("docs/diagnostics.md", set(documented)), ("tests/golden", shown)):
    wrong += [f"HD{code} is not in {name}" for code in sorted(codes - found)]
    wrong += [f"HD{code} of {name} does not exist" for code in sorted(found - codes)]
if documented != sorted(set(documented)):
    wrong.append("docs/diagnostics.md is not sorted, or names a code twice")
for line in wrong:
    print(line)
sys.exit(bool(wrong))
