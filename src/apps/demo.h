/// `baton demo`: the whole of Baton in a minute, over HTTP.
#pragma once

#include <cstdint>
#include <string>

#include "apps/options.h"

namespace baton {

struct DemoOptions {
  std::string device = "cpu";  ///< or "cuda"
  int threads = 0;

  /// CUDA has no batch-invariant mode yet, so a token may differ there between relay and paged attention.
  bool batch_invariant() const { return device == "cpu"; }
  std::int32_t n_questions = 64;
  bool skip_large = false;  ///< leaves out the 110 M shape
  std::string json_file;
};

void add_demo_options(CLI::App& app, DemoOptions& options);

/// Serves the demo model with its catalogue registered, asks questions at once, with relayed and with paged attention. Exit
/// code: 0; 1 if too few answers are exactly right (62 of 64 are needed), the two attentions differ in a token on a CPU, or
/// something failed.
int demo_main(const DemoOptions& options);

}  // namespace baton
