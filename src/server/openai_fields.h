/// Which fields of the OpenAI dialect are known, and which are known but not done here.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// An error that names the first field which this server does not do and which is not at the value it has when left out.
Result<void> refuse_fields_not_done(const json::Value& body);

/// The names of fields that nobody knows, shortened to print.
std::vector<std::string> unknown_fields(const json::Value& body);

}  // namespace baton
