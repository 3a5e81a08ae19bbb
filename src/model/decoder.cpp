/// Loops over the layers: embedding, layers, final norm, logits.
#include "model/decoder.h"

#include <algorithm>
#include <utility>

#include "model/layer.h"
#include "model/weights.h"

namespace baton {
namespace {

/// As KvShape has it.
std::int32_t latent_dim(const AttentionSpec& spec) { return spec.latent ? spec.latent->rank : 0; }

/// The norms that LayerSpec and AttentionSpec allow.
void check_norms(const LayerSpec& layer) {
  const auto is_plain_rms = [](const NormSpec& norm) { return norm.kind == NormSpec::Kind::rms && !norm.has_bias; };
  check(!layer.has_post_norms || (is_plain_rms(layer.norm) && !layer.is_parallel),
        "Model: post-norms must be RMS norms without a bias, and not in a parallel block");
  check(layer.attention.qk_norm == QkNorm::none || is_plain_rms(layer.attention.qk_norm_spec),
        "Model: norms of queries and keys must be RMS norms without a bias");
}

/// The latent attention that AttentionSpec allows.
void check_latent(const ModelSpec& model, const AttentionSpec& spec) {
  if (!spec.latent) return;
  const LatentSpec& latent = *spec.latent;
  check(spec.n_kv_heads == 1 && spec.head_dim == latent.rank + latent.rope_dim, "Model: latent attention of another head size");
  check(spec.rope != AttentionSpec::kNoRope && model.ropes[static_cast<std::size_t>(spec.rope)].rotary_dim == latent.rope_dim,
        "Model: latent attention rotates rope_dim elements");
  check(spec.qk_norm == QkNorm::none && !spec.has_qkv_bias, "Model: latent attention has no other norms and no biases");
}

/// The blocks that LayerSpec allows.
void check_blocks(const ModelSpec& model, const LayerSpec& layer) {
  check(layer.has_mixer || layer.has_feed_forward, "Model: a layer without blocks");
  check((layer.has_mixer && layer.has_feed_forward) || (layer.has_pre_norms && !layer.has_post_norms && !layer.is_parallel),
        "Model: a layer with one block has a norm before it");
  check(!layer.attention.has_output_gate || !layer.attention.latent, "Model: latent attention with a gate");
  if (!layer.is_recurrent()) return;
  const LayerSpec& first = *model.recurrent_layer();
  check(layer.has_mixer && layer.delta == first.delta && layer.conv == first.conv && layer.mamba2 == first.mamba2 &&
            layer.delta.has_value() + layer.conv.has_value() + layer.mamba2.has_value() == 1,
        "Model: recurrent layers of several kinds");
  const auto is_plain_rms = [](const NormSpec& norm) { return norm.kind == NormSpec::Kind::rms && !norm.has_bias; };
  if (layer.delta) {
    check(layer.delta->n_key_heads > 0 && layer.delta->n_heads % layer.delta->n_key_heads == 0,
          "Model: value heads that key heads cannot share");
    check(is_plain_rms(layer.delta->norm), "Model: outputs of recurrent layers have RMS norms");
  }
  if (layer.mamba2) {
    const Mamba2Spec& mamba = *layer.mamba2;
    check(mamba.n_groups > 0 && mamba.n_heads % mamba.n_groups == 0, "Model: heads that groups cannot share");
    check(mamba.n_norm_groups > 0 && mamba.inner_width() % mamba.n_norm_groups == 0, "Model: norms over unequal groups");
    check(is_plain_rms(mamba.norm), "Model: outputs of recurrent layers have RMS norms");
  }
}

/// The experts that FeedForwardSpec allows.
void check_experts(const FeedForwardSpec& spec) {
  check(spec.has_experts() || (!spec.has_shared_expert() && !spec.has_choice_bias), "Model: a shared expert without others");
  check(!spec.has_shared_gate || spec.has_shared_expert(), "Model: a gate of a shared expert that is not there");
  check(!spec.weighs_inputs || spec.n_experts_per_row == 1, "Model: several experts that weigh what they read");
  if (!spec.has_experts()) return;
  check(spec.n_experts_per_row >= 1 && spec.n_experts_per_row <= spec.n_experts,
        "Model: a row has at least one expert and at most all of them");
}

/// The factor of the embeddings, as the weights' dtype rounds it if the spec says so.
float embedding_scale(const ModelSpec& spec, DType dtype) {
  if (!spec.rounds_embedding_scale) return spec.embedding_scale;
  return visit_float(dtype, [&]<class T>(T) { return static_cast<float>(static_cast<T>(spec.embedding_scale)); });
}

}  // namespace

Model::Model(ModelSpec spec, ModelWeights weights)
    : spec_(std::move(spec)), weights_(std::make_unique<ModelWeights>(std::move(weights))) {
  check(weights_->layers.size() == spec_.layers.size(), "Model: the weights have another number of layers than the spec");
  const auto n_groups = static_cast<std::size_t>(spec_.n_groups());
  first_of_group_.resize(n_groups, nullptr);
  n_layers_of_group_.resize(n_groups, 0);
  std::int32_t n_recurrent = 0;
  for (const LayerSpec& layer : spec_.layers) {
    if (layer.is_recurrent()) {
      index_in_group_.push_back(n_recurrent++);
      continue;
    }
    if (!layer.has_attention()) {
      index_in_group_.push_back(0);
      continue;
    }
    const auto group = static_cast<std::size_t>(layer.group);
    if (first_of_group_[group] == nullptr) first_of_group_[group] = &layer;
    index_in_group_.push_back(n_layers_of_group_[group]++);
    const AttentionSpec& first = first_of_group_[group]->attention;
    check(layer.attention.n_heads == first.n_heads && layer.attention.n_kv_heads == first.n_kv_heads &&
              layer.attention.head_dim == first.head_dim && layer.attention.v_dim() == first.v_dim() &&
              layer.attention.window == first.window && layer.attention.is_chunked == first.is_chunked,
          "Model: layers of one group have different attention");
  }
  const auto check_layer = [this](const LayerSpec& layer) {
    check_norms(layer);
    check_latent(spec_, layer.attention);
    check_blocks(spec_, layer);
    check_experts(layer.feed_forward);
  };
  std::ranges::for_each(spec_.layers, check_layer);
  if (const MtpSpec* const mtp = spec_.used_mtp()) {
    check_layer(mtp->layer);
    check(weights_->mtp && spec_.rank.world_size == 1 && mtp->layer.has_attention() && n_groups == 1,
          "Model: the layer for drafts has attention, one rank, and the one layer group");
    mtp_index_ = n_layers_of_group_[static_cast<std::size_t>(mtp->layer.group)];
  }
  check(n_groups > 0, "Model: no layer with attention");
  for (const LayerSpec* first : first_of_group_) check(first != nullptr, "Model: a layer group without a layer");
}

Model::~Model() = default;

const ModelSpec& Model::spec() const { return spec_; }

DType Model::weight_dtype() const { return weights_->dtype; }

std::string Model::weight_scheme() const { return weights_->scheme_text(); }

std::string Model::activation_scheme() const {
  if (weights_->has_int8_x) return "int8";
  return std::string(to_string(weights_->has_f8_rows ? DType::f8_e4m3 : weights_->dtype));
}

std::size_t Model::weight_bytes() const { return weights_->size_bytes(); }

std::vector<KvShape> Model::kv_shapes(std::int32_t n_blocks, std::int32_t block_len, DType dtype) const {
  std::vector<KvShape> shapes;
  for (const LayerSpec* layer : first_of_group_)
    shapes.push_back({.n_layers = n_layers_of_group_[static_cast<std::size_t>(layer->group)] + (spec_.uses_mtp ? 1 : 0),
                      .n_blocks = n_blocks,
                      .block_len = block_len,
                      .n_kv_heads = layer->attention.n_kv_heads,
                      .head_dim = layer->attention.head_dim,
                      .dtype = dtype,
                      .latent_dim = latent_dim(layer->attention)});
  if (dtype != DType::f8_e4m3) return shapes;
  const KvScales& scales = weights_->kv_scales;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    if (!spec_.layers[i].has_attention()) continue;
    KvShape& shape = shapes[static_cast<std::size_t>(spec_.layers[i].group)];
    if (!scales.keys.empty()) shape.k_scales.push_back(scales.keys[i]);
    if (!scales.values.empty()) shape.v_scales.push_back(scales.values[i]);
  }
  if (spec_.uses_mtp)  // of whose keys and values no scales are known
    for (std::vector<float>* const of_layers : {&shapes.front().k_scales, &shapes.front().v_scales})
      if (!of_layers->empty()) of_layers->push_back(1);
  return shapes;
}

std::vector<AttentionShape> Model::attention_shapes(std::int32_t block_len, DType kv_dtype) const {
  std::vector<AttentionShape> shapes;
  for (const LayerSpec* layer : first_of_group_)
    shapes.push_back({.n_heads = layer->attention.n_heads,
                      .n_kv_heads = layer->attention.n_kv_heads,
                      .head_dim = layer->attention.head_dim,
                      .kv_element_bytes = static_cast<std::int32_t>(size_bytes(kv_dtype)),
                      .window = layer->attention.window,
                      .block_len = block_len,
                      .is_chunked = layer->attention.is_chunked,
                      .latent_dim = latent_dim(layer->attention)});
  return shapes;
}

std::int32_t Model::n_layers_of_group(int group) const {
  check(group >= 0 && static_cast<std::size_t>(group) < n_layers_of_group_.size(), "Model: the layer group does not exist");
  return n_layers_of_group_[static_cast<std::size_t>(group)];
}

StateShape Model::state_shape(std::int32_t n_slots, DType dtype) const { return baton::state_shape(spec_, n_slots, dtype); }

StateShape state_shape(const ModelSpec& spec, std::int32_t n_slots, DType dtype) {
  const LayerSpec* const layer = spec.recurrent_layer();
  if (layer == nullptr) return {};
  StateShape shape{.n_layers = spec.n_recurrent_layers(), .n_slots = n_slots, .matrix_dtype = dtype};
  if (layer->delta) {
    const GatedDeltaSpec& delta = *layer->delta;
    shape.n_channels = static_cast<std::int32_t>(delta.qkv_width());
    shape.conv_len = delta.n_taps - 1;
    shape.n_heads = delta.n_heads;
    shape.key_dim = delta.key_dim;
    shape.value_dim = delta.value_dim;
  } else if (layer->conv) {
    shape.n_channels = layer->conv->n_channels;
    shape.conv_len = layer->conv->n_taps - 1;
  } else {
    const Mamba2Spec& mamba = *layer->mamba2;
    shape.n_channels = static_cast<std::int32_t>(mamba.conv_width());
    shape.conv_len = mamba.n_taps - 1;
    shape.n_heads = mamba.n_heads;
    shape.key_dim = mamba.state_dim;
    shape.value_dim = mamba.head_dim;
  }
  return shape;
}

std::string_view kind_not_computed(const ModelSpec& spec, const BackendCapabilities& capabilities) {
  const LayerSpec* const layer = spec.recurrent_layer();
  if (layer == nullptr) return {};
  const bool has_kind = layer->delta || (layer->conv ? capabilities.has_gated_conv : capabilities.has_mamba2);
  if (capabilities.has_recurrent_layers && has_kind) return {};
  return layer->delta ? "Gated DeltaNet" : layer->conv ? "short convolutions" : "Mamba-2";
}

Result<void> Model::prepare(Backend& backend, const StepBounds& bounds) {
  BATON_TRY(workspace_, Workspace::make(spec_, weights_->dtype, weights_->has_f8_rows, backend, bounds));
  return {};
}

/// Writes the embeddings of the step's tokens to the residual stream.
void Model::embed(const LayerStep& run, const TensorView& token_ids) const {
  const float scale = embedding_scale(spec_, weights_->dtype);
  if (spec_.rank.world_size == 1) return embedding(run.backend, {run.x, weights_->embedding, token_ids, scale});
  const RankParts parts = run.work.rank_parts(run.x.shape[0], weights_->embedding.shape[1]);
  embedding(run.backend, {parts.own, weights_->embedding, token_ids, scale});
  all_gather(run.backend, {parts.all, run.x});
}

LayerStep Model::begin_step(Backend& backend, const StepView& step, std::span<KvStorage* const> kv_of_group,
                            StateStorage* states) const {
  check(workspace_ != nullptr, "Model: a step before prepare");
  check(kv_of_group.size() == first_of_group_.size(), "Model: one KV storage a layer group");
  const Workspace& work = *workspace_;
  const std::int64_t n_rows = step.header->n_rows;
  const TensorView rows = work.rows.view(DType::u8, {static_cast<std::int64_t>(kv_of_group.size()), n_rows, sizeof(TokenRow)});
  return {backend, work, step, work.x.view(DType::f32, {n_rows, spec_.d_model}), rows, kv_of_group, states};
}

/// The logits of the step's samples, from rows that the last norm gave.
TensorView Model::logits_of(const LayerStep& run, const TensorView& normed) const {
  const Workspace& work = run.work;
  const std::int64_t n_samples = run.view.n_samples();
  const TensorView logits = work.logits.view(DType::f32, {n_samples, spec_.n_vocab});
  if (n_samples == 0) return logits;
  const TensorView gathered = work.gathered.view(work.dtype, {n_samples, spec_.d_model});
  gather_rows(run.backend, {run.view, normed, gathered});
  weights_->lm_head.apply_gathered(run.backend, gathered, work.rank_parts(n_samples, weights_->lm_head.n_out()), logits);
  if (spec_.logits_scale != 1 || spec_.logits_softcap > 0)
    scale_logits(run.backend, {logits, spec_.logits_scale, spec_.logits_softcap});
  return logits;
}

TensorView Model::forward(Backend& backend, const StepView& step, TensorView slots, std::span<KvStorage* const> kv_of_group,
                          StateStorage* states) {
  check((states != nullptr) == spec_.has_recurrent_layers(), "Model::forward: states without recurrent layers, or the reverse");
  const LayerStep run = begin_step(backend, step, kv_of_group, states);
  const TensorView token_ids = run.work.token_ids.view(DType::i32, {run.x.shape[0]});
  resolve_rows(backend, {step, slots, token_ids, run.rows});
  embed(run, token_ids);
  Deltas added;  // nothing before the first layer
  for (std::size_t i = 0; i < spec_.layers.size(); ++i)
    added = run_layer(run, spec_.layers[i], weights_->layers[i], index_in_group_[i], added);
  const bool needs_norm = step.n_samples() > 0 || spec_.uses_mtp;  // drafts read the norm's output
  const TensorView normed = needs_norm ? run_norm(run, spec_.final_norm, weights_->final_norm, added).values : TensorView{};
  return logits_of(run, normed);
}

TensorView Model::draft(Backend& backend, const StepView& step, TensorView slots, const ConstTensorView& hidden_rows,
                        std::span<KvStorage* const> kv_of_group) {
  check(spec_.uses_mtp, "Model::draft: the model has no layer for drafts");
  const MtpSpec& spec = *spec_.mtp;
  const MtpWeights& weights = *weights_->mtp;
  const LayerStep run = begin_step(backend, step, kv_of_group, nullptr);
  const Workspace& work = run.work;
  const std::int64_t n_rows = run.x.shape[0];
  const TensorView token_ids = work.token_ids.view(DType::i32, {n_rows});
  const TensorView of_hidden = work.delta.view(work.matmul_dtype, run.x.shape);
  resolve_rows(backend, {step, slots, token_ids, run.rows});
  // The last call's rows are in `normed`. They move to x before a norm writes there.
  embedding(backend, {run.x, work.normed.view(work.dtype, {work.max_rows, spec_.d_model}), hidden_rows});
  matmul(backend, weights.of_hidden.args(run_norm(run, spec.norm, weights.hidden_norm, {}), of_hidden));
  embed(run, token_ids);
  matmul(backend, weights.of_embedding.args(run_norm(run, spec.norm, weights.embedding_norm, {}), run.x));
  const Deltas added = run_layer(run, spec.layer, weights.layer, mtp_index_, Deltas{of_hidden, {}, 1, {}});
  return logits_of(run, run_norm(run, spec.norm, weights.output_norm, added).values);
}

}  // namespace baton
