/// Traces as files have them, and the real one of BATON_TEST_DATA replayed.
#include "apps/trace.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Trace, reads_json_lines_with_and_without_hashes) {
  const auto trace = parse_trace(
      "{\"timestamp\": 1500, \"input_length\": 600, \"output_length\": 52, \"hash_ids\": [46, 47]}\n\n"
      "{\"timestamp\": 500, \"input_length\": 7, \"output_length\": 0}\r\n",
      "t");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].prompt_len, 7);
  EXPECT_EQ(trace->requests[0].arrival_s, 0);
  EXPECT_TRUE(trace->requests[0].runs.empty());
  EXPECT_EQ(trace->requests[1].arrival_s, 1);
  EXPECT_EQ(trace->requests[1].output_len, 52);
  EXPECT_EQ(trace->requests[1].runs, (std::vector<std::int64_t>{46, 47}));
}

TEST(Trace, reads_tables_by_the_names_of_their_columns) {
  const auto trace = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-30 23:59:59.5,374,44\n2023-12-01 00:00:01.2500000,396,109\n", "t");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_DOUBLE_EQ(trace->requests[1].arrival_s, 1.75);
  EXPECT_EQ(trace->requests[1].prompt_len, 396);
  const auto seconds = parse_trace("GeneratedTokens,TIMESTAMP,ContextTokens\n1,2.5,3\n", "t");
  ASSERT_TRUE(seconds);
  EXPECT_EQ(seconds->requests[0].output_len, 1);
}

TEST(Trace, names_the_line_at_fault) {
  const std::string good = "{\"timestamp\": 0, \"input_length\": 6, \"output_length\": 5}\n";
  EXPECT_EQ(parse_trace(good + "{\"timestamp\": 0, \"output_length\": 5}\n", "x").error().message,
            "x, line 2: 'input_length' is missing");
  EXPECT_NE(
      parse_trace(good + "{\"timestamp\": 0, \"input_length\": -1, \"output_length\": 5}", "x").error().message.find("line 2"),
      std::string::npos);
  EXPECT_NE(parse_trace(good + "{oops", "x").error().message.find("line 2"), std::string::npos);
  EXPECT_NE(parse_trace("a,b\n", "x").error().message.find("TIMESTAMP"), std::string::npos);
  EXPECT_NE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "x").error().message.find("line 2"),
            std::string::npos);
  EXPECT_NE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,2,3\n", "x").error().message.find("no time"),
            std::string::npos);
  EXPECT_FALSE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,99999999999\n", "x"));
  EXPECT_NE(parse_trace("\n", "x").error().message.find("no requests"), std::string::npos);
}

/// The text of a .zst file; empty where there is no such file or no program zstd.
std::string decompressed(const std::string& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("zstd -dqc '" + file + "' 2>/dev/null").c_str(), "r"), ::pclose);
  std::string text;
  char buffer[65536];
  for (std::size_t n = 0; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) text.append(buffer, n);
  return text;
}

TEST(Trace, of_mooncakes_conversations_reaches_its_ideal_and_at_a_tenth_of_the_size_beats_least_recently_used) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set: the real trace is not replayed";
  const std::string text = decompressed(std::string(data) + "/traces-mooncake/conversation_trace.jsonl.zst");
  if (text.empty()) GTEST_SKIP() << "the trace, or the program zstd, is not there";
  const auto trace = parse_trace(text, "conversation_trace");
  ASSERT_TRUE(trace) << trace.error().message;
  ReplayOptions options;
  options.block_len = 512;
  options.n_blocks = static_cast<std::int32_t>(blocks_for_all(*trace, 512));
  const ReplayReport ideal = replay(*trace, options);
  EXPECT_EQ(ideal.n_requests, 12031);
  EXPECT_EQ(ideal.runs, 288500);
  EXPECT_NEAR(ideal.share_of_runs(), 0.366, 0.0005);
  options.n_blocks = static_cast<std::int32_t>((ideal.runs - ideal.cached_runs) / 10);  // of the distinct ones
  const ReplayReport reuse = replay(*trace, options);
  options.life_of_reuse = 0;
  const ReplayReport lru = replay(*trace, options);
  EXPECT_GT(reuse.share_of_runs(), lru.share_of_runs() + 0.005);
}

}  // namespace
}  // namespace baton
