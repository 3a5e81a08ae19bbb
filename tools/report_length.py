#!/usr/bin/env python3
"""Names the files and functions of src/ that are longer than our measure: 500 lines, 80 lines (150 on the device).

    tools/report_length.py [ROOT]

A report, not a check: a long one may have its reason. Counts functions that begin in the first column, as clang-format puts them.
"""

import re
import sys
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = {".h": 80, ".cpp": 80, ".cu": 150, ".cuh": 150}
BEGINS = re.compile(r"^(?!namespace\b|using\b|struct\b|class\b|enum\b|union\b|extern\b)[A-Za-z_]")


def long_functions(lines, limit):
    begin = None
    for index, line in enumerate(lines):
        if BEGINS.match(line):
            begin = index
        elif line == "}" and begin is not None:
            if index - begin + 1 > limit:
                yield begin + 1, index - begin + 1
            begin = None


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)
    n_files = n_long = 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in FUNCTION_LINES:
            continue
        n_files += 1
        name = path.relative_to(root).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > FILE_LINES:
            n_long += 1
            print(f"{name}: {len(lines)} lines (our measure: {FILE_LINES})")
        limit = FUNCTION_LINES[path.suffix]
        for number, length in long_functions(lines, limit):
            n_long += 1
            print(f"{name}:{number}: a function of {length} lines (our measure: {limit})")
    print(f"report_length: {n_files} files, {n_long} longer than our measure")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
