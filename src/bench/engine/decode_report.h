/// The report of a decode benchmark: a table in Markdown, and numbers as JSON.
#pragma once

#include <string>

#include "bench/engine/decode_bench.h"
#include "io/json.h"

namespace baton {

/// Command, machine, table in Markdown, and counters.
std::string decode_text(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command);

json::Value decode_json(const DecodeBenchReport& report, const DecodeBenchOptions& options, const std::string& command);

}  // namespace baton
