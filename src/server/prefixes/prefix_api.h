/// How /v1/prefixes shows a prefix and reports errors.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "server/prefixes/prefix_definition.h"
#include "server/prefixes/prefixes.h"

namespace baton {

/// `model`: the name under which the model itself is served; `block_len`: tokens a block of the KV cache.
json::Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len);

/// The error for the sender of `request` whose prefix was not added; `param` is the field with the content unless the
/// error names another.
Error prefix_error(Error error, const PrefixRequest& request);

}  // namespace baton
