"""SentencePiece's compiled map of characters: rules as a double array of bytes, which the Precompiled normalizer walks."""

from __future__ import annotations

import struct


def compiled(rules: dict[bytes, str]) -> bytes:
    """The map that replaces each key by its text. Keys are bytes of UTF-8 without zeros."""
    blob = b""
    values: dict[bytes, int] = {}
    for key, text in rules.items():
        values[key] = len(blob)
        blob += text.encode() + b"\0"

    children: dict[bytes, set[int]] = {b"": set()}
    for key in rules:
        for end in range(len(key)):
            children.setdefault(key[:end], set()).add(key[end])
            children.setdefault(key[: end + 1], set())

    units: dict[int, int] = {0: 0}  # place in the array -> unit
    bases: set[int] = set()
    places = {b"": 0}
    for prefix in sorted(children, key=len):
        place = places[prefix]
        if not children[prefix]:
            # A leaf is the node with its value behind the byte zero.
            assert prefix in values
        labels = sorted(children[prefix])
        base = 1
        while base in bases or any((base ^ label) in units for label in (0, *labels)):
            base += 1
        bases.add(base)
        offset = place ^ base
        assert offset < 1 << 21
        units[place] |= offset << 10
        units[base] = 0
        if prefix in values:
            units[place] |= 1 << 8
            units[base] = 1 << 31 | values[prefix]
        for label in labels:
            units[base ^ label] = label
            places[prefix + bytes([label])] = base ^ label
    array = [units.get(place, 0) for place in range((max(units) | 0xFF) + 1)]
    packed = struct.pack(f"<{len(array)}I", *array)
    return struct.pack("<I", len(packed)) + packed + blob
