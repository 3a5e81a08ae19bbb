/// The `normalizer` of a tokenizer.json: how text is rewritten before it is cut into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "text/normal_form.h"
#include "text/pattern.h"

namespace baton {

/// A list of rewriting steps: Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD and Sequence of these; empty for null.
/// Immutable. Thread: any.
class Normalizer {
 public:
  Normalizer() = default;
  /// Errors: unsupported, with the name of the component; invalid_data.
  static Result<Normalizer> from_json(const json::Value& value);

  /// `text` must be valid UTF-8, and so is what returns.
  std::string normalize(std::string_view text) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left = true;
    bool right = true;
  };
  using Step = std::variant<Prepend, Replace, Strip, unicode::NormalForm>;

  Result<void> add(const json::Value& value, int depth);

  std::vector<Step> steps_;
};

}  // namespace baton
