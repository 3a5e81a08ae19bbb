/// Parsing of trace files, and of the JSON of `baton bench steps`.
#include "load/trace.h"

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
  EXPECT_NE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,2,3\n", "x").error().message.find("not a time"),
            std::string::npos);
  EXPECT_FALSE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,99999999999\n", "x"));
  for (const char* time : {"nan", "inf", "-inf", "2023-11-16 18:15:nan", "2023-11-16 18:15:1e308"})
    EXPECT_NE(parse_trace("TIMESTAMP,ContextTokens,GeneratedTokens\n" + std::string(time) + ",2,3\n", "x")
                  .error()
                  .message.find("not a time"),
              std::string::npos)
        << time;
  EXPECT_FALSE(parse_trace("{\"timestamp\": 1e300, \"input_length\": 6, \"output_length\": 5}", "x"));
  EXPECT_NE(parse_trace("\n", "x").error().message.find("no requests"), std::string::npos);
}

TEST(StepCosts, are_the_medians_of_a_benchmark) {
  const auto table = parse_step_costs(
      R"({"model": "m", "steps": [
           {"decodes": 1, "prompt_tokens": 0, "seconds": [0.001, 0.002, 0.009], "median_seconds": 0.002},
           {"decodes": 1, "prompt_tokens": 8, "median_seconds": 0.003},
           {"decodes": 3, "prompt_tokens": 0, "median_seconds": 0.004},
           {"decodes": 3, "prompt_tokens": 8, "median_seconds": 0.005}]})",
      "f");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_DOUBLE_EQ(table->seconds(2, 0), 0.003);
  EXPECT_DOUBLE_EQ(table->seconds(3, 8), 0.005);
}

TEST(StepCosts, of_other_files_are_refused_by_name) {
  const auto message = [](const std::string& text) { return parse_step_costs(text, "f").error().message; };
  EXPECT_EQ(message("{}"), "f: 'steps' must be a list, as baton bench steps writes it");
  EXPECT_EQ(message(R"({"steps": []})"),
            "f: times are needed for at least two numbers of decodes, and for 0 and another number of prompt tokens");
  EXPECT_EQ(message(R"({"steps": [{"decodes": -1, "prompt_tokens": 0, "median_seconds": 1}]})"),
            "f: steps[0]: a step of -1 decodes and 0 prompt tokens; both are from 0 to 1048576");
  const std::string good = R"({"decodes": 1, "prompt_tokens": 0, "median_seconds": 1})";
  EXPECT_EQ(message("{\"steps\": [" + good + R"(, {"decodes": 2, "prompt_tokens": 0, "median_seconds": -0.5}]})"),
            "f: steps[1]: a step of 2 decodes and 0 prompt tokens cannot take -0.5 s");
  EXPECT_EQ(message("{\"steps\": [" + good + ", " + good + "]}"),
            "f: steps[1]: a step of 1 decodes and 0 prompt tokens is steps[0] already");
  EXPECT_TRUE(message("{\"steps\": [" + good + R"(, {"decodes": 1.5, "prompt_tokens": 0, "median_seconds": 1}]})")
                  .starts_with("f: steps[1]: 'decodes' "));
  EXPECT_NE(message(R"({"steps": [{"decodes": 1, "prompt_tokens": 0}]})").find("median_seconds"), std::string::npos);
  EXPECT_EQ(message("no JSON").substr(0, 3), "f: ");
}

}  // namespace
}  // namespace baton
