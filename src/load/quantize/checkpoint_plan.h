/// What `baton quantize` writes: which tensors of a checkpoint are rounded, which are copied, and the configuration that says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "load/quantize/shard_writer.h"
#include "model/source/rounding.h"
#include "model/source/source.h"
#include "model/spec.h"

namespace baton {

/// What becomes of a tensor of the checkpoint.
struct TensorJob {
  std::string source;
  bool is_rounded = false;
  bool is_of_model = false;           ///< of a copy: the model computes with it
  ExpectedTensor matrix;              ///< of a rounded one
  MatrixForm form;                    ///< of a rounded one
  std::string stem;                   ///< of a rounded one: its module's name
  std::vector<TensorHeader> written;  ///< the copy; or values, scales and, of int4, the shape
};

/// One file, with tensors in the order in which the checkpoint has them.
struct ShardPlan {
  std::string file;
  std::vector<TensorJob> jobs;
};

struct CheckpointPlan {
  std::vector<ShardPlan> shards;
  std::vector<std::string> ignored;                             ///< linear layers that stay as they are
  std::map<std::int64_t, std::vector<std::string>> modules_by;  ///< the rounded ones, by the columns of a scale; 0: the row
  bool unties_lm_head = false;                                  ///< a tied output layer gets tensors of its own
  bool has_own_lm_head = false;                                 ///< the output layer has tensors of its own
  std::int64_t size_bytes = 0;                                  ///< of the shards
};

/// Plans the files of the checkpoint in `folder`. `spec` is fitted to it. Errors: those of an index that cannot be read;
/// unsupported: experts that share tensors.
Result<CheckpointPlan> plan_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint, const ModelSpec& spec,
                                       const WeightRounding& rounding);

/// The checkpoint's config.json with `quantization_config` in the form of compressed-tensors.
json::Value quantized_config(json::Value config, const CheckpointPlan& plan, const WeightRounding& rounding);

}  // namespace baton
