"""Checks a trace and a picture of it.

usage: timeline.py TRACE SVG RANKS SENDS: every rank sends as often.
"""
import collections
import json
import sys
import xml.dom.minidom

trace, svg, ranks, sends = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
events = json.load(open(trace))["traceEvents"]
steps = [e for e in events if e["ph"] == "X"]
assert {e["pid"] for e in steps} == set(range(ranks))
assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in steps)
assert any(e["args"]["critical"] for e in steps)
assert sum(e["name"].startswith("send") for e in steps) == ranks * sends
lanes = collections.defaultdict(list)
for e in steps:
    start = round(e["ts"] * 1000)  # ns
    lanes[e["pid"], e["tid"]].append((start, start + round(e["dur"] * 1000)))
for lane in lanes.values():
    lane.sort()
    assert all(a[1] <= b[0] for a, b in zip(lane, lane[1:])), "slices of a thread lie over each other"
named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
assert lanes.keys() <= named
starts = {e["id"]: e for e in events if e["ph"] == "s"}
ends = {e["id"]: e for e in events if e["ph"] == "f"}
assert starts.keys() == ends.keys() and len(starts) == ranks * sends
assert all(starts[i]["pid"] != ends[i]["pid"] for i in starts)
for e in list(starts.values()) + list(ends.values()):  # a viewer binds it to what is there
    at = round(e["ts"] * 1000)
    assert any(a <= at < max(b, a + 1) for a, b in lanes[e["pid"], e["tid"]]), e
picture = xml.dom.minidom.parse(svg)
assert 0 < len(picture.getElementsByTagName("title")) <= len(steps)  # slivers may be left out
texts = {t.firstChild.data for t in picture.getElementsByTagName("text")}
bars = [(r, r.getElementsByTagName("title")) for r in picture.getElementsByTagName("rect")]
bars = [(float(r.getAttribute("width")), t[0].firstChild.data.rsplit(": ", 1)[0]) for r, t in bars if t]
assert {name for _, name in bars} <= {e["name"] for e in steps}
wide = {name for width, name in bars if width > 6 * (len(name) + 2)}  # a run may end long after its last step
assert wide <= texts, wide - texts
underlined = [r for r in picture.getElementsByTagName("rect") if r.getAttribute("fill") == "#c0143c"]
critical = [e for e in steps if e["args"]["critical"]]
assert 2 <= len(underlined) <= 1 + len(critical)  # and the legend
print("fine")
