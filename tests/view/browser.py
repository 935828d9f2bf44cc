"""Pages of `heddle view` in headless Chromium: nothing is logged, lines and bars
are there, and what belongs to a line lights up, by mouse and by keys. Exit code
77, with words, where there is no Chromium.

usage: browser.py ROOT HEDDLE
"""
import atexit
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root, heddle = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
chromium = next(filter(None, map(shutil.which, NAMES)), None)
if not chromium:
    print(f"skipped: none of {', '.join(NAMES)} is on PATH")
    sys.exit(77)
folder = pathlib.Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, folder, ignore_errors=True)
PROBE = """<pre id="probe"></pre><script>
const lit = () => all(".lit").map(e => e.id || e.tagName + e.className).join(" ") || "nothing";
const says = [];
const key = name => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
all(".line")[0].focus(); key("Escape");
document.getElementById("LINE").dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); says.push(lit());
document.body.dispatchEvent(new MouseEvent("mouseout", {bubbles: true}));
all(".line")[0].blur(); all(".line")[0].focus(); key("ArrowDown"); says.push(document.activeElement.id);
key("Enter"); says.push(kept.id); key("Escape"); says.push(String(kept));
document.getElementById("probe").textContent = says.join("|");
</script>"""


def browse(page, hash, *more):
    done = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu",
                           "--disable-dev-shm-usage", "--enable-logging=stderr",
                           f"--user-data-dir={folder}/profile", *more, f"{page.as_uri()}{hash}"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def look(name, program, line, code):
    page = folder / f"{name}.html"
    done = subprocess.run([heddle, "view", root / program, "-o", page], capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr
    dom, logged = browse(page, f"#{line}", "--dump-dom")
    assert not logged, logged
    assert dom.count("class=\"line") + dom.count("class='line") == page.read_text().count("<div class='line")
    assert re.search(rf'<div class="line[^"]* lit" id="{line}"[^>]* tabindex=', dom), "the line of the address is kept"
    lit = len(re.findall(r'<rect [^>]*class="bar lit"', dom))
    assert (lit > 0) == (code == 0), lit
    picture = folder / f"{name}.png"
    _, logged = browse(page, "", f"--screenshot={picture}", "--window-size=1200,1600")
    assert not logged and picture.stat().st_size > 20000
    page.write_text(page.read_text().replace("</body>", PROBE.replace("LINE", line) + "</body>"))
    dom, logged = browse(page, "", "--dump-dom")
    assert not logged, logged
    shone, moved, entered, left = re.search(r'<pre id="probe">(.*?)</pre>', dom)[1].split("|")
    assert line in shone.split() and ("rect" in shone) == (code == 0), shone
    assert (moved, entered, left) == ("s2", "s2", "null"), (moved, entered, left)


wrong = folder / "wrong.html"
wrong.write_text("<script>console.error('seen')</script>")
assert "seen" in str(browse(wrong, "", "--dump-dom")[1]), "what is logged is not seen"
look("ring", "examples/ag_matmul.hd", "s14", 0)
look("broken", "examples/broken/ring_two_slots.hd", "s24", 1)
print("both pages render")
