/// The flags of the demo.
#include <CLI/CLI.hpp>

#include "bench/demo/demo.h"
#include "cli/flag_rows.h"
#include "cli/options.h"
#include "kernels/backend.h"

namespace baton {

void add_demo_options(CLI::App& app, DemoOptions& options) {
  app.add_option("--device", options.device, "cpu or cuda")
      ->check(CLI::IsMember(choices(kBackendNames)))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Threads of the CPU backend; 0: as many as affinity and quota allow")
      ->check(at_least_zero())
      ->capture_default_str();
  app.add_option("--questions", options.n_questions, "Questions asked at once, at most 256")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag("--skip-large", options.skip_large, "Without the first table, of the 110 M shape");
  app.add_option("--json", options.json_file, "File for the numbers");
}

}  // namespace baton
