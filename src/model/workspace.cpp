/// Computes the sizes of a step's buffers and the angles of rotations.
#include "model/workspace.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "model/rope.h"
#include "model/split.h"

namespace baton {
namespace {

/// Elements in a row of each buffer, for the widest layer.
struct Widths {
  explicit Widths(const ModelSpec& spec) {
    for (const LayerSpec& layer : spec.layers) add(spec, layer);
    if (const MtpSpec* const mtp = spec.used_mtp()) add(spec, mtp->layer);
  }
  void add(const ModelSpec& spec, const LayerSpec& layer) {
    const AttentionSpec& attention = layer.attention;
    q = std::max(q, attention.q_width());
    qkv = std::max(qkv, attention.qkv_width());
    heads = std::max<std::int64_t>(heads, attention.n_heads);
    partial = std::max(partial, std::int64_t{attention.n_heads} * attention.v_dim());
    attended = std::max(attended, partial);
    if (attention.latent) {
      attended = std::max<std::int64_t>(attended, attention.latent->q_rank);  // normed, before there is a result
      of_heads = std::max({of_heads, attention.latent_q_width(), attention.out_width()});
    }
    if (layer.delta) {
      qkv = std::max(qkv, layer.delta->in_width());
      attended = std::max(attended, layer.delta->values_width());
      conv_out = layer.delta->qkv_width();
      recurrent_out = layer.delta->values_width();
      recurrent_gates = 2 * std::int64_t{layer.delta->n_heads};
    }
    if (layer.conv) {
      qkv = std::max(qkv, 3 * std::int64_t{layer.conv->n_channels});
      attended = std::max<std::int64_t>(attended, layer.conv->n_channels);
    }
    if (layer.mamba2) {
      qkv = std::max(qkv, layer.mamba2->in_width());
      attended = std::max(attended, layer.mamba2->inner_width());
      conv_out = layer.mamba2->conv_width();
      recurrent_out = layer.mamba2->inner_width();
    }
    if (!layer.has_feed_forward) return;
    const FeedForwardSpec& feed_forward = layer.feed_forward;
    up = std::max(
        {up, feed_forward.blocks_per_row() * feed_forward.up_width(), feed_forward.up_width_of(feed_forward.d_ff_shared)});
    activated = std::max(
        {activated, feed_forward.blocks_per_row() * feed_forward.d_ff, static_cast<std::int64_t>(feed_forward.d_ff_shared)});
    experts = std::max<std::int64_t>(experts, feed_forward.n_experts);
    router = std::max<std::int64_t>(router, feed_forward.n_router_logits());
    chosen = std::max<std::int64_t>(chosen, feed_forward.n_experts_per_row);
    if (feed_forward.weighs_inputs) weighed = spec.d_model;
    const bool has_ones = layer.attention.qk_norm != QkNorm::none && !layer.attention.has_qk_norm_weights;
    if (has_ones || feed_forward.weighs_inputs) ones = std::max<std::int64_t>(ones, layer.attention.head_dim);
  }
  std::int64_t q = 0;
  std::int64_t qkv = 0;
  std::int64_t heads = 0;
  std::int64_t partial = 0;
  std::int64_t attended = 0;
  std::int64_t conv_out = 0;
  std::int64_t recurrent_out = 0;
  std::int64_t recurrent_gates = 0;
  std::int64_t of_heads = 0;
  std::int64_t up = 0;
  std::int64_t activated = 0;
  std::int64_t experts = 0;
  std::int64_t router = 0;
  std::int64_t chosen = 0;
  std::int64_t weighed = 0;
  std::int64_t ones = 0;
};

/// A copy of numbers in the backend's memory.
template <class T>
Result<Buffer> on_device(Backend& backend, const std::vector<T>& numbers) {
  BATON_TRY(Buffer buffer, backend.allocate(numbers.size() * sizeof(T)));
  const Shape shape{static_cast<std::int64_t>(numbers.size())};
  const ConstTensorView host = view_of(std::span(numbers), shape);
  backend.copy_from_host(buffer.view(host.dtype, shape), host);
  return buffer;
}

/// Angles are position * frequency in f32, as in Transformers. Cosines and sines are computed in double, rounded, and
/// multiplied by the attention factor.
Result<RopeTable> make_rope_table(const RopeSpec& spec, std::int64_t n_positions, Backend& backend,
                                  std::vector<Buffer>& buffers) {
  const std::vector<float> frequencies = rope_frequencies(spec, n_positions);
  const auto factor = static_cast<float>(spec.scaling.attention_factor);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  std::vector<float> cosines;
  std::vector<float> sines;
  cosines.reserve(static_cast<std::size_t>(n_positions * half));
  sines.reserve(static_cast<std::size_t>(n_positions * half));
  for (std::int64_t position = 0; position < n_positions; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      cosines.push_back(static_cast<float>(std::cos(static_cast<double>(angle))) * factor);
      sines.push_back(static_cast<float>(std::sin(static_cast<double>(angle))) * factor);
    }
  }
  const auto table_of = [&](const std::vector<float>& numbers, const Shape& shape) -> Result<ConstTensorView> {
    BATON_TRY(Buffer buffer, on_device(backend, numbers));
    const TensorView device = buffer.view(DType::f32, shape);
    buffers.push_back(std::move(buffer));
    return ConstTensorView(device);
  };
  RopeTable table;
  BATON_TRY(table.cos, table_of(cosines, {n_positions, half}));
  BATON_TRY(table.sin, table_of(sines, {n_positions, half}));
  if (spec.query_beta == 0) return table;
  std::vector<float> factors;
  factors.reserve(static_cast<std::size_t>(n_positions));
  for (std::int64_t position = 0; position < n_positions; ++position)
    factors.push_back(static_cast<float>(
        1 + spec.query_beta * std::log(1 + static_cast<double>((position + spec.query_shift) / spec.query_length))));
  BATON_TRY(table.q_factor, table_of(factors, {n_positions}));
  return table;
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::make(const ModelSpec& spec, DType dtype, bool has_f8_rows, Backend& backend,
                                                   const StepBounds& bounds) {
  check(bounds.max_positions > 0, "Workspace: no positions");
  auto made = std::make_unique<Workspace>();
  made->rank = spec.rank;
  made->dtype = dtype;
  made->matmul_dtype = backend.capabilities().rounds_matmul_outputs ? dtype : DType::f32;
  made->has_f8_rows = has_f8_rows;
  made->max_rows = bounds.max_rows;
  made->max_partials = bounds.max_partials;
  const Widths widths(spec);
  const std::int64_t rows = bounds.max_rows;
  const DType product = made->matmul_dtype;
  const auto allocate = [&backend](std::int64_t n_elements, DType type) {
    return backend.allocate(static_cast<std::size_t>(n_elements) * size_bytes(type));
  };
  BATON_TRY(made->token_ids, allocate(rows, DType::i32));
  BATON_TRY(made->rows, backend.allocate(static_cast<std::size_t>(spec.n_groups() * rows) * sizeof(TokenRow)));
  BATON_TRY(made->x, allocate(rows * spec.d_model, DType::f32));
  BATON_TRY(made->normed, allocate(rows * spec.d_model, dtype));
  if (has_f8_rows) {
    BATON_TRY(made->normed_f8, allocate(rows * spec.d_model, DType::f8_e4m3));
    BATON_TRY(made->norm_scales, allocate(rows, DType::f32));
    BATON_TRY(made->row_scales, allocate(rows, DType::f32));
  }
  const bool has_parallel_blocks = std::ranges::any_of(spec.layers, &LayerSpec::is_parallel);
  BATON_TRY(made->delta, allocate((has_parallel_blocks ? 2 : 1) * rows * spec.d_model, product));
  BATON_TRY(made->qkv, allocate(rows * widths.qkv, product));
  BATON_TRY(made->q, allocate(rows * widths.q, DType::f32));
  BATON_TRY(made->attended, allocate(rows * widths.attended, dtype));
  if (widths.conv_out > 0) {
    BATON_TRY(made->conv_out, allocate(rows * widths.conv_out, product));
    BATON_TRY(made->recurrent_out, allocate(rows * widths.recurrent_out, product));
  }
  if (widths.recurrent_gates > 0) {
    BATON_TRY(made->recurrent_gates, allocate(rows * widths.recurrent_gates, DType::f32));
  }
  if (widths.of_heads > 0) {
    BATON_TRY(made->of_heads, allocate(rows * widths.of_heads, dtype));
  }
  BATON_TRY(made->up, allocate(rows * widths.up, product));
  BATON_TRY(made->activated, allocate(rows * widths.activated, dtype));
  if (widths.experts > 0) {
    BATON_TRY(made->router_logits, allocate(rows * widths.router, DType::f32));
    BATON_TRY(made->experts, allocate(rows * widths.chosen, DType::i32));
    BATON_TRY(made->expert_weights, allocate(rows * widths.chosen, DType::f32));
    BATON_TRY(made->expert_places, allocate(rows * widths.chosen, DType::i32));
    BATON_TRY(made->expert_rows, allocate(rows * widths.chosen, DType::i32));
    BATON_TRY(made->expert_offsets, allocate(widths.experts + 1, DType::i32));
    BATON_TRY(made->expert_out, allocate(rows * widths.chosen * spec.d_model, product));
  }
  BATON_TRY(made->gathered, allocate(static_cast<std::int64_t>(bounds.max_samples) * spec.d_model, dtype));
  BATON_TRY(made->logits, allocate(static_cast<std::int64_t>(bounds.max_samples) * spec.n_vocab, DType::f32));
  if (spec.rank.world_size > 1) {
    const std::int64_t of_rows =
        rows * std::max<std::int64_t>(spec.d_model / spec.rank.world_size, gathered_width(widths.router, spec.rank));
    const std::int64_t of_samples = std::int64_t{bounds.max_samples} * gathered_width(spec.n_vocab, spec.rank);
    BATON_TRY(made->parts, allocate(spec.rank.world_size * std::max(of_rows, of_samples), DType::f32));
  }
  BATON_TRY(made->partial_o, allocate(bounds.max_partials * widths.partial, DType::f32));
  BATON_TRY(made->partial_m, allocate(bounds.max_partials * widths.heads, DType::f32));
  BATON_TRY(made->partial_l, allocate(bounds.max_partials * widths.heads, DType::f32));
  if (widths.ones > 0) {
    const std::vector<float> ones(static_cast<std::size_t>(std::max(rows, widths.ones)), 1.0f);
    BATON_TRY(made->ones, on_device(backend, ones));
  }
  if (widths.weighed > 0) {
    BATON_TRY(made->weighed, allocate(rows * widths.weighed, dtype));
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), 0);
    BATON_TRY(made->row_numbers, on_device(backend, numbers));
  }
  for (const RopeSpec& rope : spec.ropes) {
    BATON_TRY(const RopeTable table, make_rope_table(rope, bounds.max_positions, backend, made->rope_buffers));
    made->ropes.push_back(table);
  }
  return made;
}

RankParts Workspace::rank_parts(std::int64_t n_rows, std::int64_t n) const {
  if (rank.world_size == 1) return {};
  const TensorView all = parts.view(DType::f32, {rank.world_size, n_rows, n});
  return {all, {all.rows(rank.rank, rank.rank + 1).data, DType::f32, {n_rows, n}}};
}

ExpertChoices Workspace::expert_choices(const FeedForwardSpec& spec, std::int64_t n_rows) const {
  const Shape of_rows{n_rows, spec.n_experts_per_row};
  return {experts.view(DType::i32, of_rows), expert_weights.view(DType::f32, of_rows), expert_places.view(DType::i32, of_rows),
          expert_rows.view(DType::i32, {of_rows.n_elements()}), expert_offsets.view(DType::i32, {spec.n_experts + 1})};
}

}  // namespace baton
