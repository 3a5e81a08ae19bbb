/// What a run of the decode benchmark says: a table for a reader, its numbers as JSON.
#pragma once

#include <string>

#include "apps/bench/decode_bench.h"
#include "io/json.h"

namespace baton {

/// Command, machine, table in Markdown, and what was counted.
std::string decode_text(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command);

json::Value decode_json(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command);

}  // namespace baton
