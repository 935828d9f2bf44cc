"""The blocks of docs/python.md are a file that runs and prints what the page says,
and so is the README's. What docs/tutorial.md writes in Python is run, and what that
prints is compared; tests/docs/blocks.py does so with its other commands."""
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
    """Yields what each command of a page that runs Python prints, and what the page
    says that it does."""
    for title, text in re.findall(r"^```\w+ title=\"([^\"\n]*)\"\n(.*?)^```$", page, re.M | re.S):
        pathlib.Path(folder, title).write_text(text)
    for file, printed in re.findall(r"^\$ python (\S+)\n((?:(?!\$ |```).*\n)*)", page, re.M):
        said = subprocess.run([sys.executable, file], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        yield said.stdout, printed


class Page(unittest.TestCase):
    def test_blocks_run_and_print_what_stands_below_them(self):
        page = (ROOT / "docs/python.md").read_text()
        said = run("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)))
        printed = re.findall(r"^```\n(.*?)^```$", re.sub(r"^```\w.*?^```$", "", page, flags=re.M | re.S),
                             re.M | re.S)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stdout, "".join(printed))

    def test_tutorial(self):
        page = (ROOT / "docs/tutorial.md").read_text()
        with tempfile.TemporaryDirectory() as folder:
            followed = list(follow(page, folder))
        self.assertEqual(*zip(*followed))
        self.assertTrue(followed)

    def test_readme(self):
        page = (ROOT / "README.md").read_text()
        (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        said = run(block)
        self.assertEqual((said.returncode, said.stdout), (0, "[2.0, 4.0, 2.0, 4.0]\n"), said.stderr)


if __name__ == "__main__":
    unittest.main()
