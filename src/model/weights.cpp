/// From tensors to a backend's packed matrices, one after the other through one piece of host memory.
#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "core/parallel.h"
#include "model/architectures.h"

namespace baton {
namespace {

/// A layer's tensors as its architecture names them.
struct LayerTensors {
  ExpectedTensor attention_norm, q, k, v, attention_out, feed_forward_norm, gate, up, down;
};

/// The table row of `config`, which read_model_config has found before.
const Architecture& architecture_of(const ModelConfig& config) {
  const auto row = find_architecture(config.architecture);
  check(row.has_value(), "weights: the architecture is not in the table");
  return **row;
}

LayerTensors layer_tensors(const ModelConfig& config, const TensorNames& names, int layer) {
  const std::int64_t d = config.d_model;
  const std::int64_t q_width = std::int64_t{config.n_heads} * config.head_dim;
  const std::int64_t kv_width = std::int64_t{config.n_kv_heads} * config.head_dim;
  const auto row = [&](std::string_view pattern, Shape shape) { return ExpectedTensor{tensor_name(pattern, layer), shape}; };
  return {.attention_norm = row(names.attention_norm, {d}),
          .q = row(names.q, {q_width, d}),
          .k = row(names.k, {kv_width, d}),
          .v = row(names.v, {kv_width, d}),
          .attention_out = row(names.attention_out, {d, q_width}),
          .feed_forward_norm = row(names.feed_forward_norm, {d}),
          .gate = row(names.gate, {config.d_ff, d}),
          .up = row(names.up, {config.d_ff, d}),
          .down = row(names.down, {d, config.d_ff})};
}

ExpectedTensor embedding_tensor(const ModelConfig& config, const TensorNames& names) {
  return {std::string(names.embedding), {config.n_vocab, config.d_model}};
}
ExpectedTensor final_norm_tensor(const ModelConfig& config, const TensorNames& names) {
  return {std::string(names.final_norm), {config.d_model}};
}
ExpectedTensor lm_head_tensor(const ModelConfig& config, const TensorNames& names) {
  return {std::string(names.lm_head), {config.n_vocab, config.d_model}};
}

/// Writes a tensor's elements, converted to the dtype of `out`, which has the tensor's shape.
using Fill = std::function<Result<void>(const ExpectedTensor& tensor, TensorView out)>;

/// Brings tensors from `fill` to the backend. `staging_` holds one matrix, its parts one below the other.
class Loader {
 public:
  Loader(const ModelConfig& config, Backend& backend, DType dtype, Fill fill)
      : config_(config), names_(architecture_of(config).tensors), backend_(backend), dtype_(dtype), fill_(std::move(fill)) {}

  Result<ModelWeights> load() {
    ModelWeights weights;
    weights.dtype = dtype_;
    BATON_TRY_VOID(load_embedding(weights));
    BATON_TRY(Buffer norms, backend_.allocate(norm_stride_bytes() * (2 * static_cast<std::size_t>(config_.n_layers) + 1)));
    weights.layers.reserve(static_cast<std::size_t>(config_.n_layers));
    for (int i = 0; i < config_.n_layers; ++i) {
      const LayerTensors tensors = layer_tensors(config_, names_, i);
      LayerWeights& layer = weights.layers.emplace_back();
      BATON_TRY(layer.attention_norm, norm(tensors.attention_norm, norms, 2 * i));
      BATON_TRY(layer.qkv, matrix({tensors.q, tensors.k, tensors.v}));
      BATON_TRY(layer.attention_out, matrix({tensors.attention_out}));
      BATON_TRY(layer.feed_forward_norm, norm(tensors.feed_forward_norm, norms, 2 * i + 1));
      BATON_TRY(layer.gate_up, matrix({tensors.gate, tensors.up}));
      BATON_TRY(layer.down, matrix({tensors.down}));
    }
    BATON_TRY(weights.final_norm, norm(final_norm_tensor(config_, names_), norms, 2 * config_.n_layers));
    weights.buffers.push_back(std::move(norms));
    if (!config_.tie_embeddings) {
      BATON_TRY(weights.lm_head, matrix({lm_head_tensor(config_, names_)}));
    }
    return weights;
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  std::size_t norm_stride_bytes() const {
    return (static_cast<std::size_t>(config_.d_model) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Host memory for a tensor, valid until the next call.
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

  /// The tensors [n_i, k] one below the other, in host memory.
  Result<ConstTensorView> stacked(std::span<const ExpectedTensor> parts) {
    std::int64_t n = 0;
    for (const ExpectedTensor& part : parts) n += part.shape[0];
    BATON_TRY(const TensorView whole, stage(dtype_, {n, parts.front().shape[1]}));
    std::int64_t begin = 0;
    for (const ExpectedTensor& part : parts) {
      BATON_TRY_VOID(fill_(part, whole.rows(begin, begin + part.shape[0])));
      begin += part.shape[0];
    }
    return ConstTensorView(whole);
  }

  Result<std::unique_ptr<PackedMatrix>> matrix(std::initializer_list<ExpectedTensor> parts) {
    BATON_TRY(const ConstTensorView whole, stacked({parts.begin(), parts.size()}));
    return backend_.pack_matrix(whole, dtype_, parts.begin()->name);
  }

  /// The `index`-th vector of `norms`.
  Result<ConstTensorView> norm(const ExpectedTensor& tensor, const Buffer& norms, int index) {
    BATON_TRY(const TensorView host, stage(DType::f32, tensor.shape));
    BATON_TRY_VOID(fill_(tensor, host));
    const TensorView device{norms.data() + static_cast<std::size_t>(index) * norm_stride_bytes(), DType::f32, tensor.shape};
    backend_.copy_from_host(device, host);
    return ConstTensorView(device);
  }

  /// The table, and the output layer where it is the same matrix.
  Result<void> load_embedding(ModelWeights& weights) {
    const ExpectedTensor tensor = embedding_tensor(config_, names_);
    BATON_TRY(const ConstTensorView host, stacked({&tensor, 1}));
    BATON_TRY(Buffer buffer, backend_.allocate(host.size_bytes()));
    const TensorView device = buffer.view(dtype_, tensor.shape);
    backend_.copy_from_host(device, host);
    weights.embedding = device;
    weights.buffers.push_back(std::move(buffer));
    if (!config_.tie_embeddings) return {};
    BATON_TRY(weights.lm_head, backend_.pack_matrix(host, dtype_, tensor.name));
    return {};
  }

  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
  };

  const ModelConfig& config_;
  const TensorNames names_;
  Backend& backend_;
  const DType dtype_;
  const Fill fill_;
  std::unique_ptr<std::byte[], FreeAligned> staging_;
  std::size_t staging_bytes_ = 0;
};

constexpr std::int64_t kGrain = 1 << 16;  // elements a thread converts at least

/// Writes the elements of `in` to `out`, of the same shape and another or the same float dtype. `in` may be unaligned.
void convert(const Parallel& parallel, ConstTensorView in, TensorView out) {
  visit_float(in.dtype, [&]<class From>(From) {
    visit_float(out.dtype, [&]<class To>(To) {
      parallel.for_ranges(in.shape.n_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        const std::byte* from = in.data + static_cast<std::size_t>(begin) * sizeof(From);
        To* to = out.elements<To>().data() + begin;
        if constexpr (std::is_same_v<From, To>) {
          std::memcpy(to, from, static_cast<std::size_t>(end - begin) * sizeof(To));
        } else {
          for (std::int64_t i = 0; i < end - begin; ++i) {
            From value;
            std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
            to[i] = static_cast<To>(static_cast<float>(value));
          }
        }
      });
    });
  });
}

/// Every expected tensor is there, of its shape and of a float type.
Result<void> check_tensors(const std::vector<ExpectedTensor>& expected, const Checkpoint& checkpoint,
                           std::string_view architecture) {
  std::vector<std::string_view> missing;
  for (const ExpectedTensor& tensor : expected)
    if (!checkpoint.contains(tensor.name)) missing.push_back(tensor.name);
  if (!missing.empty()) {
    const std::string others = missing.size() == 1 ? "" : fmt::format(" and {} others", missing.size() - 1);
    return fail(ErrorCode::not_found, fmt::format("the checkpoint lacks tensor '{}'{} of the {} that {} has", missing.front(),
                                                  others, expected.size(), architecture));
  }
  for (const ExpectedTensor& tensor : expected) {
    BATON_TRY(const ConstTensorView view, checkpoint.load(tensor.name, tensor.shape));
    if (view.dtype != DType::f32 && view.dtype != DType::bf16 && view.dtype != DType::f16)
      return fail(ErrorCode::unsupported, fmt::format("tensor '{}' is {}; weights must be float32, bfloat16 or float16",
                                                      tensor.name, to_string(view.dtype)));
  }
  return {};
}

/// One line about tensors that nobody reads: they may be a sign of a config that does not belong to the checkpoint.
void log_unused(const std::vector<ExpectedTensor>& expected, const Checkpoint& checkpoint, const TensorNames& names) {
  std::set<std::string_view> used;
  for (const ExpectedTensor& tensor : expected) used.insert(tensor.name);
  std::size_t n_unused = 0;
  std::string first;
  for (const std::string& name : checkpoint.names()) {
    if (used.contains(name) || name.ends_with(names.ignored_suffix) || name == names.lm_head) continue;
    if (n_unused++ == 0) first = name;
  }
  if (n_unused > 0) log::warning("event=unused_tensors count={} first={}", n_unused, first);
}

/// One line for each stored dtype whose matrices lose bits of their significands.
void log_conversions(const std::vector<ExpectedTensor>& expected, const Checkpoint& checkpoint, DType dtype) {
  if (dtype != DType::bf16) return;
  for (const DType stored : {DType::f16, DType::f32}) {
    const auto n_tensors = std::ranges::count_if(expected, [&](const ExpectedTensor& tensor) {
      const auto found = checkpoint.load(tensor.name, tensor.shape);
      return tensor.shape.rank() == 2 && found && found->dtype == stored;
    });
    if (n_tensors > 0)
      log::warning("event=weights_converted from={} to={} tensors={} effect=\"{} bits of each significand become 8\"",
                   to_string(stored), to_string(dtype), n_tensors, stored == DType::f16 ? 11 : 24);
  }
}

/// A well-mixed number for each (key, index). Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Uniform numbers with the variance 1/k of a matrix [n, k], so that a product keeps the size of what it multiplies; norms
/// are 1.
void fill_randomly(const Parallel& parallel, std::uint64_t key, TensorView out) {
  visit_float(out.dtype, [&]<class To>(To) {
    const auto elements = out.elements<To>();
    if (out.shape.rank() == 1) return std::fill(elements.begin(), elements.end(), static_cast<To>(1.0f));
    const float half_width = std::sqrt(3.0f / static_cast<float>(out.shape[1]));
    parallel.for_ranges(out.shape.n_elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto bits = static_cast<std::int32_t>(mixed(key, static_cast<std::uint64_t>(i)) >> 40);  // 24 bits: exact in f32
        elements[static_cast<std::size_t>(i)] = static_cast<To>(half_width * (static_cast<float>(bits) * 0x1p-23f - 1.0f));
      }
    });
  });
}

void check_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "weights: matrices are packed as f32 or bf16");
}

}  // namespace

std::size_t ModelWeights::size_bytes() const {
  std::size_t total = lm_head->size_bytes;
  for (const Buffer& buffer : buffers) total += buffer.size_bytes();
  for (const LayerWeights& layer : layers)
    total += layer.qkv->size_bytes + layer.attention_out->size_bytes + layer.gate_up->size_bytes + layer.down->size_bytes;
  return total;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const TensorNames& names = architecture_of(config).tensors;
  std::vector<ExpectedTensor> expected = {embedding_tensor(config, names)};
  for (int i = 0; i < config.n_layers; ++i) {
    LayerTensors layer = layer_tensors(config, names, i);
    for (ExpectedTensor* tensor : {&layer.attention_norm, &layer.q, &layer.k, &layer.v, &layer.attention_out,
                                   &layer.feed_forward_norm, &layer.gate, &layer.up, &layer.down})
      expected.push_back(std::move(*tensor));
  }
  expected.push_back(final_norm_tensor(config, names));
  if (!config.tie_embeddings) expected.push_back(lm_head_tensor(config, names));
  return expected;
}

WeightBytes weight_bytes(const ModelConfig& config, DType dtype) {
  const std::int64_t d = config.d_model;
  const std::int64_t embedding = d * config.n_vocab;
  const std::int64_t n_norms = (2 * std::int64_t{config.n_layers} + 1) * d;
  // A tied output layer is packed from the table, and both are held.
  const std::int64_t n_matrix_elements = config.n_parameters() - n_norms + (config.tie_embeddings ? embedding : 0);
  const std::int64_t largest = std::max(embedding, 2 * std::int64_t{config.d_ff} * d);
  const auto size = static_cast<std::int64_t>(size_bytes(dtype));
  return {n_matrix_elements * size + n_norms * 4, largest * size};
}

Result<bool> ties_embeddings(const ModelConfig& config, const Checkpoint& checkpoint) {
  const TensorNames& names = architecture_of(config).tensors;
  if (!config.tie_embeddings || !checkpoint.contains(names.lm_head)) return config.tie_embeddings;
  const ExpectedTensor expected_head = lm_head_tensor(config, names);
  const ExpectedTensor expected_embedding = embedding_tensor(config, names);
  BATON_TRY(const ConstTensorView head, checkpoint.load(expected_head.name, expected_head.shape));
  BATON_TRY(const ConstTensorView embedding, checkpoint.load(expected_embedding.name, expected_embedding.shape));
  const bool is_same = head.dtype == embedding.dtype && std::memcmp(head.data, embedding.data, head.size_bytes()) == 0;
  if (is_same) {
    checkpoint.drop_pages(head);
    return true;
  }
  log::warning(
      "event=output_layer_not_tied tensor={} reason=\"config.json ties it to {}, and the checkpoint holds another: both are "
      "used, each as it is\"",
      names.lm_head, names.embedding);
  return false;
}

Result<ModelWeights> load_weights(const ModelConfig& config, const Checkpoint& checkpoint, Backend& backend, DType dtype) {
  check_dtype(dtype);
  const std::vector<ExpectedTensor> expected = expected_tensors(config);
  BATON_TRY_VOID(check_tensors(expected, checkpoint, config.architecture));
  log_unused(expected, checkpoint, architecture_of(config).tensors);
  log_conversions(expected, checkpoint, dtype);
  const Parallel parallel(0);
  Loader loader(config, backend, dtype, [&](const ExpectedTensor& tensor, TensorView out) -> Result<void> {
    BATON_TRY(const ConstTensorView stored, checkpoint.load(tensor.name, tensor.shape));
    convert(parallel, stored, out);
    checkpoint.drop_pages(stored);
    return {};
  });
  return loader.load();
}

Result<ModelWeights> random_weights(const ModelConfig& config, Backend& backend, DType dtype, std::uint64_t seed) {
  check_dtype(dtype);
  const Parallel parallel(0);
  std::uint64_t n_filled = 0;
  Loader loader(config, backend, dtype, [&](const ExpectedTensor&, TensorView out) -> Result<void> {
    fill_randomly(parallel, mixed(seed, n_filled++), out);
    return {};
  });
  return loader.load();
}

}  // namespace baton
