"""The blocks of docs/python.md are a file that runs and prints what the page says,
and so is the README's. docs/tutorial.md is gone through: its files are written, its
commands typed, and what they print is compared."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "page.py")
        file.write_text(text)
        return subprocess.run([sys.executable, file], cwd=folder, capture_output=True, text=True,
                              timeout=120)


def follow(page, folder):
    """Yields each command of a page, what it prints, and what the page says that it
    does, in which three dots stand for anything."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    blocks = re.findall(r"^```(\w+)(?: title=\"([^\"\n]*)\")?\n(.*?)^```$", page, re.M | re.S)
    for kind, title, text in blocks:
        if title:
            pathlib.Path(folder, title).write_text(text)
        for typed, printed in (re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M)
                               if kind == "console" else []):
            said = subprocess.run(["sh", "-c", typed], cwd=folder, env={**os.environ, "PATH": path},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=120)
            yield typed, said.stdout, printed


class Page(unittest.TestCase):
    def test_blocks_run_and_print_what_stands_below_them(self):
        page = (ROOT / "docs/python.md").read_text()
        said = run("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)))
        printed = re.findall(r"^```\n(.*?)^```$", re.sub(r"^```\w.*?^```$", "", page, flags=re.M | re.S),
                             re.M | re.S)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stdout, "".join(printed))

    def test_tutorial(self):
        page, typed = (ROOT / "docs/tutorial.md").read_text(), []
        with tempfile.TemporaryDirectory() as folder:
            for command, said, printed in follow(page, folder):
                want = re.escape(printed).replace(r"\.\.\.", ".*")
                self.assertRegex(said, re.compile(f"\\A{want}\\Z", re.S), command)
                typed.append(command)
        self.assertGreater(len(typed), 8)

    def test_readme(self):
        page = (ROOT / "README.md").read_text()
        (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        said = run(block)
        self.assertEqual((said.returncode, said.stdout), (0, "[2.0, 4.0, 2.0, 4.0]\n"), said.stderr)


if __name__ == "__main__":
    unittest.main()
