/// SentencePiece's compiled map of characters, which a Unigram tokenizer.json carries as the normalizer Precompiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"

namespace baton {

/// Replacements of short texts: a double array (Darts) over their bytes, whose values are places in a list of texts.
/// Immutable. Thread: any.
class Charsmap {
 public:
  /// `bytes`: the size of the array in bytes (4 bytes, little-endian, as all numbers), the array, and texts of at most
  /// 1024 bytes, each with a zero after it. Errors: invalid_data.
  static Result<Charsmap> from_bytes(std::string_view bytes);

  /// As the `tokenizers` library does: of each grapheme cluster of at most five bytes the shortest beginning that the map
  /// has decides what comes in place of the whole cluster; otherwise each character is replaced on its own. `text` must
  /// be valid UTF-8, and so is what returns. Nullopt where that would have more than `max_bytes`.
  std::optional<std::string> normalize(std::string_view text, std::size_t max_bytes, WorkMeter& meter) const;

 private:
  /// What the shortest beginning of `text` that the map has is replaced by.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // valid UTF-8
};

}  // namespace baton
