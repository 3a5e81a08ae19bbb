/// The workload of a benchmark: requests as token ids, with their output lengths and arrivals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"

namespace baton {

struct WorkloadRequest {
  /// The whole prompt. Of a later turn of a conversation (`follows`): what comes after the previous turn's answer.
  std::vector<TokenId> prompt;
  std::int32_t output_len = 1;  ///< tokens to generate, at least 1
  double arrival_s = 0;         ///< seconds from the workload's begin; only if the workload has arrivals
  /// Index of the conversation's previous turn, an earlier request. The prompt that is sent is that request's prompt, its
  /// answer, and `prompt`; the request cannot be sent before that answer has ended.
  std::optional<std::size_t> follows = {};
  std::int32_t shared_len = 0;  ///< tokens at the begin of the prompt that other requests have too, by construction
  std::string subject = {};     ///< a name for results in parts: MMLU's subject; empty: none
  /// The right answer, as the token that should come first; absent: unknown.
  std::optional<TokenId> right_token = {};
  std::vector<TokenId> choices = {};  ///< the only tokens that may come first (MMLU's letters); empty: all
};

struct Workload {
  std::string name;  ///< of the dataset, with its parameters: "prefix_repetition 256 + 256, 10 prefixes"
  std::vector<WorkloadRequest> requests;
  bool has_arrivals = false;
  std::int32_t n_dropped = 0;  ///< requests of the dataset that are longer than the model's limit and left out

  std::int64_t prompt_tokens() const {  ///< of the requests' own `prompt` fields
    std::int64_t sum = 0;
    for (const WorkloadRequest& request : requests) sum += static_cast<std::int64_t>(request.prompt.size());
    return sum;
  }
  std::int64_t output_tokens() const {
    std::int64_t sum = 0;
    for (const WorkloadRequest& request : requests) sum += request.output_len;
    return sum;
  }
};

}  // namespace baton
