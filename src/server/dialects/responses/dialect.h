/// The dialect of the OpenAI API's responses.
#pragma once

#include <string_view>

#include "server/dialects/dialect.h"

namespace baton {

inline constexpr Dialect kResponses = {.path = "/v1/responses", .count_path = "/v1/responses/input_tokens", .ids = "resp_"};
/// Of one response: /v1/responses/ID.
inline constexpr std::string_view kResponsePath = "/v1/responses/";

}  // namespace baton
