/// The backends that tests of operations run on: the CPU with each instruction set of this machine, and CUDA if
/// available.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace baton::testing {

/// Sets BATON_CPU_ISA for one scope and restores it.
class CpuIsaScope {
 public:
  explicit CpuIsaScope(const std::string& isa) {
    if (const char* before = std::getenv("BATON_CPU_ISA"); before != nullptr) before_ = before;
    set(isa);
  }
  ~CpuIsaScope() { set(before_); }
  CpuIsaScope(const CpuIsaScope&) = delete;
  CpuIsaScope& operator=(const CpuIsaScope&) = delete;

 private:
  static void set(const std::string& isa) {
    if (isa.empty()) {
      unsetenv("BATON_CPU_ISA");
    } else {
      setenv("BATON_CPU_ISA", isa.c_str(), 1);
    }
  }
  std::string before_;
};

/// One backend. It lives until the program ends.
struct TestBackend {
  std::string name;  ///< "cpu avx2", "cuda"
  std::string device;
  std::string isa;  ///< of a CPU
  Backend& backend;

  bool is_cuda() const { return device == "cuda"; }
  /// Makes another backend of this kind with other options.
  Result<std::unique_ptr<Backend>> make(const BackendOptions& options) const {
    if (isa.empty()) return make_backend(device, options);
    const CpuIsaScope scope(isa);
    return make_backend(device, options);
  }
};

/// Prints one line, once per program: what a test leaves out, and why.
inline void say_once(const std::string& line) {
  static std::vector<std::string> said;
  for (const std::string& before : said)
    if (before == line) return;
  said.push_back(line);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// BATON_REQUIRE=cpu,cuda names devices that must be present; otherwise tests fail.
inline bool is_required(const std::string& device) {
  const char* required = std::getenv("BATON_REQUIRE");
  return required != nullptr && ("," + std::string(required) + ",").find("," + device + ",") != std::string::npos;
}

/// Logs once that a device is left out, and why. The test fails if BATON_REQUIRE names the device.
inline void leave_out(const std::string& device, const std::string& reason) {
  if (is_required(device)) ADD_FAILURE() << "BATON_REQUIRE names " << device << ", but " << reason;
  say_once(device + ": skipped: " + reason);
}

/// All available backends, made at the first call. The CPU with its best instruction set comes first, because oneDNN
/// keeps the set that it is first used with. A missing module or device is left out (leave_out). The test fails if
/// there is none.
inline const std::vector<TestBackend>& test_backends() {
  struct Owned {
    std::vector<std::unique_ptr<Backend>> backends;
    std::vector<TestBackend> tests;
    void add(std::string name, std::string device, std::string isa, std::unique_ptr<Backend> backend) {
      backends.push_back(std::move(backend));
      tests.push_back({std::move(name), std::move(device), std::move(isa), *backends.back()});
    }
  };
  static const Owned owned = [] {
    Owned made;
    BackendOptions options;
    options.n_threads = 2;
    std::string cpu_error;
    for (const std::string isa : {"amx_bf16", "avx512_bf16", "avx512", "avx2", "baseline"}) {
      const CpuIsaScope scope(isa);
      auto backend = make_backend("cpu", options);
      if (backend) {
        made.add("cpu " + isa, "cpu", isa, std::move(*backend));
      } else if (backend.error().code != ErrorCode::unsupported) {  // not every processor has every set
        cpu_error = backend.error().message;
      }
    }
    if (!cpu_error.empty()) leave_out("cpu", cpu_error);
    auto cuda = make_backend("cuda", options);
    if (cuda) {
      made.add("cuda", "cuda", "", std::move(*cuda));
    } else {
      leave_out("cuda", cuda.error().message);
    }
    return made;
  }();
  EXPECT_FALSE(owned.tests.empty()) << "there is no backend to test";
  return owned.tests;
}

}  // namespace baton::testing
