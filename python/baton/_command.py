"""The command `baton` of an installed wheel: it becomes the program inside the package."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Replace this process by the program."""
    program = pathlib.Path(__file__).parent / "bin" / "baton"
    os.execv(program, ["baton", *sys.argv[1:]])
