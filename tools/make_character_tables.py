#!/usr/bin/env python3
"""Writes src/text/tables/character_tables.cpp: the sets of characters that the `tokenizers` library goes by.

    make_character_tables.py            needs the package tokenizers, and Debian's unicode-data in /usr/share/unicode

The library's tables are of several Unicode versions, none of them the one of utf8proc or PCRE2. So each set is asked for,
one character after another; only what has a decomposition is read from Unicode's files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent
UNICODE = Path("/usr/share/unicode")
CHARACTERS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
NORMALIZATION_VERSION = (9, 0)  # of the library's normalisation forms
REGEX_VERSION = (14, 0)  # of PCRE2
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Cf".split()
LINE = 120

HEAD = """\
/// Sets of characters, as the `tokenizers` library has them. Made by tools/make_character_tables.py.
#include "text/tables/character_tables.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace baton::unicode {

namespace {

struct Range {
  char32_t first;
  char32_t last;
};

struct StandIn {
  char32_t first;
  char32_t last;
  char32_t known;
};

// clang-format off
"""

TAIL = """
// clang-format on

template <class R>
const R* find_range(std::span<const R> ranges, char32_t c) {
  const auto after = std::ranges::upper_bound(ranges, c, {}, &R::first);
  if (after == ranges.begin()) return nullptr;
  const R& range = *(after - 1);
  return c <= range.last ? &range : nullptr;
}

bool contains(std::span<const Range> ranges, char32_t c) { return find_range(ranges, c) != nullptr; }

}  // namespace

bool is_punctuation(char32_t c) { return contains(kPunctuation, c); }
bool is_combining_mark(char32_t c) { return contains(kCombiningMark, c); }
bool is_numeric(char32_t c) { return contains(kNumeric, c); }
bool is_beyond_normalization(char32_t c) { return contains(kBeyondNormalization, c); }

char32_t known_to_regex(char32_t c) {
  static constexpr int kBlock = 64;
  static const std::vector<bool> has_new = [] {
    std::vector<bool> blocks(0x110000 / kBlock);
    for (const StandIn& range : kStandIns)
      for (char32_t block = range.first / kBlock; block <= range.last / kBlock; ++block) blocks[block] = true;
    return blocks;
  }();
  if (!has_new[c / kBlock]) return c;
  const StandIn* range = find_range(std::span<const StandIn>(kStandIns), c);
  return range == nullptr ? c : range->known;
}

}  // namespace baton::unicode
"""


def _property(file: str, pattern: str) -> dict[int, str]:
    values = {}
    for line in (UNICODE / file).read_text().splitlines():
        if found := re.match(rf"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*({pattern})", line):
            values |= dict.fromkeys(range(int(found[1], 16), int(found[2] or found[1], 16) + 1), found[3])
    return values


def _ages() -> dict[int, tuple[int, ...]]:
    return {code: tuple(map(int, age.split("."))) for code, age in _property("DerivedAge.txt", r"[\d.]+").items()}


def _removed_by(normalizer: normalizers.Normalizer) -> list[int]:
    return [code for code in CHARACTERS if normalizer.normalize_str(chr(code)) == ""]


def _cut_off_by(pre_tokenizer: pre_tokenizers.PreTokenizer) -> list[int]:
    return [code for code in CHARACTERS if len(pre_tokenizer.pre_tokenize_str(f"a{chr(code)}a")) == 3]


def _beyond_normalization(ages: dict[int, tuple[int, ...]]) -> list[int]:
    """Characters that are newer than the library's forms and that a form would change or put in another order."""
    changed = set()
    for line in (UNICODE / "UnicodeData.txt").read_text().splitlines():
        fields = line.split(";")
        code = int(fields[0], 16)
        if ages.get(code, (0,)) <= NORMALIZATION_VERSION:
            continue
        parts = [int(part, 16) for part in fields[5].split() if not part.startswith("<")]
        if fields[3] != "0" or parts:
            changed.add(code)
        changed |= {part for part in parts if ages[part] > NORMALIZATION_VERSION}
    return sorted(changed)


def _matches(expression: str, text: str) -> list[int]:
    cut = pre_tokenizers.Split(Regex(expression), "removed", invert=True).pre_tokenize_str(text)
    return [ord(character) for piece, _ in cut for character in piece]


def _stand_ins(ages: dict[int, tuple[int, ...]]) -> dict[int, int]:
    """For characters newer than PCRE2's tables, one of the same category, length in UTF-8 and, if it is Han, script."""
    new = [code for code in CHARACTERS if unicodedata.category(chr(code)) == "Cn"]
    text = "".join(map(chr, new))
    is_han = set(_matches(r"\p{Han}", text))
    is_old_han = set(_matches(r"\p{Han}", "".join(map(chr, sorted(set(CHARACTERS) - set(new))))))
    examples: dict[tuple[str, int, bool], int] = {}
    for code in CHARACTERS:
        key = (unicodedata.category(chr(code)), len(chr(code).encode()), code in is_old_han)
        if code >= 0x20 and ages.get(code, (99,)) <= REGEX_VERSION:
            examples.setdefault(key, code)
    stand_ins = {}
    for category in CATEGORIES:
        for code in _matches(rf"\p{{{category}}}", text):
            stand_ins[code] = examples[category, len(chr(code).encode()), code in is_han]
    return stand_ins


def _ranges(codes: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def _table(declaration: Callable[[int], str], items: list[str]) -> str:
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) + 3 > LINE:
            lines.append("")
        lines[-1] += f"{item}, " if lines[-1] else f"  {item}, "
    return declaration(len(items)) + "{{\n" + "\n".join(line.rstrip() for line in lines) + "\n}};\n"


def main() -> None:
    """Asks the library and writes the file."""
    assert unicodedata.unidata_version.startswith(".".join(map(str, REGEX_VERSION))), "Python's tables must be as old as PCRE2's"
    ages = _ages()
    digits = pre_tokenizers.Digits(individual_digits=True)
    sets = {
        "kPunctuation": _cut_off_by(pre_tokenizers.Punctuation()),
        "kCombiningMark": _removed_by(normalizers.StripAccents()),
        "kNumeric": _cut_off_by(digits),
        "kBeyondNormalization": _beyond_normalization(ages),
    }
    tables = [
        _table(
            lambda n, name=name: f"constexpr std::array<Range, {n}> {name} = ",
            [f"{{0x{first:X}, 0x{last:X}}}" for first, last in _ranges(codes)],
        )
        for name, codes in sets.items()
    ]
    rows: list[list[int]] = []
    for code, known in sorted(_stand_ins(ages).items()):
        if rows and rows[-1][1:] == [code - 1, known]:
            rows[-1][1] = code
        else:
            rows.append([code, code, known])
    tables.append(
        _table(
            lambda n: f"constexpr std::array<StandIn, {n}> kStandIns = ",
            [f"{{0x{first:X}, 0x{last:X}, {known}}}" for first, last, known in rows],
        )
    )
    (ROOT / "src/text/tables/character_tables.cpp").write_text(HEAD + "\n".join(tables) + TAIL)


if __name__ == "__main__":
    main()
