/// The report of the prefix cache benchmark: its rows, and which cases it names.
#include <string>

#include <gtest/gtest.h>

#include "bench/prefix_cache/prefix_cache_bench.h"

namespace baton {
namespace {

PrefixCaseResult made_up(const std::string& kind, std::int32_t n_unjudged, std::int32_t again) {
  return {.of = {.kind = kind, .shared_len = 480, .own_len = 40, .answer_len = 1, .n_requests = 2, .n_unjudged = n_unjudged},
          .requests = {{.prompt_len = 520, .shared_len = 480, .again_in_kv = 16, .again = 480},
                       {.prompt_len = 520, .shared_len = 480, .again_in_kv = 16, .again = again}}};
}

TEST(PrefixCacheReport, judges_requests_that_can_know_what_they_share) {
  const PrefixCacheBenchOptions options;
  PrefixCacheReport report;
  report.cases = {made_up("identical", 1, 80), made_up("turns", 1, 81), made_up("shared", 2, 480),
                  made_up("registered", 0, 80)};
  report.cases[1].n_rows_untold = 3;
  report.failed = {{{.kind = "registered", .shared_len = 100, .own_len = 40}, "no room"}};
  report.left_out = {{.kind = "forks", .shared_len = 7000, .own_len = 40}};
  const std::string text = prefix_cache_text(report, options, "the command");
  EXPECT_TRUE(text.starts_with("the command\nbaton ")) << text;
  for (const char* part :
       {"| identical | 480 | 40 | 2 | 520 | 480 | 16 | 80 | 64 | 76.9% | 0.00 |", "Kept in 2 of 4 cases.\n",
        "Missed: turns 480 + 40, by 65 tokens more.\nMissed: registered 480 + 40, by 464 tokens more.\n",
        "turns 480 + 40: the steps had 3 rows that no request tells of.\n", "Failed: registered 100 + 40: no room\n",
        "Left out, longer than the model's contexts: forks 7000 + 40.\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const json::Value written = prefix_cache_json(report, options, "the command");
  EXPECT_EQ(written["goal"], 64);
  EXPECT_EQ(written["cases"][0]["keeps_goal"], true);
  EXPECT_EQ(written["cases"][1]["keeps_goal"], false);
  EXPECT_EQ(written["cases"][1]["requests"][1]["more"], 65);
  EXPECT_EQ(written["cases"][3]["most_more"], 464);
  EXPECT_EQ(written["failed"][0]["shared"], 100);
  EXPECT_EQ(written["failed"][0]["error"], "no room");
  EXPECT_EQ(written["left_out"][0]["case"], "forks");
}

TEST(PrefixCacheReport, names_states_and_interval_of_a_model_that_has_some) {
  const PrefixCacheBenchOptions options;
  PrefixCacheReport report;
  const std::string without = prefix_cache_text(report, options, "the command");
  EXPECT_EQ(without.find("states,"), std::string::npos) << without;
  EXPECT_TRUE(prefix_cache_json(report, options, "the command")["state_cache_dtype"].is_null());
  report.engine.state_slot_bytes = 1 << 20;
  report.engine.state_dtype = DType::bf16;
  report.engine.max_num_seqs = 4;
  report.engine.n_state_slots = 5;
  const auto text = [&] { return prefix_cache_text(report, options, "the command"); };
  EXPECT_NE(text().find("; bfloat16 states, room for 1 snapshot, no snapshots at an interval; turns"), std::string::npos)
      << text();
  report.engine.n_state_slots = 16;
  report.engine.state_snapshot_interval = 2048;
  EXPECT_NE(text().find("room for 12 snapshots, snapshots also at every 2048 tokens; turns"), std::string::npos) << text();
  const json::Value written = prefix_cache_json(report, options, "the command");
  EXPECT_EQ(written["state_cache_dtype"], "bfloat16");
  EXPECT_EQ(written["state_snapshot_interval"], 2048);
  EXPECT_EQ(written["snapshots"], 12);
}

}  // namespace
}  // namespace baton
