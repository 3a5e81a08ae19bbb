/// The model that a benchmark runs: a checkpoint, or random weights in a shape of bench/shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "engine/engine.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "model/spec.h"

namespace baton {

struct BenchModel {
  ModelFiles files;
  ModelSpec spec;
  ModelOptions options;  ///< those given; weights are random if a shape was
};

/// `shape` replaces the model unless it is empty: a name of bench/shapes, or a folder with a config.json. Errors:
/// not_found (lists the shapes), those of the model's files and of its configuration.
Result<BenchModel> find_bench_model(const ModelOptions& options, const std::string& shape);

/// The options of the engine: those given, with room for contexts of `longest` tokens, at most as many as the model has
/// positions, unless they say how long contexts may be.
ModelOptions offline_model_options(const BenchModel& model, std::int64_t longest);

/// Loads the model and makes an engine with offline_model_options. Errors: those of load_engine.
Result<std::unique_ptr<Engine>> load_bench_engine(const BenchModel& model, std::int64_t longest);

/// The memory that a model needs at least, and the memory that there is.
struct MemoryNeed {
  std::int64_t needed_bytes = 0;     ///< weights, and keys and values of one context of the longest length
  std::int64_t available_bytes = 0;  ///< free on the device, or what --kv-cache-memory-bytes leaves for one context
  std::string device;
};

/// For an engine that could not be made for lack of memory. No engine may exist on the device. `max_len` is the length
/// of the longest context in tokens.
Result<MemoryNeed> memory_need(const BenchModel& model, std::int64_t max_len);

/// A model that did not fit into memory: a result of a benchmark, not its failure.
struct MemoryShortage {
  std::string error;
  MemoryNeed need;
};

/// The shortage after an error of load_bench_engine. Errors: every other one is returned.
Result<MemoryShortage> shortage_behind(const Error& error, const BenchModel& model, std::int64_t longest);

}  // namespace baton
