/// Grapheme clusters: what a reader takes for one character.
#include "text/split/grapheme.h"

#include "text/split/unicode.h"
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

}  // namespace

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

}  // namespace baton::unicode
