/// Loads a model's files and makes an engine on a device.
#pragma once

#include <memory>

#include "core/result.h"
#include "engine/engine.h"
#include "load/model_files.h"
#include "load/model_options.h"
#include "model/decoder.h"

namespace baton {

/// Opens the device, loads weights and makes the engine, with one log line about the model and the size of the cache.
/// The caller steps the engine, or starts its thread. Errors: those of the files; unsupported and unavailable, of the
/// device; invalid_request names a field of `options`; out_of_memory.
Result<std::unique_ptr<Engine>> load_engine(const ModelFiles& files, const ModelOptions& options);

/// The device that `options` names. Errors: unsupported and unavailable; invalid_request names a field.
Result<std::unique_ptr<Backend>> open_device(const ModelOptions& options);

/// As above, on a device that the caller has opened with open_device, and may have put another backend around. The time
/// that the log line tells is without the device's. `options` has one rank.
Result<std::unique_ptr<Engine>> load_engine(const ModelFiles& files, const ModelOptions& options,
                                            std::unique_ptr<Backend> backend);

/// The type of the matrices of recurrent states. Errors: invalid_request, with the flag, if the model has none.
Result<DType> state_dtype(const ModelOptions& options, const ModelSpec& spec);
/// What `options` and the checkpoint ask for, as far as the device has it. Errors: unsupported, with the flag.
Result<LoadDtypes> load_dtypes(const ModelOptions& options, const ModelSpec& spec, const Backend& backend);

/// A model on a device, without an engine.
struct LoadedModel {
  ModelSpec spec;
  std::unique_ptr<Model> model;
  LoadDtypes dtypes;
  std::size_t weight_bytes = 0;
};

/// Loads the weights of this rank. Rank 0 of several tells the others what its device decides. Errors: as above.
Result<LoadedModel> load_model(const ModelFiles& files, const ModelOptions& options, Backend& backend);

/// What loading spends its time on, in seconds.
struct LoadTimes {
  double device_s = 0;   ///< opening the device; 0 if the caller opened it
  double weights_s = 0;  ///< reading or drawing weights, and packing them for the device
  double engine_s = 0;   ///< allocating cache and workspace, capturing graphs
  double total_s() const { return device_s + weights_s + engine_s; }
};
struct TimedEngine {
  std::unique_ptr<Engine> engine;
  LoadTimes times;
};

/// The first load_engine, timed. The log line has the sum as `load_s`.
Result<TimedEngine> load_timed_engine(const ModelFiles& files, const ModelOptions& options);

}  // namespace baton
