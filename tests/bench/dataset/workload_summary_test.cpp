/// Summaries of workloads, counted by hand.
#include "bench/dataset/workload_summary.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WorkloadSummary, counts_what_is_sent_and_shared) {
  Workload workload;
  workload.name = "two turns";
  workload.requests.resize(3);
  workload.requests[0] = {.prompt = std::vector<TokenId>(10), .output_len = 4, .shared_len = 6};
  workload.requests[1] = {.prompt = std::vector<TokenId>(20), .output_len = 6, .shared_len = 6};
  workload.requests[2] = {.prompt = std::vector<TokenId>(5), .output_len = 2, .follows = 0};
  workload.n_dropped = 7;
  const WorkloadSummary summary = summarize(workload);
  EXPECT_EQ(summary.prompt.total, 10 + 20 + (10 + 4 + 5));
  EXPECT_EQ(summary.prompt.p50, 19);
  EXPECT_EQ(summary.prompt.most, 20);
  EXPECT_DOUBLE_EQ(summary.output.mean, 4);
  EXPECT_DOUBLE_EQ(summary.shared_ratio, (6.0 + 6 + 14) / 49);
  EXPECT_EQ(summary.arrivals_s, 0);
  EXPECT_EQ(
      to_string(summary),
      "two turns: 3 requests; prompt tokens mean 16.3, median 19, p99 19, most 20; output tokens mean 4.0, median 4, p99 4, "
      "most 6; 53.1% of prompt tokens shared; 7 longer requests left out");
  EXPECT_EQ(to_json(summary)["prompt_tokens"]["total"], 49);
  EXPECT_EQ(to_json(summary)["left_out"], 7);
}

TEST(WorkloadSummary, of_a_trace_has_its_time) {
  Workload workload;
  workload.has_arrivals = true;
  workload.requests.resize(2);
  workload.requests[1].arrival_s = 2.5;
  EXPECT_EQ(summarize(workload).arrivals_s, 2.5);
  EXPECT_NE(to_string(summarize(workload)).find("arrivals over 2.5 s"), std::string::npos);
  EXPECT_EQ(summarize({}).prompt.mean, 0);
}

}  // namespace
}  // namespace baton
