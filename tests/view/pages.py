"""Pages of `heddle view` are whole, fetch nothing, and say what the other commands
say: the texts are the file and what `dump` prints, bars and steps are those of
`simulate --trace` of either text, findings those of `check`. Text from outside
is text. With HEDDLE_TEST_QUICK=1 a third of the examples, which HEDDLE_TEST_SEED draws.

usage: pages.py ROOT HEDDLE
"""
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from page import Page

root, heddle = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
folder = pathlib.Path(tempfile.mkdtemp())
frame = (root / "tools/view.html").read_text()
SHOWN = 8  # ranks


def run(*words, code=0, cwd=root):
    done = subprocess.run([heddle, *map(str, words)], capture_output=True, timeout=120, cwd=cwd)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stdout.decode(), done.stderr.decode(errors="replace")


def view(*words, code=0, cwd=root):
    text = run("view", *words, code=code, cwd=cwd)[0]
    page = Page(text)
    own = Page(frame)
    for tag in ("style", "script"):
        assert [e.text for e in page.root.find(tag)] == [e.text for e in own.root.find(tag)], tag
    for e in page.root.find("style"):
        assert not re.search(r"url\(|@import|https?:", e.text)
    for e in page.root.find("script"):
        assert not re.search(r"https?:|fetch|import|XMLHttp|innerHTML", e.text)
    policy = next(page.root.find("meta", **{"http-equiv": "Content-Security-Policy"}))
    assert policy["content"].startswith("default-src 'none';")
    for link in page.root.find("a"):
        assert link["href"][1:] in page.ids, link["href"]
    for e in page.root.find():
        assert e["data-own"] in ["", *e["data-k"].split()] or e.tag == "a", e.attributes
    return page


def text_of(page, key):
    lines = [e for i, e in page.lines.items() if i[0] == key]
    assert [e["id"] for e in lines] == [f"{key}{i + 1}" for i in range(len(lines))]
    return "".join(next(e.find("code")).text + "\n" for e in lines)


def simulate(*words):
    return run("simulate", *words)[0]


def trace_of(*words):
    simulate(*words, "--trace", folder / "trace.json")
    return [e for e in json.loads((folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]


def events_of(page, path, *words):
    """What either text's simulation says of each step: (rank, step) to an event
    with its line in both. Only `line` is of the host program's own trace."""
    (folder / "host.hd").write_text(run("dump", path, *words)[0])
    there = {(e["pid"], e["args"]["step"]): e for e in trace_of(folder / "host.hd")}
    events = {(e["pid"], e["args"]["step"]): e for e in trace_of(path, *words)}
    assert events.keys() == there.keys()
    for at, e in events.items():
        assert e["name"] == there[at]["name"]
        e["keys"] = f"s{e['args']['line']} h{there[at]['args']['line']}"
    return events


def check_bars(page, events):
    end = json.loads(simulate(*page.words, "--json"))["time"] * 1e6
    assert f"{end:.1f} us" in next(page.root.find("section", id="timeline")).text
    left = collections.Counter()
    for e in events.values():
        if e["pid"] < SHOWN:
            left[e["name"], e["keys"]] += 1
    times = collections.defaultdict(list)
    for e in events.values():
        times[e["name"], e["keys"]].append((e["ts"], e["dur"]))
    for bar in page.bars:
        title = next(bar.find("title")).text
        name, took, start, line = re.fullmatch(r"(.*): ([\d.]+) us from ([\d.]+), line (\d+)", title).groups()
        what = (name, bar["data-k"])
        left[what] -= 1
        assert left[what] >= 0, f"too many bars: {title}"
        assert f"s{line}" in bar["data-k"].split()
        x, width = float(bar["x"]), float(bar["width"])
        # Titles have two digits of a us, the trace three, pictures two of 1/880.
        assert any(abs(ts - float(start)) < .006 and abs(dur - float(took)) < .006
                   and abs(110 + 880 * ts / end - x) < .02 + .88 / end
                   and abs(max(.5, 880 * dur / end) - width) < .02 + .88 / end
                   for ts, dur in times[what]), title
    wide = sum(e["pid"] < SHOWN and 880 * e["dur"] / end > .51 for e in events.values())
    assert wide <= len(page.bars) <= sum(e["pid"] < SHOWN for e in events.values())


def check_steps(page, events):
    """Each rank's column, from top to bottom, is what it issues; of long loops, of
    which it says so, a part."""
    table = next(page.root.find("table"))
    cut = re.search(r"and \d+ more|and so on", table.text)
    columns = collections.defaultdict(list)
    for row in table.find("tr"):
        for rank, cell in enumerate(row.find("td")):
            columns[rank] += [(re.sub(r" (to|from) \d+$", "", s.text), s["data-k"]) for s in cell.find(cls="step")]
    for rank, steps in columns.items():
        mine = sorted((at, e) for at, e in events.items() if at[0] == rank)
        mine = [(e["name"], e["keys"]) for _, e in mine]
        rest = iter(mine)
        assert all(step in rest for step in steps) if cut else steps == mine, rank
    assert len(columns) == min(SHOWN, 1 + max(rank for rank, _ in events))


def check_links(page, events):
    """A line is linked with those that its steps, or its name, have."""
    linked = {(e["id"], k) for e in page.lines.values() for k in e["data-k"].split() if k != e["id"]}
    assert linked == {(b, a) for a, b in linked}
    for e in events.values():
        source, host = e["keys"].split()
        assert (source, host) in linked
    name = r"^\s*(?:in|out|inout|temp)\s+(%\w+)"
    for a, b in linked:
        names = [re.match(name, next(page.lines[i].find("code")).text) for i in (a, b)]
        assert not any(names) or names[0][1] == names[1][1]


def check_example(path, *words):
    page = view(path, *words)
    page.words = (path, *words)
    assert text_of(page, "s") == (root / path).read_text()
    events = events_of(page, path, *words)
    if re.search("^tensor|^host.* after ", (root / path).read_text(), re.M):
        assert text_of(page, "h") == run("dump", path, *words)[0]
        check_links(page, events)
    check_bars(page, events)
    check_steps(page, events)
    return page


def carets_of(said):
    """By line, which words carets are under, as `check` prints them."""
    found = collections.defaultdict(set)
    for line, text, carets in re.findall(r"^ *(\d+) \| (.*)\n +\| ( *\^~*)$", said, re.M):
        at = carets.index("^")
        found[int(line)].add(text[at:at + len(carets) - at])
    return found


def check_broken(path):
    said = json.loads(run("check", "--json", path, code=1)[0])[0]["findings"]
    said = [m for f in said for m in [f, *f["notes"]]]
    page = view(path, code=1)
    shown = list(next(page.root.find("section", id="findings")).find("p"))
    assert [p["class"] for p in shown] == [m["severity"] for m in said]
    for p, m in zip(shown, said):
        place = [f"line {m['line']}:{m['column']}"] if "line" in m else []
        code = [m["code"]] if "code" in m else []
        want = " ".join([*place, m["severity"], *code, m["text"]])
        assert p.text == want, (p.text, want)
    marked = {int(i[1:]): {m.text for m in e.find("mark")} for i, e in page.lines.items() if "found" in e.classes}
    assert marked == carets_of(run("check", path, code=1)[1])
    assert not page.bars


def check_trips():
    """In trip j of a ring rank r multiplies what is of rank r - j."""
    page = view("examples/ag_matmul.hd", "-D", "tp=3", "--transfer", "ring")
    rows = [list(row.find("td")) for row in page.root.find("tr") if next(row.find("td"), None)]
    assert len(rows) == 3
    for j, row in enumerate(rows):
        for rank, cell in enumerate(row):
            first = (rank - j) % 3 * 256
            assert f"matmul %c[{first}..{first + 256}]" in [s.text for s in cell.find(cls="step")]


def check_two_places():
    """Of a lowered program findings have their place in both texts."""
    page = view("tests/golden/view/ring.hd", "--transfer", "ring")
    for p in next(page.root.find("section", id="findings")).find("p"):
        source, host = p.find("a")
        for a in (source, host):
            assert any(p.text.endswith(m["title"]) for m in page.lines[a["href"][1:]].find("mark"))
        assert source["href"][1] == "s" and host["href"][1] == "h"


def check_hostile():
    """Names and texts that would be markup, were they not written as text."""
    name = "script><img src=x onerror=alert(1)>'\"&amp;.hd"
    text = ("heddle 2 // </script><script>alert(1)</script><!-- ' \" & </code>\n"
            "tensor program script mesh tp=2 in %a : f32[2@tp, 8] out %c : f32[2@tp, 8]\n"
            "{ %c = call \"</div><b>\" %a }\n//\t\u202e\x1b[31m \x00\n").encode() + b"// \xff\xfe\n"
    (folder / "<").mkdir()
    (folder / "<" / name).write_bytes(text)
    machine = json.loads((root / "examples/machines/h200x8.json").read_text())
    (folder / "m.json").write_text(json.dumps({**machine, "name": "</title></svg><script>alert(1)</script>"}))
    for program, code in ((text, 0), (text.replace(b"%a }", b"%b<i> }"), 1)):
        (folder / "<" / name).write_bytes(program)
        try:
            page = view(f"</{name}", "--machine", folder / "m.json", "--transfer", "ring", code=code, cwd=folder)
        except AssertionError as wrong:
            raise AssertionError(f"{code}: {wrong}") from wrong
        lines = text_of(page, "s").split("\n")
        assert lines[0] == text.decode(errors="replace").split("\n")[0]
        assert lines[3:5] == ["//\t\\xe2\\x80\\xae\\x1b[31m \\x00", "// \\xff\\xfe"]
        assert f"</{name}" in next(page.root.find("header")).text


programs = sorted(path.relative_to(root) for path in (root / "examples").glob("*.hd"))
if os.environ.get("HEDDLE_TEST_QUICK") == "1":
    seed = os.environ.get("HEDDLE_TEST_SEED") or str(random.randrange(2**32))
    print(f"HEDDLE_TEST_SEED={seed}", flush=True)
    programs = random.Random(seed).sample(programs, len(programs) // 3)
for program in programs:
    try:
        check_example(program)
    except AssertionError as wrong:
        raise AssertionError(f"{program}: {wrong}") from wrong
for words in (["--transfer", "direct", "--comm-stream", "--defer-sends"], ["--chunks", "2", "--protocol", "get"],
              ["--machine", "examples/machines/cpu2.json", "--transfer", "auto"], ["-D", "tp=2", "--transfer", "bulk"]):
    check_example(pathlib.Path("examples/ag_linear.hd"), *words)
check_example(pathlib.Path("tests/golden/lower/permutes_in_a_loop.hd"))
for stage in ("reshard", "stream"):  # moves that name dimensions
    (folder / f"{stage}.hd").write_text(run("dump", "--stage", stage, "tests/golden/lower/moves_name_dimensions.hd")[0])
    check_example(folder / f"{stage}.hd")
for program in sorted((root / "examples/broken").glob("*.hd")):
    check_broken(program.relative_to(root))
check_trips()
check_two_places()
check_hostile()
print(f"{len(programs)} programs are shown")
