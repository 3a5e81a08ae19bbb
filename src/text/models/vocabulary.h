/// The two-way table between token texts and ids.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {

/// Largest id that files may contain, because tables are as long as the largest id.
inline constexpr TokenId kMaxTokenId = (1 << 21) - 1;

/// Texts and ids, in both directions. Ids need not be contiguous. Views it returns live as long as the vocabulary.
/// Thread: any, while no thread calls insert.
class Vocabulary {
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Ids = std::unordered_map<std::string, TokenId, Hash, std::equal_to<>>;

 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) noexcept = default;
  Vocabulary& operator=(Vocabulary&&) noexcept = default;

  /// The object `vocab` of a tokenizer.json's model, which `name` ("BPE") calls it by. Errors: invalid_data.
  static Result<Vocabulary> from_json(const json::Value& model, std::string_view name);

  /// Adds a pair and returns true. Returns false, and changes nothing, when the id is out of [0, kMaxTokenId] or the
  /// text is already known. Of two texts with one id, text_of returns the first.
  bool insert(std::string_view text, TokenId id);

  std::optional<TokenId> id_of(std::string_view text) const;
  /// Empty for ids that have no text.
  std::string_view text_of(TokenId id) const;
  bool contains(TokenId id) const;
  /// All pairs, in no order.
  const Ids& ids() const { return ids_; }
  /// Largest id + 1.
  int n_ids() const { return static_cast<int>(texts_.size()); }

 private:
  Ids ids_;
  std::vector<const std::string*> texts_;  // into the keys of ids_, which never move
};

}  // namespace baton
