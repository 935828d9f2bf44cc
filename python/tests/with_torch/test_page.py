"""The blocks of docs/torch.md, in the processes that torchrun has started for the
tests: two of them, as the page says. Each prints what stands below it."""
import contextlib
import io
import os
import pathlib
import re
import unittest
from unittest import mock

import torch.distributed as dist

PAGE = pathlib.Path(os.environ["HEDDLE_ROOT"], "docs/torch.md")


class Page(unittest.TestCase):
    @unittest.skipIf(dist.get_world_size() != 2, "the page is for two ranks")
    def test_blocks_run_and_print_what_stands_below_them(self):
        page = PAGE.read_text(encoding="utf-8")
        blocks = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S))
        without = re.sub(r"^```\w.*?^```$", "", page, flags=re.M | re.S)
        printed = "".join(re.findall(r"^```\n(.*?)^```$", without, re.M | re.S))
        said = io.StringIO()
        with contextlib.redirect_stdout(said), mock.patch.object(dist, "init_process_group"), \
                mock.patch.object(dist, "destroy_process_group"):
            exec(compile(blocks, str(PAGE), "exec"), {"__name__": "__main__"})
        if dist.get_rank() == 0:
            self.assertEqual(said.getvalue(), printed)
