/// `baton pull` and `baton list`: models in the Hugging Face cache.
#pragma once

#include <string>

#include "cli/options.h"

namespace baton {

struct PullOptions {
  ModelOptions model;  ///< model, revision and download_dir
};
struct ListOptions {
  std::string download_dir;  ///< empty: the Hugging Face cache
  bool as_json = false;
};

void add_pull_options(CLI::App& app, PullOptions& options);
void add_list_options(CLI::App& app, ListOptions& options);

/// Downloads what the cache does not have of a model and prints the folder. Exit code: 0, 1 (failed) or 2 (no name).
int pull_main(const PullOptions& options);

/// Prints the models of the cache with revision, size, architecture and what is missing. Exit code: 0, 1 (failed).
int list_main(const ListOptions& options);

}  // namespace baton
