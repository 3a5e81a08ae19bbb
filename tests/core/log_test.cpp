#include "core/log.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// What `write_lines` writes to standard error at this `level`.
template <class WriteLines>
std::string logged_at(log::Level level, const WriteLines& write_lines) {
  log::set_level(level);
  testing::internal::CaptureStderr();
  write_lines();
  const std::string lines = testing::internal::GetCapturedStderr();
  log::set_level(log::Level::info);
  return lines;
}

TEST(Log, writes_one_line_with_time_and_level_to_standard_error) {
  const std::string line = logged_at(log::Level::info, [] { log::info("event=start port={}", 8000); });
  EXPECT_NE(line.find(" info event=start port=8000\n"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
}

TEST(Log, drops_lines_below_its_level) {
  const auto write_all = [] {
    log::debug("event=a");
    log::info("event=b");
    log::warning("event=c");
    log::error("event=d");
  };
  const std::string lines = logged_at(log::Level::warning, write_all);
  EXPECT_EQ(lines.find("event=a"), std::string::npos);
  EXPECT_EQ(lines.find("event=b"), std::string::npos);
  EXPECT_NE(lines.find("event=c"), std::string::npos);
  EXPECT_NE(lines.find("event=d"), std::string::npos);
  EXPECT_NE(logged_at(log::Level::debug, write_all).find("event=a"), std::string::npos);
}

TEST(Log, does_not_format_what_it_drops) {
  EXPECT_FALSE(log::is_enabled(log::Level::debug));
  EXPECT_TRUE(log::is_enabled(log::Level::error));
}

TEST(Log, a_background_writer_writes_every_line_before_it_ends) {
  const std::int64_t n_dropped = log::n_dropped();
  const std::string lines = logged_at(log::Level::info, [] {
    {
      const log::BackgroundWriter writer;
      for (int i = 0; i < 100; ++i) log::info("event=line number={}", i);
      log::print("a text as it is\n");
    }
    log::info("event=after");
  });
  std::size_t at = 0;
  for (int i = 0; i < 100; ++i) at = lines.find(" info event=line number=" + std::to_string(i) + "\n", at);
  at = lines.find("\na text as it is\n", at);
  EXPECT_NE(lines.find(" info event=after\n", at), std::string::npos) << lines;
  EXPECT_EQ(log::n_dropped(), n_dropped);
}

TEST(LogDeathTest, a_fatal_error_ends_the_program_after_its_line) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(log::fatal("event=no_way_on"), testing::ExitedWithCode(1), " error event=no_way_on");
  const auto in_background = [] {
    const log::BackgroundWriter writer;
    log::fatal("event=no_way_on");
  };
  EXPECT_EXIT(in_background(), testing::ExitedWithCode(1), " error event=no_way_on");
}

TEST(Log, knows_its_levels_by_name_and_says_so_of_others) {
  EXPECT_EQ(log::level_from_name("debug").value(), log::Level::debug);
  EXPECT_EQ(log::level_from_name("warn").value(), log::Level::warning);
  EXPECT_EQ(log::level_from_name("warning").value(), log::Level::warning);
  EXPECT_EQ(log::level_from_name("error").value(), log::Level::error);
  const auto wrong = log::level_from_name("loud");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("'loud'"), std::string::npos);
}

}  // namespace
}  // namespace baton
