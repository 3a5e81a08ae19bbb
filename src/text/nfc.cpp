/// Unicode's normalisation form C: characters and their marks in one spelling.
#include "text/nfc.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "text/nfc_tables.h"
#include "text/unicode.h"

namespace baton::unicode {

namespace {

// Hangul syllables are made of their parts by arithmetic (The Unicode Standard, 3.12).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeading = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTrailing = 0x11A7;  // one before the first, which stands for none
constexpr char32_t kNumberOfLeading = 19;
constexpr char32_t kNumberOfVowels = 21;
constexpr char32_t kNumberOfTrailing = 28;
constexpr char32_t kNumberOfSyllables = kNumberOfLeading * kNumberOfVowels * kNumberOfTrailing;

// Below U+0300, whose first byte is this, every text is in form C.
constexpr unsigned char kFirstAffectedByte = 0xCC;

constexpr bool is_pair_less(const Decomposition& a, const Decomposition& b) {
  return a.first != b.first ? a.first < b.first : a.second < b.second;
}

constexpr std::array<Decomposition, kComposing.size()> kByPair = [] {
  auto sorted = kComposing;
  std::ranges::sort(sorted, is_pair_less);
  return sorted;
}();

int combining_class(char32_t c) {
  const auto after = std::ranges::upper_bound(kCombiningRanges, c, {}, &CombiningRange::first);
  if (after == kCombiningRanges.begin()) return 0;
  const CombiningRange& range = *(after - 1);
  return c - range.first < range.n_characters ? range.combining_class : 0;
}

const Decomposition* find_whole(std::span<const Decomposition> table, char32_t c) {
  const auto found = std::ranges::lower_bound(table, c, {}, &Decomposition::whole);
  return found != table.end() && found->whole == c ? &*found : nullptr;
}

void append_decomposed(char32_t c, std::vector<char32_t>& out) {
  if (c >= kSyllables && c < kSyllables + kNumberOfSyllables) {
    const char32_t index = c - kSyllables;
    out.push_back(kLeading + index / (kNumberOfVowels * kNumberOfTrailing));
    out.push_back(kVowels + index % (kNumberOfVowels * kNumberOfTrailing) / kNumberOfTrailing);
    if (index % kNumberOfTrailing != 0) out.push_back(kTrailing + index % kNumberOfTrailing);
    return;
  }
  const Decomposition* parts = c < 0x80 ? nullptr : find_whole(kComposing, c);
  if (parts == nullptr && c >= 0x80) parts = find_whole(kDecomposing, c);
  if (parts == nullptr) {
    out.push_back(c);
    return;
  }
  append_decomposed(parts->first, out);  // at most four deep
  if (parts->second != 0) append_decomposed(parts->second, out);
}

/// Puts the marks after each character in the order of their classes; marks of one class keep theirs.
void order_marks(std::vector<char32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

/// The character that the two make, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kNumberOfLeading && second >= kVowels && second < kVowels + kNumberOfVowels)
    return kSyllables + ((first - kLeading) * kNumberOfVowels + (second - kVowels)) * kNumberOfTrailing;
  if (first >= kSyllables && first < kSyllables + kNumberOfSyllables && (first - kSyllables) % kNumberOfTrailing == 0 &&
      second > kTrailing && second < kTrailing + kNumberOfTrailing)
    return first + (second - kTrailing);
  const Decomposition pair{0, first, second};
  const auto found = std::lower_bound(kByPair.begin(), kByPair.end(), pair, is_pair_less);
  return found != kByPair.end() && found->first == first && found->second == second ? found->whole : 0;
}

/// Joins each starter with the marks behind it that are not cut off from it by one of the same or a higher class.
std::vector<char32_t> compose_all(const std::vector<char32_t>& text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<char32_t> out;
  out.reserve(text.size());
  std::size_t starter = kNone;
  int last_class = 0;  // of the last character kept since the starter
  for (const char32_t c : text) {
    const int its_class = combining_class(c);
    const bool is_adjacent = starter != kNone && starter + 1 == out.size();
    if (starter != kNone && (is_adjacent || (last_class != 0 && last_class < its_class))) {
      if (const char32_t whole = compose(out[starter], c); whole != 0) {
        out[starter] = whole;
        continue;
      }
    }
    out.push_back(c);
    last_class = its_class;
    if (its_class == 0) starter = out.size() - 1;
  }
  return out;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  const auto is_affected = [](char byte) { return static_cast<unsigned char>(byte) >= kFirstAffectedByte; };
  if (std::ranges::none_of(text, is_affected)) return std::string(text);
  std::vector<char32_t> decomposed;
  decomposed.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Step step = decode_front(rest);
    append_decomposed(step.code_point, decomposed);
    rest.remove_prefix(step.n_bytes);
  }
  order_marks(decomposed);
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : compose_all(decomposed)) append_utf8(out, c);
  return out;
}

}  // namespace baton::unicode
