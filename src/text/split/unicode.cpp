/// UTF-8 and the few properties of characters that tokenizers ask for.
#include "text/split/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/check.h"
#include "text/tables/character_tables.h"
#include "text/tables/grapheme_tables.h"

namespace baton::unicode {
namespace {

constexpr char32_t kJoiner = 0x200D;

bool is_regional(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
bool is_hangul_l(char32_t c) { return (c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C); }
bool is_hangul_v(char32_t c) { return (c >= 0x1160 && c <= 0x11A7) || (c >= 0xD7B0 && c <= 0xD7C6); }
bool is_hangul_t(char32_t c) { return (c >= 0x11A8 && c <= 0x11FF) || (c >= 0xD7CB && c <= 0xD7FB); }
bool is_hangul_syllable(char32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }
bool is_hangul_lv(char32_t c) { return is_hangul_syllable(c) && (c - 0xAC00) % 28 == 0; }

/// Rules GB6 to GB8.
bool joins_hangul(char32_t before, char32_t c) {
  if (is_hangul_l(before)) return is_hangul_l(c) || is_hangul_v(c) || is_hangul_syllable(c);
  if (is_hangul_v(before) || is_hangul_lv(before)) return is_hangul_v(c) || is_hangul_t(c);
  return (is_hangul_t(before) || is_hangul_syllable(before)) && is_hangul_t(c);
}

/// What the rules ask about the characters of a cluster so far.
class Cluster {
 public:
  explicit Cluster(char32_t first) { add(first); }

  bool joins(char32_t c) const {
    const unsigned properties = cluster_properties(c);
    if (before_ == '\r' && c == '\n') return true;
    if (((before_properties_ | properties) & kClusterControl) != 0) return false;
    if (joins_hangul(before_, c)) return true;
    if ((properties & (kClusterExtend | kClusterSpacing)) != 0) return true;
    if ((before_properties_ & kClusterPrepend) != 0) return true;
    if (conjunct_ == Conjunct::linked && (properties & kClusterConsonant) != 0) return true;
    if (emoji_ == Emoji::joined && (properties & kClusterPictographic) != 0) return true;
    return is_regional(before_) && is_regional(c) && n_regional_ % 2 == 1;
  }

  void add(char32_t c) {
    before_ = c;
    before_properties_ = cluster_properties(c);
    n_regional_ = is_regional(c) ? n_regional_ + 1 : 0;
    const auto has = [&](unsigned property) { return (before_properties_ & property) != 0; };
    if (has(kClusterPictographic))
      emoji_ = Emoji::begun;
    else if (emoji_ == Emoji::begun && c == kJoiner)
      emoji_ = Emoji::joined;
    else if (emoji_ != Emoji::begun || !has(kClusterExtend))
      emoji_ = Emoji::none;
    if (has(kClusterConsonant))
      conjunct_ = Conjunct::begun;
    else if (conjunct_ != Conjunct::none && has(kClusterLinker))
      conjunct_ = Conjunct::linked;
    else if (!has(kClusterConjunctExtend))
      conjunct_ = Conjunct::none;
  }

 private:
  enum class Emoji { none, begun, joined };
  enum class Conjunct { none, begun, linked };

  char32_t before_ = 0;
  unsigned before_properties_ = 0;
  int n_regional_ = 0;  // at the end of the cluster
  Emoji emoji_ = Emoji::none;
  Conjunct conjunct_ = Conjunct::none;
};

utf8proc_option_t options_of(NormalForm form) {
  const bool is_composed = form == NormalForm::c || form == NormalForm::kc;
  const bool is_compatible = form == NormalForm::kc || form == NormalForm::kd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

/// The first byte of the characters that a form may change: from U+0300 on for form C, all but ASCII for the others.
unsigned char first_affected_byte(NormalForm form) { return form == NormalForm::c ? 0xCC : 0x80; }

}  // namespace

std::string to_utf8(char32_t code_point) {
  std::string out;
  append_utf8(out, code_point);
  return out;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Step step = decode_front(text);
    out += step.is_valid ? text.substr(0, step.n_bytes) : kReplacementUtf8;
    text.remove_prefix(step.n_bytes);
  }
  return out;
}

std::string_view last_character(std::string_view text) {
  std::size_t start = text.size();
  while (start > 0) {
    --start;
    if ((static_cast<unsigned char>(text[start]) & 0xC0) != 0x80) break;
  }
  return text.substr(start);
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || c == 0x20;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP || c == 0x85;
}

namespace {

struct Shift {
  char32_t first;
  char32_t last;
  char32_t lowercase_of_first;
};

// Capital letters that Unicode has had since version 16, which utf8proc does not know.
constexpr Shift kNewCapitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},     {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
    {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},    {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B},
    {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
};

}  // namespace

void append_lowercase(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c));
    return;
  }
  if (c == 0x130) {  // the only letter whose lower case is two characters
    out += "i\u0307";
    return;
  }
  for (const Shift& shift : kNewCapitals)
    if (c >= shift.first && c <= shift.last) return append_utf8(out, shift.lowercase_of_first + (c - shift.first));
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others are numbered from U+0100 in their order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::size_t kNumberOfOthers = 68;

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? byte : next++;
  return characters;
}

constexpr std::array<unsigned char, kNumberOfOthers> make_others() {
  std::array<unsigned char, kNumberOfOthers> others{};
  std::size_t next = 0;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (!stands_for_itself(byte)) others[next++] = static_cast<unsigned char>(byte);
  return others;
}

constexpr std::array<char32_t, 256> kCharacterOfByte = make_characters();
constexpr std::array<unsigned char, kNumberOfOthers> kOthers = make_others();

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kCharacterOfByte[byte]; }

std::optional<unsigned char> byte_of_character(char32_t code_point) {
  if (code_point < 0x100) {
    if (!stands_for_itself(static_cast<unsigned>(code_point))) return std::nullopt;
    return static_cast<unsigned char>(code_point);
  }
  if (code_point < 0x100 + kNumberOfOthers) return kOthers[code_point - 0x100];
  return std::nullopt;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    held_.clear();
    joined += bytes;
    bytes = joined;
  }
  while (!bytes.empty()) {
    const Step step = decode_front(bytes);
    if (step.is_cut_off) {
      held_ = bytes;
      return;
    }
    out += step.is_valid ? bytes.substr(0, step.n_bytes) : kReplacementUtf8;
    bytes.remove_prefix(step.n_bytes);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (!held_.empty()) out += kReplacementUtf8;
  held_.clear();
}

std::size_t length_of_cluster(std::string_view text) {
  Step step = decode_front(text);
  std::size_t length = step.n_bytes;
  // Printable ASCII, the most common case.
  if (length < text.size() && text[0] >= ' ' && text[0] < 0x7F && static_cast<unsigned char>(text[length]) < 0x7F)
    return length;
  Cluster cluster(step.code_point);
  while (length < text.size()) {
    step = decode_front(text.substr(length));
    if (!cluster.joins(step.code_point)) break;
    cluster.add(step.code_point);
    length += step.n_bytes;
  }
  return length;
}

std::string normalized(std::string_view text, NormalForm form) {
  const auto is_affected = [first = first_affected_byte(form)](char byte) { return static_cast<unsigned char>(byte) >= first; };
  if (std::ranges::none_of(text, is_affected)) return std::string(text);

  const utf8proc_option_t options = options_of(form);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto n_bytes = static_cast<utf8proc_ssize_t>(text.size());
  std::vector<utf8proc_int32_t> characters(text.size() + 1);  // one more for the 0 that utf8proc_reencode writes
  utf8proc_ssize_t n = utf8proc_decompose(bytes, n_bytes, characters.data(), n_bytes, options);
  if (n > n_bytes) {  // rare: characters with more parts than bytes
    characters.resize(static_cast<std::size_t>(n) + 1);
    n = utf8proc_decompose(bytes, n_bytes, characters.data(), n, options);
  }
  check(n >= 0, utf8proc_errmsg(n));
  n = utf8proc_reencode(characters.data(), n, options);
  check(n >= 0, utf8proc_errmsg(n));
  return std::string(reinterpret_cast<const char*>(characters.data()), static_cast<std::size_t>(n));
}

std::string normalized_by_unicode_9(std::string_view text, NormalForm form) {
  // A character that the form does not know is one that nothing is joined to or moved across.
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0xDF) {
      at += byte < 0x80 ? 1 : 2;
      continue;
    }
    const Step step = decode_front(text.substr(at));
    if (is_beyond_normalization(step.code_point)) {
      out += normalized(text.substr(done, at - done), form);
      out += text.substr(at, step.n_bytes);
      done = at + step.n_bytes;
    }
    at += step.n_bytes;
  }
  if (done == 0) return normalized(text, form);
  return out += normalized(text.substr(done), form);
}

}  // namespace baton::unicode
