/// The `post_processor` of a tokenizer.json: the special tokens around a text.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The ids that TemplateProcessing (for single texts), BertProcessing, RobertaProcessing, ByteLevel (changes nothing) and
/// Sequences of these put before and after a text's ids; nothing for null. Thread: any.
struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;

  /// Errors: unsupported, with the name of the component; invalid_data.
  static Result<PostProcessor> from_json(const json::Value& value);
};

}  // namespace baton
