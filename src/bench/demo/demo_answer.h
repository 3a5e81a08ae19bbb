/// One streamed chat answer of `baton demo`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace baton {

/// The part of an answer that has arrived so far. Thread: one at a time.
struct DemoAnswer {
  std::string text;
  std::vector<TokenId> token_ids;
  double first_token_s = -1;  ///< arrival of its first text, in seconds after the question; -1: none yet
  bool is_complete = false;

  /// Adds the data of an event that arrived `seconds` after the question. Errors (invalid_request): it is not a chat
  /// frame.
  Result<void> take(std::string_view data, double seconds);
};

}  // namespace baton
