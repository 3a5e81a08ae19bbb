/// Lines in, lines out, in order (apps/json_lines.h).
#include "apps/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/file.h"

namespace baton {
namespace {

/// The square of a number, as text; other lines are refused.
Result<std::string> square(const json::Value& line) {
  if (!line.is_number_integer()) return fail(ErrorCode::invalid_request, "not a number");
  return json::dump(line.get<int>() * line.get<int>());
}

struct Converted {
  std::string out;
  std::string error;
};

Converted convert(const std::string& text, int n_threads) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "baton_json_lines_test";
  EXPECT_TRUE(write_file(file, text));
  const int input = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  testing::internal::CaptureStdout();
  const auto done = convert_json_lines(input, n_threads, square);
  ::close(input);
  return {testing::internal::GetCapturedStdout(), done ? "" : done.error().message};
}

TEST(JsonLines, the_order_of_many_lines_is_kept) {
  std::string text, expected;
  for (int i = 0; i < 200'000; ++i) {  // longer than one read, so that lines are cut between reads
    text += fmt::format("{}\n", i % 40000);
    expected += fmt::format("{}\n", i % 40000 * (i % 40000));
  }
  for (const int n_threads : {1, 3}) {
    const Converted converted = convert(text, n_threads);
    EXPECT_EQ(converted.error, "");
    EXPECT_TRUE(converted.out == expected);
  }
}

TEST(JsonLines, the_last_line_needs_no_line_feed_and_blank_lines_count_but_are_skipped) {
  EXPECT_EQ(convert("", 1).out, "");
  EXPECT_EQ(convert("3", 1).out, "9\n");
  EXPECT_EQ(convert("\n 3 \r\n\t\n4", 1).out, "9\n16\n");
  EXPECT_EQ(convert("\n 3 \r\n\t\n\"x\"\n5\n", 1).error, "line 4: not a number");
}

TEST(JsonLines, a_bad_line_is_named_after_the_lines_before_it) {
  const Converted refused = convert("1\n2\n\"x\"\n4\n", 2);
  EXPECT_EQ(refused.out, "1\n4\n");
  EXPECT_EQ(refused.error, "line 3: not a number");
  const Converted broken = convert("1\n{\"a\n", 1);
  EXPECT_EQ(broken.out, "1\n");
  EXPECT_TRUE(broken.error.starts_with("line 2: it is not valid JSON: ")) << broken.error;
}

TEST(JsonLines, a_pipe_gets_its_answers_before_it_ends) {
  std::array<int, 2> to = {}, from = {};
  ASSERT_EQ(::pipe(to.data()), 0);
  ASSERT_EQ(::pipe(from.data()), 0);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(from[1], STDOUT_FILENO);
  ASSERT_EQ(::write(to[1], "7\n8", 3), 3);
  const auto ask_again = [&](const json::Value& line) {
    // The first answer has been written when the next line is converted.
    if (line == 8) {
      std::array<char, 8> answer = {};
      EXPECT_EQ(::read(from[0], answer.data(), answer.size()), 3);
      EXPECT_STREQ(answer.data(), "49\n");
    }
    if (line == 7) {
      EXPECT_EQ(::write(to[1], "\n", 1), 1);
      ::close(to[1]);
    }
    return square(line);
  };
  const auto done = convert_json_lines(to[0], 1, ask_again);
  ::dup2(before, STDOUT_FILENO);
  for (const int file : {to[0], from[0], from[1], before}) ::close(file);
  EXPECT_TRUE(done) << done.error().message;
}

}  // namespace
}  // namespace baton
