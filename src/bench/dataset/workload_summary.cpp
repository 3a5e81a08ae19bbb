/// Sums and quantiles of lengths.
#include "bench/dataset/workload_summary.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bench/report/statistics.h"

namespace baton {
namespace {

LengthSummary summarize_lengths(const std::vector<float>& lengths) {
  LengthSummary summary;
  for (const float length : lengths) summary.total += static_cast<std::int64_t>(length);
  if (lengths.empty()) return summary;
  summary.mean = static_cast<double>(summary.total) / static_cast<double>(lengths.size());
  summary.p50 = static_cast<std::int64_t>(quantile_of(lengths, 0.5));
  summary.p99 = static_cast<std::int64_t>(quantile_of(lengths, 0.99));
  summary.most = static_cast<std::int64_t>(*std::ranges::max_element(lengths));
  return summary;
}

json::Value to_json(const LengthSummary& lengths) {
  return {{"total", lengths.total}, {"mean", lengths.mean}, {"p50", lengths.p50}, {"p99", lengths.p99}, {"max", lengths.most}};
}

std::string to_string(const LengthSummary& lengths) {
  return fmt::format("mean {:.1f}, median {}, p99 {}, most {}", lengths.mean, lengths.p50, lengths.p99, lengths.most);
}

}  // namespace

WorkloadSummary summarize(const Workload& workload) {
  WorkloadSummary summary;
  summary.name = workload.name;
  summary.n_requests = static_cast<std::int64_t>(workload.requests.size());
  summary.n_dropped = workload.n_dropped;
  std::vector<float> prompt_lens, output_lens;
  std::int64_t shared = 0;
  for (const WorkloadRequest& request : workload.requests) {
    auto sent = static_cast<std::int64_t>(request.prompt.size());
    std::int64_t said_before = 0;
    if (request.follows) said_before = static_cast<std::int64_t>(prompt_lens[*request.follows] + output_lens[*request.follows]);
    sent += said_before;
    shared += request.follows ? said_before : request.shared_len;
    prompt_lens.push_back(static_cast<float>(sent));
    output_lens.push_back(static_cast<float>(request.output_len));
  }
  summary.prompt = summarize_lengths(prompt_lens);
  summary.output = summarize_lengths(output_lens);
  if (summary.prompt.total > 0) summary.shared_ratio = static_cast<double>(shared) / static_cast<double>(summary.prompt.total);
  if (workload.has_arrivals && !workload.requests.empty())
    summary.arrivals_s = workload.requests.back().arrival_s - workload.requests.front().arrival_s;
  return summary;
}

std::string to_string(const WorkloadSummary& summary) {
  std::string text =
      fmt::format("{}: {} requests; prompt tokens {}; output tokens {}; {:.1f}% of prompt tokens shared", summary.name,
                  summary.n_requests, to_string(summary.prompt), to_string(summary.output), 100 * summary.shared_ratio);
  if (summary.n_dropped > 0) text += fmt::format("; {} longer requests left out", summary.n_dropped);
  if (summary.arrivals_s > 0) text += fmt::format("; arrivals over {:.1f} s", summary.arrivals_s);
  return text;
}

json::Value to_json(const WorkloadSummary& summary) {
  return {{"name", summary.name},
          {"requests", summary.n_requests},
          {"left_out", summary.n_dropped},
          {"prompt_tokens", to_json(summary.prompt)},
          {"output_tokens", to_json(summary.output)},
          {"shared_ratio", summary.shared_ratio},
          {"arrivals_s", summary.arrivals_s}};
}

}  // namespace baton
