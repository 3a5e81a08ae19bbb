/// SentencePiece's compiled map of characters.
#include "text/split/charsmap.h"

#include <algorithm>
#include <cstddef>

#include "text/split/unicode.h"

namespace baton {

namespace {

constexpr std::size_t kMaxClusterBytes = 5;
// Of one replacement, so that a damaged map cannot turn a short text into an endless one.
constexpr std::size_t kMaxTextBytes = 1024;

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = (number << 8) | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

// A unit of the array: its label and, of a leaf, its value; where its children lie.
bool has_leaf(std::uint32_t unit) { return ((unit >> 8) & 1) == 1; }
std::size_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::size_t offset_of(std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 0x200u) >> 6); }

tl::unexpected<Error> invalid_map(std::string_view message) {
  return fail(ErrorCode::invalid_data, "normalizer Precompiled: precompiled_charsmap: " + std::string(message));
}

}  // namespace

Result<Charsmap> Charsmap::from_bytes(std::string_view bytes) {
  if (bytes.size() < 4) return invalid_map("it is shorter than its size");
  const std::size_t n_bytes = number_at(bytes, 0);
  bytes.remove_prefix(4);
  if (n_bytes > bytes.size() || n_bytes % 4 != 0 || n_bytes == 0) return invalid_map("the size of its array is wrong");
  Charsmap map;
  map.units_.reserve(n_bytes / 4);
  for (std::size_t at = 0; at < n_bytes; at += 4) map.units_.push_back(number_at(bytes, at));
  map.texts_ = bytes.substr(n_bytes);
  if (!unicode::is_valid_utf8(map.texts_)) return invalid_map("its texts are not UTF-8");
  for (std::size_t begin = 0, end = 0; begin < map.texts_.size(); begin = end + 1) {
    end = std::min(map.texts_.find('\0', begin), map.texts_.size());
    if (end - begin > kMaxTextBytes) return invalid_map("a text has more than 1024 bytes");
  }
  return map;
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  std::size_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (at >= units_.size()) return std::nullopt;
    if (!has_leaf(unit)) continue;
    const std::size_t begin = value_of(units_[at]);
    // A value inside a character is no place of a text.
    if (begin > texts_.size() || (begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80))
      return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::optional<std::string> Charsmap::normalize(std::string_view text, std::size_t max_bytes, WorkMeter& meter) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, unicode::length_of_cluster(text));
    text.remove_prefix(cluster.size());
    if (out.size() > max_bytes || !meter.spend(static_cast<std::int64_t>(cluster.size()))) return std::nullopt;
    if (cluster.size() <= kMaxClusterBytes) {
      if (const auto replacement = find(cluster)) {
        out += *replacement;
        continue;
      }
    }
    for (std::string_view rest = cluster; !rest.empty() && out.size() <= max_bytes;) {
      const std::string_view character = rest.substr(0, unicode::decode_front(rest).n_bytes);
      out += find(character).value_or(character);
      rest.remove_prefix(character.size());
    }
  }
  if (out.size() > max_bytes) return std::nullopt;
  return out;
}

}  // namespace baton
