/// What the file of a stored prefix says of it besides its tokens: enough to register a prefix of the API again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "server/prefixes/prefix_definition.h"

namespace baton {

/// Of a prefix of the API: all of its definition but the name, and when it was created (Unix time in seconds). Of others:
/// source and version, because their definition comes with each start.
std::string metadata_of(const PrefixDefinition& definition, std::int64_t created);

/// The inverse. `name` is the prefix's. Errors: invalid_data, if the text was not made by metadata_of.
Result<PrefixDefinition> definition_of(std::string_view name, const std::string& metadata);

}  // namespace baton
