/// Runs the body of a program with a text on standard input, and keeps what it writes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton::test {

struct ProgramEnd {
  int code = 0;
  std::string out;
  std::string error;
};

/// What `body`, a program that returns its exit code, writes when standard input holds `text`.
inline ProgramEnd run_program(const std::string& text, const std::function<int()>& body) {
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / fmt::format("baton_input_{}", ::getpid());
  std::FILE* const written = std::fopen(file.c_str(), "w");
  EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), written), text.size());
  std::fclose(written);
  const int before = ::dup(STDIN_FILENO);
  const int input = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ::dup2(input, STDIN_FILENO);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ProgramEnd end{body(), "", ""};
  end.out = ::testing::internal::GetCapturedStdout();
  end.error = ::testing::internal::GetCapturedStderr();
  ::dup2(before, STDIN_FILENO);
  for (const int one : {before, input}) ::close(one);
  std::filesystem::remove(file);
  return end;
}

}  // namespace baton::test
