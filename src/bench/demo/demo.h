/// `baton demo`: the whole of Baton in a minute, over HTTP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/options.h"

namespace baton {

struct DemoOptions {
  std::string device = ModelOptions{}.device;
  int threads = 0;
  std::int32_t n_questions = 64;
  bool skip_large = false;  ///< leaves out the first table, of the 110 M shape
  std::string json_file;
  std::shared_ptr<RankGroup> ranks;  ///< see ModelOptions
};

void add_demo_options(CLI::App& app, DemoOptions& options);

/// Shows what sharing saves a model of 110 M parameters. Then serves the demo model with its catalogue registered, and asks
/// questions at once, with relayed and with paged attention.
/// Exit code: 0; 1 if too few answers are exactly right (62 of 64 are needed), the two attentions differ in a token on
/// a CPU, or something failed.
int demo_main(const DemoOptions& options);

}  // namespace baton
