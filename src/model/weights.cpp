/// Loads tensors one after the other through one host buffer and packs them with the backend.
#include "model/weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/parallel.h"
#include "model/source/random.h"
#include "model/source/safetensors.h"

namespace baton {
namespace {

/// Matrices [n_i, k] that are stacked in this order and multiplied as one, with their biases.
struct LinearTensors {
  std::vector<ExpectedTensor> weights;
  std::vector<ExpectedTensor> biases;  ///< one for each weight, or none
};

struct NormTensors {
  ExpectedTensor weight;
  std::optional<ExpectedTensor> bias;
  float weight_offset = 0;
};

/// Norms that the layer does not have are missing.
struct LayerTensors {
  std::optional<NormTensors> attention_norm, q_norm, k_norm, attention_post_norm;
  LinearTensors qkv, attention_out;
  std::optional<NormTensors> feed_forward_norm, feed_forward_post_norm;
  LinearTensors up, down;                             ///< empty with experts
  LinearTensors router;                               ///< empty without experts
  std::vector<LinearTensors> expert_up, expert_down;  ///< by expert
};

/// One matrix of a LinearTensors: its name without the last part, and its number of rows.
struct Part {
  std::string_view name;
  std::int64_t n;
  std::int32_t interleaved_dim = 0;
};

/// Names the tensors of layer `layer`. Names of tensors outside the layers have no "{}", so any number does for them.
class Namer {
 public:
  Namer(const TensorNames& names, std::size_t layer) : names_(names), layer_(layer) {}

  NormTensors norm(const NormSpec& spec, std::string_view name, std::int64_t n) const {
    const std::string stem = checkpoint_name(names_, name, layer_);
    NormTensors made{{stem + ".weight", {n}, ExpectedTensor::Kind::norm}, std::nullopt, spec.weight_offset};
    if (spec.has_bias) made.bias = {stem + ".bias", {n}, ExpectedTensor::Kind::bias};
    return made;
  }
  LinearTensors linear(std::initializer_list<Part> parts, std::int64_t k, bool has_bias) const {
    LinearTensors made;
    for (const auto& [name, n, interleaved_dim] : parts) {
      const std::string stem = checkpoint_name(names_, name, layer_);
      made.weights.push_back({stem + ".weight", {n, k}, ExpectedTensor::Kind::matrix, interleaved_dim});
      if (has_bias) made.biases.push_back({stem + ".bias", {n}, ExpectedTensor::Kind::bias, interleaved_dim});
    }
    return made;
  }

 private:
  const TensorNames& names_;
  std::size_t layer_;
};

/// `pattern` with the expert's number in the place of its last "{}"; the first one stands for the layer's.
std::string expert_name(std::string_view pattern, std::int32_t expert) {
  const std::size_t place = pattern.rfind("{}");
  if (place == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, place), expert, pattern.substr(place + 2));
}

void add_experts(const Namer& make, const TensorNames& names, const FeedForwardSpec& spec, std::int64_t d_model,
                 LayerTensors& layer) {
  layer.router = make.linear({{names.router, spec.n_experts}}, d_model, false);
  for (std::int32_t expert = 0; expert < spec.n_experts; ++expert) {
    const std::string gate = spec.is_gated() ? expert_name(names.expert_gate, expert) : "";
    const std::string up = expert_name(names.expert_up, expert);
    const std::string down = expert_name(names.expert_down, expert);
    layer.expert_up.push_back(spec.is_gated() ? make.linear({{gate, spec.d_ff}, {up, spec.d_ff}}, d_model, false)
                                              : make.linear({{up, spec.d_ff}}, d_model, false));
    layer.expert_down.push_back(make.linear({{down, d_model}}, spec.d_ff, false));
  }
}

LayerTensors layer_tensors(const ModelSpec& spec, std::size_t index) {
  const LayerSpec& layer = spec.layers[index];
  const AttentionSpec& attention = layer.attention;
  const FeedForwardSpec& feed_forward = layer.feed_forward;
  const TensorNames& names = spec.names;
  const std::int64_t d = spec.d_model;
  const Namer make(names, index);
  LayerTensors made;
  if (layer.has_pre_norms) made.attention_norm = make.norm(layer.norm, names.attention_norm, d);
  const bool is_rotated = attention.rope != AttentionSpec::kNoRope;
  const bool is_interleaved = is_rotated && spec.ropes[static_cast<std::size_t>(attention.rope)].is_interleaved;
  const std::int32_t pairs = is_interleaved ? attention.head_dim : 0;
  made.qkv = names.qkv.empty() ? make.linear({{names.q, attention.q_width(), pairs},
                                              {names.k, attention.kv_width(), pairs},
                                              {names.v, attention.kv_width()}},
                                             d, attention.has_qkv_bias)
                               : make.linear({{names.qkv, attention.qkv_width()}}, d, attention.has_qkv_bias);
  if (attention.qk_norm != QkNorm::none) {
    made.q_norm = make.norm(attention.qk_norm_spec, names.q_norm, attention.q_norm_width());
    made.k_norm = make.norm(attention.qk_norm_spec, names.k_norm, attention.k_norm_width());
  }
  made.attention_out = make.linear({{names.attention_out, d}}, attention.q_width(), attention.has_out_bias);
  if (layer.has_post_norms) {
    made.attention_post_norm = make.norm(layer.norm, names.attention_post_norm, d);
    made.feed_forward_post_norm = make.norm(layer.norm, names.feed_forward_post_norm, d);
  }
  if (layer.has_pre_norms && !layer.is_parallel) made.feed_forward_norm = make.norm(layer.norm, names.feed_forward_norm, d);
  if (feed_forward.has_experts()) {
    add_experts(make, names, feed_forward, d, made);
    return made;
  }
  const Part up{names.up, feed_forward.d_ff};
  if (!feed_forward.is_gated()) {
    made.up = make.linear({up}, d, feed_forward.has_bias);
  } else if (names.gate_up.empty()) {
    made.up = make.linear({{names.gate, feed_forward.d_ff}, up}, d, feed_forward.has_bias);
  } else {
    made.up = make.linear({{names.gate_up, feed_forward.up_width()}}, d, feed_forward.has_bias);
  }
  made.down = make.linear({{names.down, d}}, feed_forward.d_ff, feed_forward.has_bias);
  return made;
}

LinearTensors embedding_tensors(const ModelSpec& spec) {
  return Namer(spec.names, 0).linear({{spec.names.embedding, spec.n_vocab}}, spec.d_model, false);
}
NormTensors final_norm_tensors(const ModelSpec& spec) {
  return Namer(spec.names, 0).norm(spec.final_norm, spec.names.final_norm, spec.d_model);
}
/// The embedding's weight if the embeddings are tied.
LinearTensors lm_head_tensors(const ModelSpec& spec) {
  LinearTensors made = Namer(spec.names, 0).linear({{spec.names.lm_head, spec.n_vocab}}, spec.d_model, spec.has_lm_head_bias);
  if (spec.tie_embeddings) made.weights.clear();
  return made;
}

constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned(std::size_t n_bytes) { return (n_bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Memory for all vectors (norms and biases) in f32.
std::size_t all_vector_bytes(std::span<const ExpectedTensor> tensors) {
  std::size_t total = 0;
  for (const ExpectedTensor& tensor : tensors)
    if (tensor.kind != ExpectedTensor::Kind::matrix)
      total += aligned(static_cast<std::size_t>(tensor.shape[0]) * sizeof(float));
  return total;
}

/// Loads tensors from a source to the backend. `staging_` holds one matrix, its parts stacked.
/// Reorders the rows [n] or [n, k] of heads of `dim` rows: rows 2i first, then rows 2i + 1.
void part_pairs(const TensorView& rows, std::int32_t dim) {
  const auto n_heads = static_cast<std::size_t>(rows.shape[0] / dim);
  const auto half = static_cast<std::size_t>(dim / 2);
  const std::size_t row_bytes = rows.size_bytes() / static_cast<std::size_t>(rows.shape[0]);
  std::vector<std::byte> head(row_bytes * 2 * half);
  for (std::size_t h = 0; h < n_heads; ++h) {
    std::byte* const data = rows.data + h * head.size();
    std::memcpy(head.data(), data, head.size());
    for (std::size_t i = 0; i < half; ++i) {
      std::memcpy(data + i * row_bytes, head.data() + 2 * i * row_bytes, row_bytes);
      std::memcpy(data + (half + i) * row_bytes, head.data() + (2 * i + 1) * row_bytes, row_bytes);
    }
  }
}

class Loader {
 public:
  Loader(const ModelSpec& spec, Backend& backend, DType dtype, WeightSource& source)
      : spec_(spec),
        backend_(backend),
        dtype_(dtype),
        matmul_dtype_(backend.capabilities().rounds_matmul_outputs ? dtype : DType::f32),
        source_(source) {}

  Result<ModelWeights> load() {
    ModelWeights weights;
    weights.dtype = dtype_;
    BATON_TRY(std::unique_ptr<PackedMatrix> lm_head, load_embedding(weights));
    BATON_TRY(vectors_, backend_.allocate(all_vector_bytes(expected_tensors(spec_))));
    weights.layers.reserve(spec_.layers.size());
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      const LayerTensors tensors = layer_tensors(spec_, i);
      LayerWeights& layer = weights.layers.emplace_back();
      BATON_TRY(layer.attention_norm, norm(tensors.attention_norm));
      BATON_TRY(layer.qkv, linear(tensors.qkv));
      BATON_TRY(layer.q_norm, norm(tensors.q_norm));
      BATON_TRY(layer.k_norm, norm(tensors.k_norm));
      BATON_TRY(layer.attention_out, linear(tensors.attention_out));
      BATON_TRY(layer.attention_post_norm, norm(tensors.attention_post_norm));
      BATON_TRY(layer.feed_forward_norm, norm(tensors.feed_forward_norm));
      if (tensors.expert_up.empty()) {
        BATON_TRY(layer.up, linear(tensors.up));
        BATON_TRY(layer.down, linear(tensors.down));
      } else {
        BATON_TRY(std::unique_ptr<PackedMatrix> router, packed(tensors.router));
        layer.router = Linear(std::move(router));
        BATON_TRY(layer.expert_up, experts(tensors.expert_up));
        BATON_TRY(layer.expert_down, experts(tensors.expert_down));
      }
      BATON_TRY(layer.feed_forward_post_norm, norm(tensors.feed_forward_post_norm));
    }
    BATON_TRY(weights.final_norm, norm(final_norm_tensors(spec_)));
    const LinearTensors lm_head_parts = lm_head_tensors(spec_);
    if (lm_head == nullptr) {
      BATON_TRY(lm_head, packed(lm_head_parts));
    }
    BATON_TRY(const ConstTensorView lm_head_bias, bias_of(lm_head_parts, DType::f32));
    weights.lm_head = Linear(std::move(lm_head), lm_head_bias);
    weights.buffers.push_back(std::move(vectors_));
    return weights;
  }

 private:
  /// Host memory for one tensor, valid until the next call.
  Result<TensorView> stage(DType dtype, const Shape& shape) {
    TensorView view{nullptr, dtype, shape};
    if (view.size_bytes() > staging_bytes_) {
      staging_.reset();
      staging_bytes_ = view.size_bytes();
      staging_.reset(new (std::align_val_t{kAlignment}, std::nothrow) std::byte[staging_bytes_]);
      if (staging_ == nullptr)
        return fail(ErrorCode::out_of_memory,
                    fmt::format("loading the weights needs {} bytes of memory at once", std::exchange(staging_bytes_, 0)));
    }
    view.data = staging_.get();
    return view;
  }

  /// Reads the tensors [n_i, k] or [n_i] into host memory, stacked to one tensor of `dtype`.
  Result<TensorView> stacked(std::span<const ExpectedTensor> parts, DType dtype) {
    std::int64_t n = 0;
    for (const ExpectedTensor& part : parts) n += part.shape[0];
    Shape shape{n};
    if (parts.front().shape.rank() == 2) shape.append(parts.front().shape[1]);
    BATON_TRY(const TensorView whole, stage(dtype, shape));
    std::int64_t begin = 0;
    for (const ExpectedTensor& part : parts) {
      const TensorView rows = whole.rows(begin, begin + part.shape[0]);
      BATON_TRY_VOID(source_.read(part, rows));
      if (part.interleaved_dim > 0) part_pairs(rows, part.interleaved_dim);
      begin += part.shape[0];
    }
    return whole;
  }

  Result<std::unique_ptr<PackedMatrix>> packed(const LinearTensors& tensors) {
    BATON_TRY(const TensorView whole, stacked(tensors.weights, dtype_));
    return backend_.pack_matrix(whole, dtype_, tensors.weights.front().name);
  }

  /// The bias in `out_dtype`, the dtype of the layer's outputs; without data if there is none.
  Result<ConstTensorView> bias_of(const LinearTensors& tensors, DType out_dtype) {
    if (tensors.biases.empty()) return ConstTensorView{};
    return vectors(tensors.biases, out_dtype, 0);
  }

  /// Loads a matrix inside a layer.
  Result<Linear> linear(const LinearTensors& tensors) {
    BATON_TRY(std::unique_ptr<PackedMatrix> weight, packed(tensors));
    BATON_TRY(const ConstTensorView bias, bias_of(tensors, matmul_dtype_));
    return Linear(std::move(weight), bias);
  }

  /// Loads the same layer of all experts, one expert at a time.
  Result<GroupedLinear> experts(std::span<const LinearTensors> tensors) {
    const auto read = [&](std::int64_t expert) -> Result<ConstTensorView> {
      BATON_TRY(const TensorView whole, stacked(tensors[static_cast<std::size_t>(expert)].weights, dtype_));
      return ConstTensorView(whole);
    };
    std::int64_t n = 0;
    for (const ExpectedTensor& part : tensors.front().weights) n += part.shape[0];
    const Shape shape{static_cast<std::int64_t>(tensors.size()), n, tensors.front().weights.front().shape[1]};
    BATON_TRY(std::unique_ptr<PackedExperts> weights,
              backend_.pack_experts(shape, dtype_, tensors.front().weights.front().name, read));
    return GroupedLinear(std::move(weights));
  }

  /// Loads vectors as one vector of `dtype`, with `offset` added to each element.
  Result<ConstTensorView> vectors(std::span<const ExpectedTensor> parts, DType dtype, float offset) {
    BATON_TRY(const TensorView host, stacked(parts, dtype));
    if (offset != 0)
      for (float& element : host.elements<float>()) element += offset;
    const TensorView device{vectors_.data() + vectors_end_, dtype, host.shape};
    vectors_end_ += aligned(host.size_bytes());
    check(vectors_end_ <= vectors_.size_bytes(), "weights: more vectors than expected");
    backend_.copy_from_host(device, host);
    return ConstTensorView(device);
  }

  Result<NormWeights> norm(const std::optional<NormTensors>& tensors) {
    NormWeights made;
    if (!tensors) return made;
    BATON_TRY(made.weight, vectors({&tensors->weight, 1}, DType::f32, tensors->weight_offset));
    if (tensors->bias) {
      BATON_TRY(made.bias, vectors({&*tensors->bias, 1}, DType::f32, 0));
    }
    return made;
  }

  /// Loads the table. Returns the output layer's matrix if the embeddings are tied, otherwise null.
  Result<std::unique_ptr<PackedMatrix>> load_embedding(ModelWeights& weights) {
    const LinearTensors tensors = embedding_tensors(spec_);
    const ExpectedTensor& table = tensors.weights.front();
    BATON_TRY(const TensorView host, stacked(tensors.weights, dtype_));
    BATON_TRY(Buffer buffer, backend_.allocate(host.size_bytes()));
    const TensorView device = buffer.view(dtype_, table.shape);
    backend_.copy_from_host(device, host);
    weights.embedding = device;
    weights.buffers.push_back(std::move(buffer));
    if (!spec_.tie_embeddings) return nullptr;
    return backend_.pack_matrix(host, dtype_, table.name);
  }

  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
  };

  const ModelSpec& spec_;
  Backend& backend_;
  const DType dtype_;
  const DType matmul_dtype_;  ///< output dtype of the matmuls inside a layer
  WeightSource& source_;
  Buffer vectors_;  ///< all vectors of the model, one after the other
  std::size_t vectors_end_ = 0;
  std::unique_ptr<std::byte[], FreeAligned> staging_;
  std::size_t staging_bytes_ = 0;
};

void check_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "weights: matrices are packed as f32, bf16 or f16");
}

void append(std::vector<ExpectedTensor>& all, const std::optional<NormTensors>& norm) {
  if (!norm) return;
  all.push_back(norm->weight);
  if (norm->bias) all.push_back(*norm->bias);
}

void append(std::vector<ExpectedTensor>& all, const LinearTensors& linear) {
  all.insert(all.end(), linear.weights.begin(), linear.weights.end());
  all.insert(all.end(), linear.biases.begin(), linear.biases.end());
}

std::int64_t n_elements(const LinearTensors& linear) {
  std::int64_t n = 0;
  for (const ExpectedTensor& weight : linear.weights) n += weight.shape.n_elements();
  return n;
}

}  // namespace

std::size_t ModelWeights::size_bytes() const {
  std::size_t total = lm_head.size_bytes();
  for (const Buffer& buffer : buffers) total += buffer.size_bytes();
  for (const LayerWeights& layer : layers)
    total += layer.qkv.size_bytes() + layer.attention_out.size_bytes() + layer.up.size_bytes() + layer.down.size_bytes() +
             layer.router.size_bytes() + layer.expert_up.size_bytes() + layer.expert_down.size_bytes();
  return total;
}

std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec) {
  std::vector<ExpectedTensor> expected;
  append(expected, embedding_tensors(spec));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerTensors layer = layer_tensors(spec, i);
    append(expected, layer.attention_norm);
    append(expected, layer.qkv);
    append(expected, layer.q_norm);
    append(expected, layer.k_norm);
    append(expected, layer.attention_out);
    append(expected, layer.attention_post_norm);
    append(expected, layer.feed_forward_norm);
    append(expected, layer.up);
    append(expected, layer.down);
    append(expected, layer.router);
    for (const LinearTensors& expert : layer.expert_up) append(expected, expert);
    for (const LinearTensors& expert : layer.expert_down) append(expected, expert);
    append(expected, layer.feed_forward_post_norm);
  }
  append(expected, final_norm_tensors(spec));
  append(expected, lm_head_tensors(spec));
  return expected;
}

WeightBytes weight_bytes(const ModelSpec& spec, DType dtype) {
  const std::int64_t table = n_elements(embedding_tensors(spec));
  std::int64_t held = 2 * table;  // a tied output layer is packed from the table; both are in memory
  std::int64_t largest = table;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerTensors layer = layer_tensors(spec, i);
    const auto add = [&](const LinearTensors& linear) {
      held += n_elements(linear);
      largest = std::max(largest, n_elements(linear));
    };
    for (const LinearTensors* linear : {&layer.qkv, &layer.attention_out, &layer.up, &layer.down, &layer.router}) add(*linear);
    for (const LinearTensors& expert : layer.expert_up) add(expert);
    for (const LinearTensors& expert : layer.expert_down) add(expert);
  }
  const auto size = static_cast<std::int64_t>(size_bytes(dtype));
  return {held * size + static_cast<std::int64_t>(all_vector_bytes(expected_tensors(spec))), largest * size};
}

Result<ModelWeights> load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend, DType dtype,
                                  int n_threads) {
  check_dtype(dtype);
  const Parallel parallel(n_threads);
  SafetensorsSource source(checkpoint, parallel);
  BATON_TRY_VOID(source.verify(expected_tensors(spec), spec, dtype));
  return Loader(spec, backend, dtype, source).load();
}

Result<ModelWeights> random_weights(const ModelSpec& spec, Backend& backend, DType dtype, std::uint64_t seed, int n_threads) {
  check_dtype(dtype);
  const Parallel parallel(n_threads);
  RandomSource source(seed, parallel);
  return Loader(spec, backend, dtype, source).load();
}

}  // namespace baton
