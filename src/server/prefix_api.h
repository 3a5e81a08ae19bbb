/// The bodies of /v1/prefixes: what registers a prefix, and how one is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "server/prefixes.h"

namespace baton {

struct PrefixRequest {
  PrefixDefinition definition;
  std::string content_field;                ///< "text" or "messages": whichever was given
  std::vector<std::string> unknown_fields;  ///< shortened to print
};

/// {id, text or messages, version?, ttl_seconds?}. Errors: invalid_request, with the field.
Result<PrefixRequest> parse_prefix_request(const json::Value& body);

/// `model`: the name under which the model itself is served; `block_len`: tokens a block of the KV cache.
json::Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len);

/// Why a prefix was not added, for whoever sent `request`: what it does not say itself is said of the field with the content.
Error prefix_error(Error error, const PrefixRequest& request);

}  // namespace baton
