#!/usr/bin/env python3
"""Writes the tokenizer.json of a model whose vocabulary is in the folder of test data, for `baton bench grammar`.

    bench/grammar/tokenizer_file.py llama3 build/tokenizers/llama3

The data are in the folder that BATON_TEST_DATA names (default: ../shared/data). Needs the program zstd.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "goldens"))

from real_tokenizers import real_tokenizers  # noqa: E402


def main() -> int:
    """Writes the file; exits 1 with the known names if there is no such tokenizer."""
    if len(sys.argv) != 3:
        print(__doc__)
        return 1
    name, folder = sys.argv[1], Path(sys.argv[2])
    found = real_tokenizers(Path(os.environ.get("BATON_TEST_DATA", ROOT.parent / "shared" / "data")))
    if name not in found:
        print(f"no tokenizer {name}; there are: {', '.join(sorted(found))}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(found[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
