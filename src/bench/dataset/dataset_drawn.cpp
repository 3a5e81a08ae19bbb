/// Datasets that are drawn entirely: random, prefix_repetition, generated-shared-prefix, multi-turn.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/dataset/dataset_kinds.h"

namespace baton {
namespace {

constexpr std::int32_t kMostDrawnRequests = 10'000'000;

/// Requests in groups, each with a prompt of its own that its requests share.
struct SharedPromptGroups {
  std::int32_t n_groups = 0;
  std::int32_t shared_len = 0;
  std::int32_t own_len = 0;
  std::int32_t output_len = 0;
};

/// Request i belongs to group i % n_groups.
Result<std::vector<WorkloadRequest>> grouped_requests(const DatasetTokens& tokens, const SharedPromptGroups& groups,
                                                      std::int32_t n_requests) {
  BATON_TRY_VOID(check_workload_size(n_requests * (std::int64_t{groups.shared_len} + groups.own_len)));
  std::vector<WorkloadRequest> requests(static_cast<std::size_t>(n_requests));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::uint64_t group = i % static_cast<std::uint64_t>(groups.n_groups);
    WorkloadRequest& request = requests[i];
    tokens.append(request.prompt, DatasetStream::shared_prompt, group, groups.shared_len);
    tokens.append(request.prompt, DatasetStream::request, i, groups.own_len);
    request.output_len = groups.output_len;
    const bool is_alone = group + static_cast<std::uint64_t>(groups.n_groups) >= requests.size() && i == group;
    request.shared_len = is_alone ? 0 : groups.shared_len;
  }
  return requests;
}

std::vector<WorkloadRequest> in_random_order(const DatasetTokens& tokens, std::vector<WorkloadRequest> requests) {
  std::vector<WorkloadRequest> ordered;
  ordered.reserve(requests.size());
  for (const std::size_t index : tokens.order_of(requests.size())) ordered.push_back(std::move(requests[index]));
  return ordered;
}

std::int32_t low_of(std::int32_t length, double ratio) { return static_cast<std::int32_t>(std::floor(length * (1 - ratio))); }
std::int32_t high_of(std::int32_t length, double ratio) { return static_cast<std::int32_t>(std::ceil(length * (1 + ratio))); }

}  // namespace

Result<Workload> random_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  const std::int32_t input_len = options.input_len.value_or(options.random_input_len);
  const std::int32_t output_len = options.output_len.value_or(options.random_output_len);
  const double ratio = options.random_range_ratio;
  Workload workload;
  workload.name = fmt::format("random {} + {}", input_len, output_len);
  if (options.random_prefix_len > 0) workload.name += fmt::format(" after {}", options.random_prefix_len);
  if (ratio > 0) workload.name += fmt::format(", range ratio {}", ratio);
  const std::int64_t most_len = std::int64_t{options.random_prefix_len} + high_of(input_len, ratio);
  BATON_TRY_VOID(check_workload_size(options.num_prompts * most_len));
  for (std::int32_t i = 0; i < options.num_prompts; ++i) {
    WorkloadRequest& request = workload.requests.emplace_back();
    const auto number = static_cast<std::uint64_t>(i);
    const auto drawn = [&](std::int32_t length, DatasetStream stream) {
      return std::max(source.tokens.number_in(low_of(length, ratio), high_of(length, ratio), stream, number), 1);
    };
    source.tokens.append(request.prompt, DatasetStream::shared_prompt, 0, options.random_prefix_len);
    source.tokens.append(request.prompt, DatasetStream::request, number, drawn(input_len, DatasetStream::input_len));
    request.output_len = drawn(output_len, DatasetStream::output_len);
    request.shared_len = options.num_prompts > 1 ? options.random_prefix_len : 0;
  }
  return workload;
}

Result<Workload> prefix_repetition_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  const SharedPromptGroups groups{options.repetition_num_prefixes, options.repetition_prefix_len, options.repetition_suffix_len,
                                  options.output_len.value_or(options.repetition_output_len)};
  if (options.num_prompts < groups.n_groups)
    return fail(ErrorCode::invalid_request, fmt::format("--num-prompts {}: fewer than --prefix-repetition-num-prefixes {}",
                                                        options.num_prompts, groups.n_groups));
  Workload workload;
  workload.name = fmt::format("prefix_repetition {} + {} + {}, {} prefixes", groups.shared_len, groups.own_len,
                              groups.output_len, groups.n_groups);
  BATON_TRY(auto requests, grouped_requests(source.tokens, groups, options.num_prompts));
  workload.requests = in_random_order(source.tokens, std::move(requests));
  return workload;
}

Result<Workload> generated_shared_prefix_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  const SharedPromptGroups groups{options.gsp_num_groups, options.gsp_system_prompt_len, options.gsp_question_len,
                                  options.output_len.value_or(options.gsp_output_len)};
  if (groups.n_groups > kMostDrawnRequests / std::max(options.gsp_prompts_per_group, 1))
    return fail(ErrorCode::too_large, fmt::format("--gsp-num-groups {} x --gsp-prompts-per-group {}: more than {} requests",
                                                  groups.n_groups, options.gsp_prompts_per_group, kMostDrawnRequests));
  const std::int32_t n_requests = groups.n_groups * options.gsp_prompts_per_group;
  Workload workload;
  workload.name = fmt::format("generated-shared-prefix {} x {}, {} + {} + {}", groups.n_groups, options.gsp_prompts_per_group,
                              groups.shared_len, groups.own_len, groups.output_len);
  BATON_TRY(std::vector<WorkloadRequest> requests, grouped_requests(source.tokens, groups, n_requests));
  if (!options.gsp_ordered) {
    workload.requests = in_random_order(source.tokens, std::move(requests));
    return workload;
  }
  for (std::int32_t group = 0; group < groups.n_groups; ++group)
    for (std::int32_t i = group; i < n_requests; i += groups.n_groups)
      workload.requests.push_back(std::move(requests[static_cast<std::size_t>(i)]));
  return workload;
}

Result<Workload> multi_turn_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  const std::int32_t answer_len = options.output_len.value_or(options.answer_len);
  if (options.num_users > kMostDrawnRequests / std::max(options.num_turns, 1))
    return fail(ErrorCode::too_large, fmt::format("--num-users {} x --num-turns {}: more than {} requests", options.num_users,
                                                  options.num_turns, kMostDrawnRequests));
  Workload workload;
  workload.name = fmt::format("multi-turn {} users x {} turns, system {}, history {}, question {}, answer {}",
                              options.num_users, options.num_turns, options.shared_system_prompt, options.user_history_prompt,
                              options.question_len, answer_len);
  const std::int64_t first_len = std::int64_t{options.shared_system_prompt} + options.user_history_prompt;
  BATON_TRY_VOID(check_workload_size(options.num_users * (first_len + std::int64_t{options.num_turns} * options.question_len)));
  const auto n_users = static_cast<std::size_t>(options.num_users);
  for (std::int32_t turn = 0; turn < options.num_turns; ++turn) {
    for (std::size_t user = 0; user < n_users; ++user) {
      const std::size_t index = workload.requests.size();
      WorkloadRequest& request = workload.requests.emplace_back();
      std::int32_t own_len = options.question_len;
      if (turn == 0) {
        source.tokens.append(request.prompt, DatasetStream::shared_prompt, 0, options.shared_system_prompt);
        request.shared_len = n_users > 1 ? options.shared_system_prompt : 0;
        own_len += options.user_history_prompt;
      } else {
        request.follows = index - n_users;
      }
      source.tokens.append(request.prompt, DatasetStream::request, index, own_len);
      request.output_len = answer_len;
    }
  }
  return workload;
}

}  // namespace baton
