"""scores.py JSON CSV: fails unless both say the same, and what they say fits
together. Prints the shapes with their candidates."""

import csv
import json
import sys

with open(sys.argv[1]) as file:
    board = json.load(file)
with open(sys.argv[2]) as file:
    rows = list(csv.DictReader(file))
assert board["link_rate"] > 0 and board["queue"] == 1
at = 0
for shape in board["shapes"]:
    by_name = {c["name"]: c for c in shape["candidates"]}
    link = shape["bytes_in"] / board["link_rate"]
    alone = "attention" if shape["kind"] in ("cp", "cz") else "matmul"
    floor = max(by_name[alone]["median"], link)
    assert abs(shape["floor"] - floor) < 1e-9 * floor, shape
    for name, c in by_name.items():
        row = rows[at]
        at += 1
        assert (row["shape"], row["candidate"]) == (shape["id"], name), row
        assert row["check"] == c["check"], row
        assert 0 < c["p5"] <= c["median"] <= c["p95"], c
        assert abs(float(row["median_ms"]) - c["median"] * 1e3) < 1e-6, row
        assert 0 < c["issue"] < c["p95"], c
        whole = name != alone and not name.startswith("link")
        assert ("floor_ratio" in c) == whole == bool(row["floor_ratio"]), row
        if whole:
            assert abs(c["floor_ratio"] * c["median"] - floor) < 1e-9 * floor
    print(shape["id"], shape["kind"], *by_name)
assert at == len(rows)
