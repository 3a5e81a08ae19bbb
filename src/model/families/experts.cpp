/// Reads the numbers of experts.
#include "model/families/experts.h"

#include <algorithm>
#include <string_view>

#include "kernels/ops.h"
#include "model/config_fields.h"

namespace baton {

Result<void> read_experts(const json::Value& config, FeedForwardSpec& spec, std::int32_t n_experts,
                          std::int32_t n_experts_per_row) {
  const std::string_view key = json::find(config, "num_local_experts") != nullptr ? "num_local_experts" : "num_experts";
  BATON_TRY(spec.n_experts, fields::optional_size(config, key, kMaxExperts, n_experts));
  BATON_TRY(spec.n_experts_per_row, fields::optional_size(config, "num_experts_per_tok",
                                                          std::min(kMaxExpertsPerRow, spec.n_experts), n_experts_per_row));
  return {};
}

}  // namespace baton
