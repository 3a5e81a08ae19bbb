/// Which fields of the OpenAI dialect are known, and which of them Baton does not support.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// The error for the first unsupported field that does not have its neutral value.
Result<void> refuse_fields_not_done(const json::Value& body);

/// The names of unknown fields, shortened for printing.
std::vector<std::string> unknown_fields(const json::Value& body);

}  // namespace baton
