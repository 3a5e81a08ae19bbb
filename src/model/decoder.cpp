/// The only layer loop: embedding, layers of attention and feed-forward, final norm, logits.
#include "model/decoder.h"

#include <cmath>

#include "model/rope.h"
#include "model/weights.h"

namespace baton {

/// Device memory of a step and the rotation table.
class Model::Workspace {
 public:
  static Result<std::unique_ptr<Workspace>> make(const ModelConfig& config, DType dtype, Backend& backend,
                                                 const StepBounds& bounds) {
    auto made = std::unique_ptr<Workspace>(new Workspace);
    const DType product = backend.capabilities().rounds_matmul_outputs ? dtype : DType::f32;
    made->matmul_dtype = product;
    const std::int64_t rows = bounds.max_rows;
    const std::int64_t n_heads = config.n_heads;
    const std::int64_t q_width = n_heads * config.head_dim;
    const std::int64_t kv_width = static_cast<std::int64_t>(config.n_kv_heads) * config.head_dim;
    const auto wide = [](std::int64_t count, DType type) { return static_cast<std::size_t>(count) * size_bytes(type); };
    BATON_TRY(made->token_ids, backend.allocate(wide(rows, DType::i32)));
    BATON_TRY(made->rows, backend.allocate(static_cast<std::size_t>(rows) * sizeof(TokenRow)));
    BATON_TRY(made->x, backend.allocate(wide(rows * config.d_model, DType::f32)));
    BATON_TRY(made->normed, backend.allocate(wide(rows * config.d_model, dtype)));
    BATON_TRY(made->delta, backend.allocate(wide(rows * config.d_model, product)));
    BATON_TRY(made->qkv, backend.allocate(wide(rows * (q_width + 2 * kv_width), product)));
    BATON_TRY(made->q, backend.allocate(wide(rows * q_width, DType::f32)));
    BATON_TRY(made->attended, backend.allocate(wide(rows * q_width, dtype)));
    BATON_TRY(made->gate_up, backend.allocate(wide(rows * 2 * config.d_ff, product)));
    BATON_TRY(made->activated, backend.allocate(wide(rows * config.d_ff, dtype)));
    BATON_TRY(made->gathered, backend.allocate(wide(static_cast<std::int64_t>(bounds.max_samples) * config.d_model, dtype)));
    BATON_TRY(made->logits, backend.allocate(wide(static_cast<std::int64_t>(bounds.max_samples) * config.n_vocab, DType::f32)));
    BATON_TRY(made->partial_o, backend.allocate(wide(bounds.max_partials * q_width, DType::f32)));
    BATON_TRY(made->partial_m, backend.allocate(wide(bounds.max_partials * n_heads, DType::f32)));
    BATON_TRY(made->partial_l, backend.allocate(wide(bounds.max_partials * n_heads, DType::f32)));
    made->partials = {made->partial_o.view(DType::f32, {bounds.max_partials, n_heads, config.head_dim}),
                      made->partial_m.view(DType::f32, {bounds.max_partials, n_heads}),
                      made->partial_l.view(DType::f32, {bounds.max_partials, n_heads})};
    BATON_TRY_VOID(made->fill_rope_table(config, backend));
    return made;
  }

  Buffer token_ids, rows, x, normed, delta, qkv, q, attended, gate_up, activated, gathered, logits;
  Buffer partial_o, partial_m, partial_l, cos, sin;
  PartialStates partials;
  RopeTable rope;
  DType matmul_dtype = DType::f32;  ///< of delta, qkv and gate_up

 private:
  /// Angles are position * frequency in f32, as in Transformers; their cosines and sines are rounded from double.
  Result<void> fill_rope_table(const ModelConfig& config, Backend& backend) {
    const std::vector<float> frequencies = rope_frequencies(config);
    const auto half = static_cast<std::int64_t>(frequencies.size());
    const std::int64_t n_positions = config.max_position;
    std::vector<float> cosines;
    std::vector<float> sines;
    cosines.reserve(static_cast<std::size_t>(n_positions * half));
    sines.reserve(static_cast<std::size_t>(n_positions * half));
    for (std::int64_t position = 0; position < n_positions; ++position) {
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(position) * frequency;
        cosines.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
        sines.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
      }
    }
    BATON_TRY(cos, backend.allocate(cosines.size() * sizeof(float)));
    BATON_TRY(sin, backend.allocate(sines.size() * sizeof(float)));
    const Shape shape{n_positions, half};
    backend.copy_from_host(cos.view(DType::f32, shape), view_of(std::span<const float>(cosines), shape));
    backend.copy_from_host(sin.view(DType::f32, shape), view_of(std::span<const float>(sines), shape));
    rope = {cos.view(DType::f32, shape), sin.view(DType::f32, shape)};
    return {};
  }
};

Model::Model(ModelConfig config, ModelWeights weights)
    : config_(std::move(config)), weights_(std::make_unique<ModelWeights>(std::move(weights))) {
  check(weights_->layers.size() == static_cast<std::size_t>(config_.n_layers),
        "Model: the weights have another number of layers than the config");
}

Model::~Model() = default;

const ModelConfig& Model::config() const { return config_; }

DType Model::weight_dtype() const { return weights_->dtype; }

std::size_t Model::weight_bytes() const { return weights_->size_bytes(); }

std::vector<KvShape> Model::kv_shapes(std::int32_t n_blocks, std::int32_t block_len, DType dtype) const {
  return {{.n_layers = config_.n_layers,
           .n_blocks = n_blocks,
           .block_len = block_len,
           .n_kv_heads = config_.n_kv_heads,
           .head_dim = config_.head_dim,
           .dtype = dtype}};
}

std::vector<AttentionShape> Model::attention_shapes(std::int32_t block_len, DType kv_dtype) const {
  return {{.n_heads = config_.n_heads,
           .n_kv_heads = config_.n_kv_heads,
           .head_dim = config_.head_dim,
           .kv_element_bytes = static_cast<std::int32_t>(size_bytes(kv_dtype)),
           .window = 0,
           .block_len = block_len}};
}

std::int32_t Model::n_layers_of_group(int group) const {
  check(group == 0, "Model: the layer group does not exist");
  return config_.n_layers;
}

Result<void> Model::prepare(Backend& backend, const StepBounds& bounds) {
  BATON_TRY(workspace_, Workspace::make(config_, weights_->dtype, backend, bounds));
  return {};
}

TensorView Model::forward(Backend& backend, const StepView& step, TensorView slots, std::span<KvStorage* const> kv_of_group) {
  check(workspace_ != nullptr, "Model::forward before prepare");
  check(kv_of_group.size() == 1, "Model::forward: one KV storage a layer group");
  Workspace& work = *workspace_;
  const DType dtype = weights_->dtype;
  const std::int64_t n_rows = step.header->n_rows;
  const std::int64_t n_samples = step.n_samples();
  const std::int64_t d_model = config_.d_model;
  const std::int64_t n_heads = config_.n_heads;
  const std::int64_t q_width = n_heads * config_.head_dim;

  const TensorView token_ids = work.token_ids.view(DType::i32, {n_rows});
  const TensorView rows = work.rows.view(DType::u8, {n_rows, sizeof(TokenRow)});
  const TensorView x = work.x.view(DType::f32, {n_rows, d_model});
  const TensorView normed = work.normed.view(dtype, {n_rows, d_model});
  const TensorView delta = work.delta.view(work.matmul_dtype, {n_rows, d_model});
  const TensorView qkv = work.qkv.view(work.matmul_dtype, {n_rows, q_width + 2LL * config_.n_kv_heads * config_.head_dim});
  const TensorView q = work.q.view(kv_of_group[0]->shape().matmul_dtype(), {n_rows, n_heads, config_.head_dim});
  const TensorView attended = work.attended.view(dtype, {n_rows, n_heads, config_.head_dim});
  const TensorView gate_up = work.gate_up.view(work.matmul_dtype, {n_rows, 2LL * config_.d_ff});
  const TensorView activated = work.activated.view(dtype, {n_rows, config_.d_ff});

  resolve_rows(backend, {step, slots, token_ids, work.rows.view(DType::u8, {1, n_rows, sizeof(TokenRow)})});
  embedding(backend, {x, weights_->embedding, token_ids});
  ConstTensorView added;  // what the part before adds to the residual stream; none before the first layer
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    const LayerWeights& weights = weights_->layers[static_cast<std::size_t>(layer)];
    rms_norm(backend, {x, added, weights.attention_norm, normed, config_.rms_norm_eps});
    matmul(backend, {normed, weights.qkv.get(), qkv});
    rope_append(backend, {qkv, q, work.rope, rows, step, 0, layer, kv_of_group[0]});
    attention(backend, {q, attended, work.partials, rows, step, 0, layer, kv_of_group[0],
                        1.0f / std::sqrt(static_cast<float>(config_.head_dim)), /*softcap=*/0, /*merge=*/true});
    matmul(backend, {{attended.data, dtype, {n_rows, q_width}}, weights.attention_out.get(), delta});
    all_reduce(backend, delta);
    rms_norm(backend, {x, delta, weights.feed_forward_norm, normed, config_.rms_norm_eps});
    matmul(backend, {normed, weights.gate_up.get(), gate_up});
    silu_mul(backend, {gate_up, activated});
    matmul(backend, {activated, weights.down.get(), delta});
    all_reduce(backend, delta);
    added = delta;
  }
  const TensorView logits = work.logits.view(DType::f32, {n_samples, config_.n_vocab});
  if (n_samples == 0) return logits;
  const TensorView gathered = work.gathered.view(dtype, {n_samples, d_model});
  rms_norm(backend, {x, added, weights_->final_norm, normed, config_.rms_norm_eps});
  gather_rows(backend, {step, normed, gathered});
  matmul(backend, {gathered, weights_->lm_head.get(), logits});
  return logits;
}

}  // namespace baton
