/// The report of a throughput benchmark: a table in Markdown, and numbers as JSON.
#pragma once

#include <string>

#include "bench/offline/throughput_bench.h"
#include "io/json.h"

namespace baton {

/// Command, machine, table in Markdown, and how to read it.
std::string throughput_text(const ThroughputReport& report, const ThroughputBenchOptions& options, const std::string& command);

/// The keys of `vllm bench throughput` for each arm, and Baton's own.
json::Value throughput_json(const ThroughputReport& report, const ThroughputBenchOptions& options, const std::string& command);

}  // namespace baton
