/// How long steps take, as measured for some sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace baton {

/// Seconds of a step by its decodes and its prompt tokens: a grid of measurements, as `baton bench steps` makes it. Between them it
/// interpolates along both axes; beyond the last ones it continues the last slope.
class StepCostTable {
 public:
  struct Entry {
    std::int32_t n_decodes = 0;
    std::int32_t n_prompt_tokens = 0;
    double seconds = 0;
  };

  /// Nothing, and why in `fault`, unless the entries are a whole grid of positive, finite times with at least two numbers of prompt
  /// tokens, one of them 0, and two of decodes, in any order, each once. Of no rows there need not be an entry. `fault` calls
  /// entries steps[0], steps[1] and so on.
  static std::optional<StepCostTable> make(const std::vector<Entry>& entries, std::string& fault);

  double seconds(std::int32_t n_decodes, std::int32_t n_prompt_tokens) const;

 private:
  std::vector<double> decodes_;        ///< ascending
  std::vector<double> prompt_tokens_;  ///< ascending, the first is 0
  std::vector<double> seconds_;        ///< [decodes, prompt tokens]
};

}  // namespace baton
