/// Finds `baton-bench` and replaces this process by it.
#include "apps/bench_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "cli/output.h"

namespace baton {
namespace {

constexpr const char* kBenchProgram = "baton-bench";

}  // namespace

Result<std::string> find_bench_program() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return fail(ErrorCode::io, fmt::format("/proc/self/exe cannot be read: {}", error.message()));
  const std::filesystem::path file = own.parent_path() / kBenchProgram;
  if (!std::filesystem::exists(file, error))
    return fail(
        ErrorCode::not_found,
        fmt::format("benchmarks and demo are a program of their own, which is not installed: there is no {}", file.string()));
  return file.string();
}

std::optional<std::vector<std::string>> words_for_bench_program(const std::vector<std::string>& words) {
  const auto first = std::ranges::find_if(words, [](const std::string& word) { return !word.starts_with("-"); });
  if (first != words.end() && *first == "demo") return words;
  if (first == words.end() || *first != "bench") return std::nullopt;
  std::vector<std::string> others(words.begin(), first);
  others.insert(others.end(), first + 1, words.end());
  return others;
}

int become_bench_program(const std::vector<std::string>& words) {
  const auto file = find_bench_program();
  if (!file) {
    print_error("baton", file.error());
    return 1;
  }
  std::vector<char*> arguments = {const_cast<char*>(kBenchProgram)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(file->c_str(), arguments.data());
  print_error("baton", {ErrorCode::io, fmt::format("{} cannot be started: {}", *file, std::strerror(errno))});
  return 1;
}

}  // namespace baton
