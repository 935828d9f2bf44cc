"""`python -m heddle` is the command `heddle`, which lies in the package."""
import os
import sys

from ._library import COMMAND


def main() -> None:
    os.execv(COMMAND, ["heddle", *sys.argv[1:]])


if __name__ == "__main__":
    main()
