/// Parsing large JSON for somebody who may leave meanwhile.
#pragma once

#include <functional>
#include <string_view>

#include "core/result.h"
#include "io/json.h"

namespace baton::json {

/// The same as `parse`, but it asks `is_cancelled` every few thousand values (empty: never), and then fails with `unavailable`.
Result<Value> parse_cancellable(std::string_view text, std::string_view what, const std::function<bool()>& is_cancelled);

}  // namespace baton::json
