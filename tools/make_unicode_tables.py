#!/usr/bin/env python3
"""Writes src/text/nfc_tables.h, the data of canonical normalisation, from Python's Unicode database.

usage: python3 tools/make_unicode_tables.py > src/text/nfc_tables.h
"""

import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic
WIDTH = 120


def decomposition(character):
    """The canonical decomposition, one step deep: [] or one or two code points."""
    text = unicodedata.decomposition(character)
    if not text or text.startswith("<"):
        return []
    return [int(number, 16) for number in text.split()]


def tables():
    composing, decomposing, classes = [], [], []
    for code in range(0x110000):
        character = chr(code)
        parts = [] if code in HANGUL else decomposition(character)
        if len(parts) == 2 and unicodedata.normalize("NFC", chr(parts[0]) + chr(parts[1])) == character:
            composing.append((code, *parts))
        elif parts:
            decomposing.append((code, parts[0], parts[1] if len(parts) == 2 else 0))
        number = unicodedata.combining(character)
        if number and classes and classes[-1][0] + classes[-1][1] == code and classes[-1][2] == number:
            classes[-1] = (classes[-1][0], classes[-1][1] + 1, number)
        elif number:
            classes.append((code, 1, number))
    return composing, decomposing, classes


def write_rows(declaration, rows, n_hex):
    """One array; the first `n_hex` numbers of each row are code points."""
    print(f"{declaration} = {{{{")
    line = "    "
    for row in rows:
        numbers = [f"0x{number:X}" if i < n_hex and number else str(number) for i, number in enumerate(row)]
        item = "{" + ",".join(numbers) + "},"
        if len(line) + len(item) > WIDTH:
            print(line)
            line = "    "
        line += item
    print(line)
    print("}};")


def main():
    composing, decomposing, classes = tables()
    version = unicodedata.unidata_version
    print(f"""/// The data of canonical normalisation (Unicode {version}); written by tools/make_unicode_tables.py.
#pragma once

#include <array>
#include <cstdint>

namespace baton::unicode {{

/// A character and its canonical decomposition, one step deep; `second` is 0 where it is one character.
struct Decomposition {{
  char32_t whole;
  char32_t first;
  char32_t second;
}};

/// Characters one after another of one canonical combining class, which is not 0.
struct CombiningRange {{
  char32_t first;
  std::uint8_t n_characters;
  std::uint8_t combining_class;
}};

// clang-format off

/// Those that composition makes again, by their whole.""")
    write_rows(f"inline constexpr std::array<Decomposition, {len(composing)}> kComposing", composing, 3)
    print("\n/// Those that it does not, by their whole.")
    write_rows(f"inline constexpr std::array<Decomposition, {len(decomposing)}> kDecomposing", decomposing, 3)
    print()
    write_rows(f"inline constexpr std::array<CombiningRange, {len(classes)}> kCombiningRanges", classes, 1)
    print("\n// clang-format on\n\n}  // namespace baton::unicode")


if __name__ == "__main__":
    sys.exit(main())
