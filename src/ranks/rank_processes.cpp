/// Starting, watching and ending child processes.
#include "ranks/rank_processes.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
/// The process that a rank belongs to.
constexpr const char* kParentVariable = "BATON_RANK_PARENT";
constexpr std::chrono::seconds kEndTimeout{3};
constexpr std::chrono::milliseconds kLookForExit{5};

struct SpawnActions {
  posix_spawn_file_actions_t actions;
  SpawnActions() {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions); }
};

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool waits_for_exit(int process, bool reaps) {
  siginfo_t info{};
  const int how = WEXITED | WNOHANG | (reaps ? 0 : WNOWAIT);
  return ::waitid(P_PID, static_cast<id_t>(process), &info, how) != 0 || info.si_pid != 0;
}

}  // namespace

RankProcesses::RankProcesses(const std::string& program) : program_(program.empty() ? kThisProgram : program) {}
RankProcesses::~RankProcesses() { wait_all(); }

void RankProcesses::wait_all() {
  const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
  for (const Child& child : processes_) {
    while (!waits_for_exit(child.process, true)) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(child.process, SIGKILL);
      std::this_thread::sleep_for(kLookForExit);
    }
  }
  processes_.clear();
}

Result<void> RankProcesses::start(int rank, const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& variables) {
  std::vector<std::string> words = {"baton"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> more = variables;
  more.push_back(fmt::format("{}={}", kParentVariable, ::getpid()));
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
  const std::vector<char*> added = pointers_to(more);
  environment.insert(environment.end(), added.begin(), added.end());
  SpawnActions spawn;
  pid_t process = 0;
  const int error =
      ::posix_spawn(&process, program_.c_str(), &spawn.actions, nullptr, pointers_to(words).data(), environment.data());
  if (error != 0)
    return fail(ErrorCode::unavailable, fmt::format("rank {} cannot be started: {}: {}", rank, program_, std::strerror(error)));
  processes_.push_back({rank, process});
  return {};
}

std::optional<std::string> RankProcesses::find_ended() const {
  for (const Child& child : processes_)
    if (const auto how = how_child_ended(child.process, 0))
      return fmt::format("rank {} (process {}){}", child.rank, child.process, *how);
  return std::nullopt;
}

void RankProcesses::kill_all() {
  for (const Child& child : processes_) ::kill(child.process, SIGKILL);
}

bool end_with_parent() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* const parent = std::getenv(kParentVariable);
  return parent == nullptr || std::to_string(::getppid()) == parent;
}

std::optional<std::string> how_child_ended(int process, int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0) return std::nullopt;
    if (info.si_pid != 0) {
      return info.si_code == CLD_EXITED
                 ? fmt::format(" has ended with exit code {}", info.si_status)
                 : fmt::format(" was killed by signal {} ({})", info.si_status, ::strsignal(info.si_status));
    }
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kLookForExit);
  }
}

}  // namespace baton
