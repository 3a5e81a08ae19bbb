/// `baton info`: what a model is and needs, without loading it.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"
#include "load/model_info.h"

namespace baton {

struct InfoOptions {
  ModelOptions model;             ///< model, revision, download_dir, device, kv_cache_dtype and gpu_memory_utilization
  std::int64_t memory_bytes = 0;  ///< 0: what is free on the device
  std::int32_t context_len = 0;   ///< tokens; 0: the model's longest, at most 8192
  SharedWorkload workload;
  bool as_json = false;
};

void add_info_options(CLI::App& app, InfoOptions& options);

/// Prints a table or one JSON object on standard output. Exit code: 0, 1 (failed).
int info_main(const InfoOptions& options);

}  // namespace baton
