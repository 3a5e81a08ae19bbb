/// Results on standard output, and errors on a full disk (cli/output.h).
#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Redirects standard output to `path` during its lifetime.
class OutputTo {
 public:
  explicit OutputTo(const char* path) : before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_GE(file, 0);
    ::dup2(file, STDOUT_FILENO);
    ::close(file);
  }
  ~OutputTo() {
    std::fflush(stdout);
    std::clearerr(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST(Output, an_error_is_one_line_whatever_it_quotes) {
  testing::internal::CaptureStderr();
  print_error("baton info", {ErrorCode::invalid_data, "tensor 'a\nb\x1b[2J'"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "baton info: tensor 'a\\nb\\x1b[2J'\n");
}

TEST(Output, is_written_when_it_is_flushed) {
  testing::internal::CaptureStdout();
  print_output("{} of {}\n", 1, 2);
  write_output("last");
  EXPECT_TRUE(flush_output());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "1 of 2\nlast");
}

TEST(Output, reports_the_first_failed_write_once) {
  testing::internal::CaptureStderr();
  bool is_good = true;
  {
    const OutputTo full("/dev/full");
    write_output(std::string(100'000, 'x'));  // more than is buffered
    print_output("{}", "more");
    is_good = flush_output() || flush_output();
  }
  EXPECT_FALSE(is_good);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "baton: cannot write to standard output: No space left on device\n");
}

TEST(Output, a_standard_error_that_takes_nothing_ends_no_program) {
  const int before = ::dup(STDERR_FILENO);
  const int full = ::open("/dev/full", O_WRONLY);
  ::dup2(full, STDERR_FILENO);
  print_error("baton test", Error{ErrorCode::io, "this is not read"});
  print_note("{}", "nor this");
  ::close(STDERR_FILENO);
  print_note("{}", "nor this");
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(full);
  std::clearerr(stderr);
}

TEST(Output, reports_a_failed_write_of_what_was_buffered) {
  testing::internal::CaptureStderr();
  bool is_good = true;
  {
    const OutputTo full("/dev/full");
    write_output("few");
    is_good = flush_output();
  }
  EXPECT_FALSE(is_good);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "baton: cannot write to standard output: No space left on device\n");
}

}  // namespace
}  // namespace baton
