"""The command `baton` of an installed wheel: it becomes the program inside the package."""

from __future__ import annotations

import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).parent / "bin" / "baton"


def main() -> None:
    """Replace this process by the program."""
    os.execv(PROGRAM, ["baton", *sys.argv[1:]])
