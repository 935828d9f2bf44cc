"""The blocks of docs/python.md are a file that runs and prints what the page says,
and so is the README's."""
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


class Page(unittest.TestCase):
    def test_blocks_run_and_print_what_stands_below_them(self):
        page = (ROOT / "docs/python.md").read_text()
        said = run("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)))
        printed = re.findall(r"^```\n(.*?)^```$", re.sub(r"^```\w.*?^```$", "", page, flags=re.M | re.S),
                             re.M | re.S)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(said.stdout, "".join(printed))

    def test_readme(self):
        page = (ROOT / "README.md").read_text()
        (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        said = run(block)
        self.assertEqual((said.returncode, said.stdout), (0, "[2.0, 4.0, 2.0, 4.0]\n"), said.stderr)


if __name__ == "__main__":
    unittest.main()
