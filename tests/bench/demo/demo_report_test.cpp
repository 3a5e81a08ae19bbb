/// The tables of `baton demo` (bench/demo/demo_report.h).
#include "bench/demo/demo_report.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

DecodeRun run(std::string arm, std::vector<double> tokens_per_s, std::int64_t read, std::int64_t saved) {
  return {.arm = std::move(arm),
          .n_requests = 32,
          .tokens_per_s = std::move(tokens_per_s),
          .kv_bytes_requested = read,
          .kv_bytes_saved = saved};
}

DemoArm arm(std::string attention, double seconds, std::int64_t read, std::int64_t saved) {
  DemoArm made;
  made.attention = std::move(attention);
  made.answers.resize(64);
  made.n_right = 63;
  made.n_tokens = 1280;
  made.seconds = seconds;
  made.median_first_token_s = 0.2064;
  made.kv_bytes_requested = read;
  made.kv_bytes_saved = saved;
  made.prefix_tokens = 1993;
  return made;
}

TEST(DemoReport, begins_with_what_sharing_saves) {
  const std::vector<DecodeRun> runs{run("relay", {1000, 1100}, 3'000'000'000, 72'600'000'000),
                                    run("paged", {500, 550}, 75'600'000'000, 0)};
  const std::string text = sharing_text(runs, 2048);
  EXPECT_NE(text.find("  relay                 1050                    3.0 GB           72.6 GB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  paged                  525                   75.6 GB            0.0 GB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("the prompt's 2048 tokens once for all 32 requests"), std::string::npos) << text;
  EXPECT_NE(text.find("Relay read 25 times less, and wrote 2.00 times as many tokens a second.\n"), std::string::npos) << text;
}

TEST(DemoReport, says_the_ratio_where_relay_is_not_ahead) {
  const std::vector<DecodeRun> runs{run("relay", {900}, 10, 90), run("paged", {1000}, 100, 0)};
  EXPECT_NE(sharing_text(runs, 128).find("0.90 times as many"), std::string::npos);
  const std::vector<DecodeRun> nothing_read{run("relay", {900}, 0, 0), run("paged", {1000}, 0, 0)};
  EXPECT_NE(sharing_text(nothing_read, 128).find("Relay wrote 0.90 times as many"), std::string::npos);
  EXPECT_DEATH(sharing_text(std::vector<DecodeRun>{runs[1], runs[0]}, 128), "compares relay with paged");
}

TEST(DemoReport, of_the_answers_tells_first_that_they_are_right_and_what_was_read) {
  const std::string text = answers_text(arm("relay", 0.4, 1'579'000'000, 7'289'000'000), arm("paged", 0.5, 8'996'000'000, 0),
                                        /*is_large_known=*/true);
  EXPECT_NE(text.find("64 questions at once behind one catalogue of 1993 tokens"), std::string::npos) << text;
  const auto at = [&](std::string_view words) { return text.find(words); };
  EXPECT_LT(at("exactly right                           63 of 64      63 of 64"), at("keys and values read")) << text;
  EXPECT_LT(at("keys and values read                     1579 MB       8996 MB"), at("reading saved")) << text;
  EXPECT_LT(at("reading saved                            7289 MB          0 MB"), at("time to first token")) << text;
  EXPECT_LT(at("time to first token, median               206 ms        206 ms"), at("tokens a second")) << text;
  EXPECT_LT(at("tokens a second                             3200          2560"), at("These times say little")) << text;
  EXPECT_NE(at("The first table"), std::string::npos);
  EXPECT_EQ(answers_text(arm("relay", 1, 1, 1), arm("paged", 1, 1, 1), /*is_large_known=*/false).find("The first table"),
            std::string::npos);
}

}  // namespace
}  // namespace baton
