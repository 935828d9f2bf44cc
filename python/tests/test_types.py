"""The package is typed: mypy takes it, strictly, and what the pages do with it."""
import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import heddle

ROOT = pathlib.Path(os.environ["HEDDLE_ROOT"])
PAGES = {"readme": "README.md", "python": "docs/python.md", "tutorial": "docs/tutorial.md"}
WRONG = """import heddle
heddle.Program(3)
heddle.Builder("b").input("x", "f32", (2,)).reshape
heddle.ops.gelu("x")
"""
# Pages do not say the types of their own functions.
OWN = "# mypy: allow-untyped-defs, allow-untyped-calls\n"


class Types(unittest.TestCase):
    def test_syntax_is_that_of_the_oldest_python_allowed(self):
        oldest = re.search(r'^requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text(),
                           re.M)
        files = list(pathlib.Path(heddle.__file__).parent.rglob("*.py"))
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(file.name):
                ast.parse(file.read_text(), feature_version=(3, int(oldest[1])))

    def test_package_and_pages_are_typed_and_what_is_wrong_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "wrong.py").write_text(WRONG)
            for name, page in PAGES.items():
                blocks = re.findall(r"^```python.*?\n(.*?)^```$", (ROOT / page).read_text(),
                                    re.M | re.S)
                pathlib.Path(folder, name + "_page.py").write_text(OWN + "\n".join(blocks))
            modules = [word for name in PAGES for word in ("-m", name + "_page")]
            said = subprocess.run([sys.executable, "-m", "mypy", "--config-file",
                                   ROOT / "pyproject.toml", "-p", "heddle", *modules, "-m", "wrong"],
                                  cwd=folder, env={**os.environ, "MYPYPATH": folder}, text=True,
                                  capture_output=True, timeout=200)
        found = re.findall(r"^(.*): error: ", said.stdout, re.M)
        self.assertEqual([re.sub(r".*wrong.py:", "", place) for place in found], ["2", "3", "4"],
                         said.stdout + said.stderr)


if __name__ == "__main__":
    unittest.main()
