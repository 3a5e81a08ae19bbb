/// API keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// Whether an Authorization header ("Bearer KEY") carries one of `keys`; without keys every request is
/// allowed. The time depends only on the lengths.
bool is_authorized(std::string_view authorization, const std::vector<std::string>& keys);

}  // namespace baton
