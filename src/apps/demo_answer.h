/// One streamed chat answer of `baton demo`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace baton {

/// What has come of an answer so far. Thread: one at a time.
struct DemoAnswer {
  std::string text;
  std::vector<TokenId> token_ids;
  double first_token_s = -1;  ///< when its first text came, in seconds from when it was asked for; -1: none has come
  bool is_complete = false;

  /// Adds the data of an event that came `seconds` after the question. Errors (invalid_request): it is no frame of a
  /// chat.
  Result<void> take(std::string_view data, double seconds);
};

}  // namespace baton
