/// Looks for the tensors of the layer that drafts tokens.
#include "model/source/mtp.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "model/source/stored_layout.h"

namespace baton {
namespace {

tl::unexpected<Error> refuse(const ModelSpec& spec, std::string_view reason) {
  return fail(ErrorCode::unsupported, fmt::format("--speculative-config: method 'mtp': {} {}", spec.family, reason),
              "speculative_config");
}

}  // namespace

Result<void> use_mtp(ModelSpec& spec, const Checkpoint* checkpoint) {
  if (!spec.mtp)
    return refuse(
        spec,
        "has no layer for multi-token prediction that Baton computes: its config counts none (mtp_num_hidden_layers or "
        "num_nextn_predict_layers is 0), the layer has an embedding of its own (mtp_use_dedicated_embeddings), or the "
        "architecture has none");
  const MtpSpec& mtp = *spec.mtp;
  TensorNames names = spec.names;
  if (!mtp.root.empty()) names.root = mtp.root;
  const std::string projection = checkpoint_name(names, mtp.projection, mtp.number) + ".weight";
  if (checkpoint != nullptr && !has_matrix(*checkpoint, projection))
    return refuse(spec, fmt::format("has multi-token prediction, but the checkpoint lacks its tensors ('{}')", projection));
  spec.uses_mtp = true;
  return {};
}

}  // namespace baton
