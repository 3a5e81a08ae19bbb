/// Finding markers in a text that comes byte by byte.
#pragma once

#include <algorithm>
#include <bitset>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace baton::parsers {

/// The spaces between the parts of a call: those of JSON.
inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// The bytes that begin markers, for a quick look at the many bytes that do not.
class FirstBytes {
 public:
  void add(std::span<const std::string_view> markers) {
    for (const std::string_view marker : markers)
      if (!marker.empty()) bytes_.set(static_cast<unsigned char>(marker.front()));
  }
  bool has(char c) const { return bytes_.test(static_cast<unsigned char>(c)); }

 private:
  std::bitset<256> bytes_;
};

/// Whether some marker begins with `text`.
inline bool begins_marker(std::span<const std::string_view> markers, std::string_view text) {
  return std::any_of(markers.begin(), markers.end(), [&](std::string_view marker) { return marker.starts_with(text); });
}

/// Holds back the longest end of a text that may begin a marker. No marker begins with another one.
class MarkerScan {
 public:
  /// Takes a byte and calls `text(char)` for each byte that is in no marker for certain. The marker that ends with `c`,
  /// if any.
  template <class Text>
  std::optional<std::string_view> take(char c, std::span<const std::string_view> markers, const Text& text) {
    held_.push_back(c);
    while (!held_.empty() && !begins_marker(markers, held_)) {
      text(held_.front());
      held_.erase(0, 1);
    }
    const auto found = std::find(markers.begin(), markers.end(), held_);
    if (found == markers.end()) return std::nullopt;
    held_.clear();
    return *found;
  }
  bool is_empty() const { return held_.empty(); }
  /// What is held back, which is forgotten.
  std::string release() { return std::exchange(held_, {}); }

 private:
  std::string held_;
};

}  // namespace baton::parsers
