/// Switches on the layer of a checkpoint that drafts tokens (multi-token prediction).
#pragma once

#include "core/result.h"
#include "io/safetensors.h"
#include "model/spec.h"

namespace baton {

/// Has the model load and run its layer for drafts (ModelSpec::uses_mtp). `checkpoint` is null with random weights; otherwise `spec`
/// is fitted to it. Errors (unsupported; param speculative_config): the config describes no such layer, or one that Baton does not
/// compute; the checkpoint lacks its tensors, whatever the config says.
Result<void> use_mtp(ModelSpec& spec, const Checkpoint* checkpoint);

}  // namespace baton
