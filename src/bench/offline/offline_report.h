/// What the reports of offline benchmarks have in common: the arms, and a model that does not fit.
#pragma once

#include <string>
#include <vector>

#include "bench/engine/bench_model.h"
#include "bench/offline/offline_bench.h"
#include "io/json.h"

namespace baton {

/// 0.125 as "12%".
std::string percent_text(double share);

/// The arm's requests a second over those of the paged arm; "-" for this arm itself, and without it.
std::string rate_over_paged(const std::vector<ArmRuns>& arms, const ArmRuns& arm);

/// One object for each arm, with the keys of `vllm bench throughput` and Baton's own.
json::Value arms_json(const std::vector<ArmRuns>& arms);

/// Command, program, device, and a table that says for each arm what it lacks.
std::string shortage_text(const MemoryShortage& shortage, const std::vector<std::string>& arms, const std::string& command);

/// One object {arm, error, bytes_needed, bytes_available} for each arm.
json::Value shortage_json(const MemoryShortage& shortage, const std::vector<std::string>& arms);

}  // namespace baton
