"""Tokenizers that models ship, from the folder BATON_TEST_DATA names, as the text of a tokenizer.json."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


def unpacked(path: Path) -> str:
    """The text of a file compressed by zstd."""
    return subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout.decode()


def _split_and_bytes(folder: Path, digits: str, **changes: object) -> dict:
    """What Llama 3 and Qwen 2 ship, of a vocabulary that comes as vocab.json and merges.txt."""
    expression = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "vocab": json.loads(unpacked(folder / "vocab.json.zst")), "ignore_merges": False}
    model["merges"] = [line for line in unpacked(folder / "merges.txt.zst").splitlines() if line and not line.startswith("#")]
    root = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": byte_level}
    root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    return root | {"model": model} | changes


def real_tokenizers(data: Path) -> dict[str, str]:
    """Name and tokenizer.json of each."""
    folder = data / "tokenizers"
    found = {path.parent.name: unpacked(path) for path in sorted(folder.glob("*/tokenizer.json.zst"))}
    llama3 = _split_and_bytes(folder / "llama3", r"\p{N}{1,3}")
    llama3["model"]["ignore_merges"] = True
    qwen2 = _split_and_bytes(folder / "qwen2", r"\p{N}", normalizer={"type": "NFC"})
    return found | {"llama3": json.dumps(llama3), "qwen2": json.dumps(qwen2)}
