/// The choice of the maker, and what all datasets have in common: flags that are not read, the system prompt in front,
/// requests that are too long.
#include "bench/dataset/dataset.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/dataset/dataset_kinds.h"
#include "core/log.h"

namespace baton {
namespace {

constexpr std::int64_t kMostPromptTokens = 1 << 30;

using Maker = Result<Workload> (*)(const DatasetSource&);

Maker maker_of(std::string_view name) {
  if (name == "random") return random_workload;
  if (name == "sharegpt") return sharegpt_workload;
  if (name == "prefix_repetition") return prefix_repetition_workload;
  if (name == "generated-shared-prefix") return generated_shared_prefix_workload;
  if (name == "multi-turn") return multi_turn_workload;
  if (name == "mmlu") return mmlu_workload;
  if (name == "custom") return custom_workload;
  if (name == "azure" || name == "mooncake") return trace_workload;
  return nullptr;
}

/// The datasets that read a flag; flags that are not here are read by all.
struct FlagOfDatasets {
  std::string_view flag;
  std::initializer_list<std::string_view> datasets;
};

const std::initializer_list<FlagOfDatasets>& flags_of_datasets() {
  static const std::initializer_list<FlagOfDatasets> flags{
      {"--dataset-path", {"sharegpt", "mmlu", "azure", "mooncake", "custom"}},
      {"--num-prompts", {"random", "sharegpt", "prefix_repetition", "mmlu", "azure", "mooncake", "custom"}},
      {"--input-len", {"random"}},
      {"--output-len",
       {"random", "sharegpt", "prefix_repetition", "generated-shared-prefix", "multi-turn", "azure", "mooncake", "custom"}},
      {"--random-input-len", {"random"}},
      {"--random-output-len", {"random"}},
      {"--random-range-ratio", {"random"}},
      {"--random-prefix-len", {"random"}},
      {"--prefix-repetition-prefix-len", {"prefix_repetition"}},
      {"--prefix-repetition-suffix-len", {"prefix_repetition"}},
      {"--prefix-repetition-num-prefixes", {"prefix_repetition"}},
      {"--prefix-repetition-output-len", {"prefix_repetition"}},
      {"--gsp-num-groups", {"generated-shared-prefix"}},
      {"--gsp-prompts-per-group", {"generated-shared-prefix"}},
      {"--gsp-system-prompt-len", {"generated-shared-prefix"}},
      {"--gsp-question-len", {"generated-shared-prefix"}},
      {"--gsp-output-len", {"generated-shared-prefix"}},
      {"--gsp-ordered", {"generated-shared-prefix"}},
      {"--num-users", {"multi-turn"}},
      {"--num-turns", {"multi-turn"}},
      {"--shared-system-prompt", {"multi-turn"}},
      {"--user-history-prompt", {"multi-turn"}},
      {"--question-len", {"multi-turn"}},
      {"--answer-len", {"multi-turn"}},
      {"--num-shots", {"mmlu"}},
      {"--mmlu-prompt", {"mmlu"}},
      {"--subjects", {"mmlu"}},
      {"--speedup", {"azure", "mooncake", "custom"}},
  };
  return flags;
}

Result<void> refuse_unread_flags(const DatasetOptions& options) {
  for (const FlagOfDatasets& row : flags_of_datasets())
    if (options.given.contains(row.flag) && std::ranges::find(row.datasets, options.name) == row.datasets.end())
      return fail(ErrorCode::invalid_request, fmt::format("{} is not read by the dataset {}, but by {}", row.flag, options.name,
                                                          fmt::join(row.datasets, ", ")));
  return {};
}

/// Puts one prompt of prefix_len tokens in front of every request but later turns. A beginning-of-text token stays
/// first.
Result<void> add_system_prompt(Workload& workload, const DatasetSource& source) {
  const std::int32_t prefix_len = source.options.prefix_len;
  if (prefix_len == 0) return {};
  const auto n_requests = static_cast<std::int64_t>(workload.requests.size());
  BATON_TRY_VOID(check_workload_size(workload.prompt_tokens() + n_requests * prefix_len));
  std::vector<TokenId> prefix;
  source.tokens.append(prefix, DatasetStream::system_prompt, 0, prefix_len);
  const std::optional<TokenId> bos = source.context.tokenizer == nullptr ? std::nullopt : source.context.tokenizer->bos();
  for (WorkloadRequest& request : workload.requests) {
    if (request.follows) continue;
    const std::int32_t n_before = bos && !request.prompt.empty() && request.prompt.front() == *bos ? 1 : 0;
    request.prompt.insert(request.prompt.begin() + n_before, prefix.begin(), prefix.end());
    if (workload.requests.size() > 1) request.shared_len = std::max(request.shared_len, n_before) + prefix_len;
  }
  workload.name += fmt::format(", behind a system prompt of {}", prefix_len);
  return {};
}

/// Leaves out requests that are longer than `max_len`, and the turns that follow them.
void drop_long_requests(Workload& workload, std::int32_t max_len) {
  if (max_len == 0) return;
  constexpr std::size_t kDropped = static_cast<std::size_t>(-1);
  std::vector<std::size_t> new_index(workload.requests.size(), kDropped);
  std::vector<std::int64_t> total_len(workload.requests.size());
  std::vector<WorkloadRequest> kept;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    WorkloadRequest& request = workload.requests[i];
    total_len[i] = static_cast<std::int64_t>(request.prompt.size()) + request.output_len;
    if (request.follows) total_len[i] += total_len[*request.follows];
    if (total_len[i] > max_len || (request.follows && new_index[*request.follows] == kDropped)) continue;
    if (request.follows) request.follows = new_index[*request.follows];
    new_index[i] = kept.size();
    kept.push_back(std::move(request));
  }
  workload.n_dropped = static_cast<std::int32_t>(workload.requests.size() - kept.size());
  workload.requests = std::move(kept);
  if (workload.n_dropped > 0)
    log::warning("dataset=\"{}\" requests={} left_out={} reason=\"longer than {} tokens\"", workload.name,
                 workload.requests.size(), workload.n_dropped, max_len);
}

}  // namespace

Result<Workload> make_workload(const DatasetOptions& options, const DatasetContext& context) {
  const Maker maker = maker_of(options.name);
  if (maker == nullptr)
    return fail(ErrorCode::invalid_request,
                fmt::format("--dataset-name {}: not one of {}", options.name, fmt::join(kDatasetNames, ", ")));
  BATON_TRY_VOID(refuse_unread_flags(options));
  BATON_TRY(const DatasetTokens tokens, DatasetTokens::make(context, options.seed));
  const DatasetSource source{options, context, tokens};
  BATON_TRY(Workload workload, maker(source));
  if (workload.requests.empty())
    return fail(ErrorCode::invalid_request, fmt::format("the dataset {} has no requests", workload.name));
  BATON_TRY_VOID(add_system_prompt(workload, source));
  for (const WorkloadRequest& request : workload.requests)
    if (request.prompt.empty() || request.output_len < 1)
      return fail(ErrorCode::invalid_request,
                  fmt::format("the dataset {} has a request without prompt tokens or without output", workload.name));
  drop_long_requests(workload, context.max_model_len);
  if (workload.requests.empty())
    return fail(ErrorCode::too_large, fmt::format("all {} requests of {} are longer than {} tokens, the model's limit",
                                                  workload.n_dropped, workload.name, context.max_model_len));
  return workload;
}

Result<void> check_workload_size(std::int64_t n_prompt_tokens) {
  if (n_prompt_tokens <= kMostPromptTokens) return {};
  return fail(ErrorCode::too_large,
              fmt::format("the requests have {} prompt tokens; at most {} are made", n_prompt_tokens, kMostPromptTokens));
}

Result<MappedFile> open_dataset_file(const DatasetOptions& options, std::string_view needed) {
  if (options.path.empty())
    return fail(ErrorCode::invalid_request, fmt::format("the dataset {} needs --dataset-path: {}", options.name, needed));
  BATON_TRY(MappedFile file, MappedFile::open(options.path));
  const std::string_view text = text_of(file);
  if (text.starts_with("\x28\xb5\x2f\xfd") || text.starts_with("\x1f\x8b"))
    return fail(ErrorCode::invalid_data, fmt::format("{} is compressed: unpack it first", options.path));
  return file;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

tl::unexpected<Error> bad_dataset_line(const DatasetOptions& options, std::int64_t line, std::string_view reason) {
  return fail(ErrorCode::invalid_data, fmt::format("{}, line {}: {}", options.path, line, reason));
}

tl::unexpected<Error> needs_tokenizer(const DatasetOptions& options) {
  return fail(ErrorCode::invalid_request,
              fmt::format("the dataset {} has text, and there is no tokenizer: --tokenizer names a folder or a tokenizer.json",
                          options.name));
}

void set_shared_lens(Workload& workload) {
  std::vector<WorkloadRequest>& requests = workload.requests;
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return requests[a].prompt < requests[b].prompt; });
  for (WorkloadRequest& request : requests) request.shared_len = 0;
  // In lexicographic order a neighbour has the longest common beginning.
  for (std::size_t i = 1; i < order.size(); ++i) {
    WorkloadRequest& a = requests[order[i - 1]];
    WorkloadRequest& b = requests[order[i]];
    const auto end = std::ranges::mismatch(a.prompt, b.prompt).in1;
    const auto common = static_cast<std::int32_t>(end - a.prompt.begin());
    a.shared_len = std::max(a.shared_len, common);
    b.shared_len = std::max(b.shared_len, common);
  }
}

}  // namespace baton
