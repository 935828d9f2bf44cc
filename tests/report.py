#!/usr/bin/env python3
"""What ctest wrote down of its runs: the seconds of each label, and which tests were
skipped, with the reason that each gave.

usage: report.py BUILD..    folders of builds, in which ctest left tests.xml
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

import draws


def reason(said):
    """Of GoogleTest's the line after `Skipped`, of others what follows `skipped:`."""
    found = re.search(r": Skipped\n(.+)|skipped: (.+)", said)
    return next(filter(None, found.groups())) if found else "it does not say why"


def main():
    seconds = collections.defaultdict(lambda: [0, 0.0])
    skipped = collections.defaultdict(list)
    for folder in sys.argv[1:]:
        build = pathlib.Path(folder).resolve().name
        labels = {test["name"]: test["label"] for test in draws.built(folder)}
        for case in xml.etree.ElementTree.parse(f"{folder}/tests.xml").getroot():
            of = seconds[build, labels[case.get("name")] or "other"]
            of[0] += 1
            of[1] += float(case.get("time"))
            if case.find("skipped") is not None:
                skipped[build, reason(case.findtext("system-out") or "")].append(case.get("name"))
    print("build  label      tests  seconds")
    for (build, label), (tests, spent) in sorted(seconds.items()):
        print(f"{build:6} {label:9} {tests:6} {spent:8.1f}")
    for (build, why), names in sorted(skipped.items()):
        print(f"skipped in {build}, {why}: {', '.join(sorted(names))}")


main()
