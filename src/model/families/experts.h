/// Fields of a config.json that the families with experts have in common.
#pragma once

#include <cstdint>

#include "model/families/families.h"

namespace baton {

/// Reads how many experts a layer has, `num_local_experts` (Transformers 5) or `num_experts`, and how many of them
/// compute a row, `num_experts_per_tok`; the last two arguments are the defaults.
Result<void> read_experts(const json::Value& config, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row);

}  // namespace baton
