"""Prints what `heddle check --json` found, a line a program and a finding."""
import json
import sys

for program in json.load(open(sys.argv[1])):
    ranks = f"{program['ranks']} ranks, " if "ranks" in program else ""
    print(program["file"], program["defines"], program["status"], end=" ")
    print(f"{ranks}{len(program['findings'])} findings")
    for f in program["findings"]:
        print(f["severity"], f["code"], f"{f['file']}:{f['line']}:{f['column']}", f["text"],
              f"{len(f['notes'])} notes")
