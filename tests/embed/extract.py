"""Copies the one C block of a Markdown file to a file of its own.

usage: extract.py FILE.md OUT.c
"""
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
blocks = re.findall(r"^```c\n(.*?)^```$", text, re.M | re.S)
if len(blocks) != 1:
    sys.exit(f"{sys.argv[1]}: {len(blocks)} C blocks, and there should be one")
open(sys.argv[2], "w", encoding="utf-8").write(blocks[0])
