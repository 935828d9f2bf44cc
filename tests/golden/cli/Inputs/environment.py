"""Compares what `heddle env --json` says with the members that docs/cli.md lists.

usage: environment.py FILE DEVICES LINKS
"""
import json
import pathlib
import re
import sys

path, devices, links = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, encoding="utf-8") as file:
    said = json.load(file)

docs = pathlib.Path(__file__).resolve().parents[4] / "docs" / "cli.md"
section = docs.read_text(encoding="utf-8").split("## heddle env")[1].split("\n## ")[0]
rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M)
assert [name for name, _ in rows] == list(said), (rows, list(said))
for name, text in rows:
    keys = re.findall(r"`(\w+)`", text.split(":")[0]) if ":" in text else []
    things = said[name] if isinstance(said[name], list) else [said[name]]
    for thing in things:
        if isinstance(thing, dict):
            missing = [key for key in thing if f"`{key}`" not in text]
            assert not missing, f"{name}: {missing} are not in docs/cli.md"
            absent = [key for key in keys if key not in thing]
            assert not absent or (name == "launcher" and not thing["found"]), (name, absent)

assert len(said["devices"]) == devices, said["devices"]
assert len(said["links"]) == links, said["links"]
assert said["cuda"]["usable"] == (devices > 0), said["cuda"]
for link in said["links"]:
    assert link["access"] and link["verified"] and link["reason"] is None, link
