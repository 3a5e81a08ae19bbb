#!/usr/bin/env python3
"""Writes src/text/tables/grapheme_tables.cpp: the properties by which the `tokenizers` library cuts texts into grapheme clusters.

    make_grapheme_tables.py             needs the package tokenizers

The library shows its clusters in its Precompiled normalizer alone: a cluster of at most five bytes is replaced as a whole, a
longer one character by character. So each character is put among others whose properties are known, and the replacements
are counted.
"""

from __future__ import annotations

from pathlib import Path

from goldens.charsmap import compiled
from make_character_tables import CHARACTERS, _table
from tokenizers import normalizers

ROOT = Path(__file__).resolve().parent.parent
MARK, JOINER, SUN, COPYRIGHT, KA, VIRAMA = "\u0308", "\u200d", "\u2600", "\u00a9", "\u0915", "\u094d"

HEAD = """\
/// Properties of characters for grapheme clusters, as the `tokenizers` library has them. Made by tools/make_grapheme_tables.py.
#include "text/tables/grapheme_tables.h"

#include <algorithm>
#include <array>

namespace baton::unicode {

namespace {

struct ClusterRange {
  char32_t first;
  char32_t last;
  unsigned char properties;
};

// clang-format off
"""

TAIL = """
// clang-format on

}  // namespace

unsigned cluster_properties(char32_t c) {
  const auto after = std::ranges::upper_bound(kClusterRanges, c, {}, &ClusterRange::first);
  if (after == kClusterRanges.begin()) return 0;
  const ClusterRange& range = *(after - 1);
  return c <= range.last ? range.properties : 0;
}

}  // namespace baton::unicode
"""

# Every character is replaced by one letter: its first byte is a key.
EACH = normalizers.Precompiled(compiled({bytes([byte]): "X" for byte in [*range(1, 0x80), *range(0xC2, 0xF5)]}))


def _count(text: str) -> int:
    return len(EACH.normalize_str(text))


def _properties(c: str) -> int:
    if c == "\0":
        return 1
    joins = _count("a" + c) == 1
    flags = {
        "control": _count(c + MARK + MARK) == 2,
        "extend": joins and _count(COPYRIGHT + c + JOINER + SUN + MARK) == 5,
        "spacing": joins and _count(COPYRIGHT + c + JOINER + SUN + MARK) != 5,
        "prepend": _count(c + "a") == 1,
        "pictographic": not joins and _count(COPYRIGHT + JOINER + c + MARK) == 4,
        "consonant": _count(c + VIRAMA + KA + MARK) == 4,
        "linker": joins and _count(KA + c + KA + MARK) == 4,
        "conjunct_extend": joins and _count(KA + c + VIRAMA + KA + MARK) == 5,
    }
    return sum(1 << bit for bit, flag in enumerate(flags.values()) if flag)


def main() -> None:
    """Asks the library and writes the file."""
    rows: list[list[int]] = []
    for code in CHARACTERS:
        properties = _properties(chr(code))
        if properties == 0:
            continue
        if rows and rows[-1][1:] == [code - 1, properties]:
            rows[-1][1] = code
        else:
            rows.append([code, code, properties])
    items = [f"{{0x{first:X}, 0x{last:X}, {number}}}" for first, last, number in rows]
    table = _table(lambda n: f"constexpr std::array<ClusterRange, {n}> kClusterRanges = ", items)
    (ROOT / "src/text/tables/grapheme_tables.cpp").write_text(HEAD + table + TAIL)


if __name__ == "__main__":
    main()
