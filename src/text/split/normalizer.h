/// The `normalizer` of a tokenizer.json: how text is rewritten before it is cut into words.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/split/charsmap.h"
#include "text/split/pattern.h"
#include "text/split/unicode.h"

namespace baton {

/// A list of rewriting steps: Prepend, Replace, Strip, StripAccents, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled,
/// ByteLevel and Sequence of these; empty for null. Immutable. Thread: any.
class Normalizer {
 public:
  Normalizer() = default;
  /// Errors: unsupported, with the name of the component; invalid_data.
  static Result<Normalizer> from_json(const json::Value& value);

  /// `text` must be valid UTF-8, and so is what returns. A step that would make more than 64 times the bytes of `text`
  /// and 256 does nothing: a file of strangers may double the text in each step. What returns is of no use where the budget
  /// of `meter` is over.
  std::string normalize(std::string_view text, WorkMeter& meter) const;

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
  /// What is done to each character on its own.
  enum class Characters { lowercase, nmt, accents, bytes };
  using Step = std::variant<Prepend, Replace, Strip, unicode::NormalForm, Characters, Charsmap>;

  Result<void> add(const json::Value& value, int depth);
  Result<void> add_replace(const json::Value& value);
  Result<void> add_precompiled(const json::Value& value);
  static std::string rewrite(std::string_view text, Characters step, WorkMeter& meter);
  static std::optional<std::string> apply(const Step& step, const std::string& text, std::size_t max_bytes, WorkMeter& meter);

  std::vector<Step> steps_;
};

}  // namespace baton
