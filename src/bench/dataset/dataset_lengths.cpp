/// Datasets of lengths, whose tokens are drawn: ShareGPT_stat.csv, and the traces of Azure and Mooncake.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/dataset/dataset_kinds.h"
#include "load/trace.h"

namespace baton {
namespace {

constexpr std::int32_t kShortestShareGpt = 4;
constexpr std::int32_t kLongestShareGptPrompt = 1024;
constexpr std::int32_t kLongestShareGpt = 2048;

struct PairOfLengths {
  std::int32_t prompt_len = 0;
  std::int32_t output_len = 0;
};

/// "42,285"
std::optional<PairOfLengths> read_lengths(std::string_view line) {
  PairOfLengths lengths;
  const char* end = line.data() + line.size();
  const auto [comma, error] = std::from_chars(line.data(), end, lengths.prompt_len);
  if (error != std::errc() || comma == end || *comma != ',') return std::nullopt;
  const auto [rest, second_error] = std::from_chars(comma + 1, end, lengths.output_len);
  if (second_error != std::errc() || rest != end || lengths.prompt_len < 0 || lengths.output_len < 0) return std::nullopt;
  return lengths;
}

/// The tokens of a trace's request: each block's by its hash id, what has none by the request's number.
std::vector<TokenId> trace_prompt(const DatasetTokens& tokens, const Trace& trace, std::size_t index) {
  const TraceRequest& request = trace.requests[index];
  std::vector<TokenId> prompt;
  // A request without a prompt gets one token; engines refuse empty prompts.
  std::int32_t left = std::max(request.prompt_len, 1);
  for (const std::int64_t run : request.runs) {
    const std::int32_t count = std::min(left, trace.run_len);
    tokens.append(prompt, DatasetStream::trace_block, static_cast<std::uint64_t>(run), count);
    left -= count;
  }
  tokens.append(prompt, DatasetStream::request, index, left);
  return prompt;
}

}  // namespace

bool is_sharegpt_request(std::int64_t prompt_len, std::int64_t output_len, bool is_given_output) {
  return prompt_len >= kShortestShareGpt && (is_given_output || output_len >= kShortestShareGpt) &&
         prompt_len <= kLongestShareGptPrompt && prompt_len + output_len <= kLongestShareGpt;
}

Result<Workload> sharegpt_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  BATON_TRY(const MappedFile file, open_dataset_file(options, "ShareGPT_stat.csv (lengths) or the conversations' JSON (text)"));
  std::string_view table = text_of(file);
  if (const std::size_t first = table.find_first_not_of(" \t\r\n"); first != std::string_view::npos && table[first] == '[')
    return sharegpt_text_workload(source, table);
  std::vector<PairOfLengths> usable;
  for (std::int64_t number = 1; !table.empty(); ++number) {
    const std::size_t end = std::min(table.find('\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto lengths = read_lengths(line);
    if (!lengths) return bad_dataset_line(options, number, "not two lengths, as 42,285 (prompt,response)");
    lengths->output_len = options.output_len.value_or(lengths->output_len);
    if (is_sharegpt_request(lengths->prompt_len, lengths->output_len, options.output_len.has_value()))
      usable.push_back(*lengths);
  }
  std::vector<std::size_t> order = source.tokens.order_of(usable.size());
  if (options.num_prompts > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.num_prompts)));
  Workload workload;
  workload.name = "sharegpt, lengths with drawn tokens";
  for (const std::size_t index : order) {
    WorkloadRequest& request = workload.requests.emplace_back();
    source.tokens.append(request.prompt, DatasetStream::request, workload.requests.size() - 1, usable[index].prompt_len);
    request.output_len = usable[index].output_len;
  }
  return workload;
}

Result<Workload> trace_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  BATON_TRY(const MappedFile file, open_dataset_file(options, "a trace: Azure's table of lengths or Mooncake's JSON lines"));
  BATON_TRY(Trace trace, parse_trace(text_of(file), options.path));
  if (options.num_prompts > 0 && trace.requests.size() > static_cast<std::size_t>(options.num_prompts))
    trace.requests.resize(static_cast<std::size_t>(options.num_prompts));
  std::int64_t n_tokens = 0;
  for (const TraceRequest& request : trace.requests) n_tokens += std::max(request.prompt_len, 1);
  BATON_TRY_VOID(check_workload_size(n_tokens));
  Workload workload;
  workload.name = options.name;
  if (options.speedup != 1) workload.name += fmt::format(", {} times as fast", options.speedup);
  workload.has_arrivals = true;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    WorkloadRequest& request = workload.requests.emplace_back();
    request.prompt = trace_prompt(source.tokens, trace, i);
    request.output_len = std::max(options.output_len.value_or(trace.requests[i].output_len), 1);
    request.arrival_s = trace.requests[i].arrival_s / options.speedup;
  }
  set_shared_lens(workload);
  return workload;
}

}  // namespace baton
