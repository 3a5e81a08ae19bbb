/// Loads tensors one after the other and packs them with the backend: through one host buffer, or a few rows at a time.
#include "model/weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/log.h"
#include "core/one_line.h"
#include "core/parallel.h"
#include "kernels/named_kernels.h"
#include "kernels/random_packing.h"
#include "kernels/row_packing.h"
#include "model/model_tensors.h"
#include "model/source/head_matrices.h"
#include "model/source/random.h"
#include "model/source/rounding_source.h"
#include "model/source/safetensors.h"
#include "model/source/stacked_matrix.h"

namespace baton {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned(std::size_t n_bytes) { return (n_bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Memory for all vectors (norms and biases) in f32.
std::size_t all_vector_bytes(std::span<const TensorPart> parts) {
  std::size_t total = 0;
  for (const TensorPart& part : parts)
    if (part.tensor.kind != ExpectedTensor::Kind::matrix)
      total += aligned(static_cast<std::size_t>(part.shape()[0]) * sizeof(float));
  return total;
}

/// "model.layers.*.mlp.gate" of "model.layers.12.mlp.gate.weight".
std::string module_pattern(std::string_view name) {
  std::string pattern;
  for (const char c : name.substr(0, name.rfind('.'))) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit)
      pattern += c;
    else if (pattern.ends_with('.'))
      pattern += '*';
    else if (!pattern.ends_with(".*"))
      pattern += c;
  }
  return pattern;
}

ModelRank rank_of(const Backend& backend) {
  const BackendInfo info = backend.info();
  return {info.rank, info.world_size};
}

/// Loads a rank's parts of tensors from a source to its backend. `staging_` holds one matrix, its parts stacked.
class Loader {
 public:
  /// `spec` is the whole model's. `has_int8_x`: see load_weights.
  Loader(const ModelSpec& spec, Backend& backend, DType dtype, WeightSource& source, bool has_int8_x)
      : spec_(spec),
        rank_(rank_of(backend)),
        backend_(backend),
        row_packing_(dynamic_cast<RowPacking*>(&backend)),
        random_packing_(dynamic_cast<RandomPacking*>(&backend)),
        dtype_(dtype),
        matmul_dtype_(backend.capabilities().rounds_matmul_outputs ? dtype : DType::f32),
        source_(source),
        has_int8_x_(has_int8_x) {
    check(!has_int8_x || backend.capabilities().has_int8_x, "weights: the backend does not round x to 8 bits");
  }

  Result<ModelWeights> load() {
    ModelWeights weights;
    weights.dtype = dtype_;
    BATON_TRY(std::unique_ptr<PackedMatrix> lm_head, load_embedding(weights));
    BATON_TRY(vectors_, backend_.allocate(all_vector_bytes(tensor_parts(spec_, rank_))));
    weights.layers.reserve(spec_.layers.size());
    Result<void> loaded;
    const auto load_part = [&](const auto& tensors, auto& weight) {
      if (loaded) loaded = load_into(weight, tensors);
    };
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      visit_layer(load_part, layer_tensors(spec_, rank_, i), weights.layers.emplace_back());
      BATON_TRY_VOID(loaded);
    }
    if (spec_.used_mtp() != nullptr) visit_mtp(load_part, mtp_tensors(spec_), weights.mtp.emplace());
    BATON_TRY_VOID(loaded);
    BATON_TRY_VOID(load_into(weights.final_norm, std::optional(final_norm_tensors(spec_))));
    const LinearTensors lm_head_parts = lm_head_tensors(spec_, rank_);
    if (lm_head == nullptr) {
      BATON_TRY(lm_head, packed(lm_head_parts));
    }
    BATON_TRY(const ConstTensorView lm_head_bias, bias_of(lm_head_parts, DType::f32));
    weights.lm_head = Linear(std::move(lm_head), lm_head_bias, lm_head_parts.split);
    if (weights.lm_head.weight().scheme == WeightScheme::dense) note_dense(lm_head_parts);
    weights.has_int8_x = takes_int8_x_;
    weights.dense_modules = std::move(dense_modules_);
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

  /// Reads parts [n_i, k] or [n_i] of tensors into host memory, stacked to one tensor of `dtype`.
  Result<TensorView> stacked(std::span<const TensorPart> parts, DType dtype) {
    std::int64_t n = 0;
    for (const TensorPart& part : parts) n += part.shape()[0];
    Shape shape{n};
    if (parts.front().shape().rank() == 2) shape.append(parts.front().shape()[1]);
    BATON_TRY(const TensorView whole, stage(dtype, shape));
    BATON_TRY_VOID(read_below(parts, whole));
    return whole;
  }

  /// The same into memory of the host.
  Result<void> read_below(std::span<const TensorPart> parts, const TensorView& whole) {
    std::int64_t begin = 0;
    for (const TensorPart& part : parts) {
      const std::int64_t end = begin + part.rows.size();
      if (part.rows.size() > 0) {
        const TensorView rows = whole.rows(begin, end);
        BATON_TRY_VOID(source_.read(part, rows));
        part_pairs(rows, part.tensor);
      }
      const TensorView zeros = whole.rows(end, end + part.n_zero_rows);
      if (part.n_zero_rows > 0) std::memset(zeros.data, 0, zeros.size_bytes());
      begin = end + part.n_zero_rows;
    }
    return {};
  }

  /// Matrices in host memory as they are stored, dense ones in `dtype_`; valid until the next call.
  Result<StoredMatrix> stored(const LinearTensors& tensors) {
    BATON_TRY(const StackedForm form, stacked_form(tensors.weights, source_));
    if (form.form.scheme == WeightScheme::dense) {
      BATON_TRY(const TensorView whole, stacked(tensors.weights, dtype_));
      return StoredMatrix(whole);
    }
    BATON_TRY(const TensorView memory, stage(DType::u8, {static_cast<std::int64_t>(form.size_bytes())}));
    return read_stacked(tensors.weights, form, source_, memory.data);
  }

  void ask_for_int8_x(StoredMatrix& weight) {
    weight.has_int8_x = has_int8_x_ && (weight.scheme == WeightScheme::i8 || weight.scheme == WeightScheme::i4);
    takes_int8_x_ = takes_int8_x_ || weight.has_int8_x;
  }

  /// What the backend draws of a stack; nothing if it does not, or the source has other numbers.
  std::vector<RandomRows> random_rows(std::span<const TensorPart> parts) const {
    const auto* const source = dynamic_cast<const RandomSource*>(&source_);
    std::vector<RandomRows> rows;
    if (random_packing_ == nullptr || source == nullptr) return rows;
    for (const TensorPart& part : parts) {
      const auto form = source->form_of(part.tensor);
      const std::optional<RandomRows> drawn = source->rows_of(part);
      if (!form || form->scheme != WeightScheme::dense || !drawn) return {};
      rows.push_back(*drawn);
    }
    return rows;
  }

  Result<std::unique_ptr<PackedMatrix>> packed(const LinearTensors& tensors) {
    const std::string& name = tensors.weights.front().tensor.name;
    if (row_packing_ != nullptr) {
      BATON_TRY(const StackedForm form, stacked_form(tensors.weights, source_));
      BATON_TRY(const std::optional<StackedValues> values, StackedValues::of(tensors.weights, form, source_));
      if (values) {
        BATON_TRY(const TensorView memory, stage(DType::u8, {static_cast<std::int64_t>(values->rest_bytes())}));
        BATON_TRY(StoredMatrix rest, values->read_rest(source_, memory.data));
        ask_for_int8_x(rest);
        const auto read = [&](std::int64_t begin, std::int64_t end, std::byte* to) { return values->read(begin, end, to); };
        return row_packing_->pack_rows(rest, read, dtype_, name);
      }
    }
    if (const std::vector<RandomRows> rows = random_rows(tensors.weights); !rows.empty())
      return random_packing_->pack_random(rows, tensors.weights.front().shape()[1], dtype_, name);
    BATON_TRY(StoredMatrix weight, stored(tensors));
    ask_for_int8_x(weight);
    return backend_.pack_matrix(weight, dtype_, name);
  }

  /// The bias in `out_dtype`, the dtype of the layer's outputs; without data if there is none.
  Result<ConstTensorView> bias_of(const LinearTensors& tensors, DType out_dtype) {
    if (tensors.biases.empty()) return ConstTensorView{};
    return vectors(tensors.biases, out_dtype, 0);
  }

  void note_dense(const LinearTensors& tensors) {
    for (const TensorPart& part : tensors.weights) dense_modules_.insert(module_pattern(part.tensor.name));
  }

  /// Loads a matrix inside a layer, if there are tensors.
  Result<void> load_into(Linear& made, const LinearTensors& tensors) {
    if (tensors.weights.empty()) return {};
    BATON_TRY(std::unique_ptr<PackedMatrix> weight, packed(tensors));
    BATON_TRY(const ConstTensorView bias, bias_of(tensors, matmul_dtype_));
    if (weight->scheme == WeightScheme::dense) note_dense(tensors);
    made = Linear(std::move(weight), bias, tensors.split);
    return {};
  }

  /// Loads matrices of heads, which are dense whatever they are stored as, if there are tensors.
  Result<void> load_into(HeadLinear& made, const HeadTensors& tensors) {
    if (tensors.heads.empty()) return {};
    const TensorPart& first = tensors.heads.front();
    Shape shape{static_cast<std::int64_t>(tensors.heads.size())};
    for (const std::size_t i : tensors.is_transposed ? std::array{1, 0} : std::array{0, 1}) shape.append(first.shape()[i]);
    BATON_TRY(const TensorView all, stage(dtype_, shape));
    BATON_TRY_VOID(read_heads(tensors.heads, tensors.is_transposed, source_, all));
    BATON_TRY(std::unique_ptr<PackedHeads> weights, backend_.pack_heads(all, first.tensor.name));
    made = HeadLinear(std::move(weights));
    return {};
  }

  /// Loads the same layer of all experts, one expert at a time, if there are experts.
  Result<void> load_into(GroupedLinear& made, std::span<const LinearTensors> tensors) {
    if (tensors.empty()) return {};
    const auto read = [&](std::int64_t expert) { return stored(tensors[static_cast<std::size_t>(expert)]); };
    const LinearTensors& first = tensors.front();
    const Shape shape{static_cast<std::int64_t>(tensors.size()), first.n(), first.weights.front().columns.size()};
    BATON_TRY(std::unique_ptr<PackedExperts> weights,
              backend_.pack_experts(shape, dtype_, first.weights.front().tensor.name, read));
    if (weights->scheme == WeightScheme::dense) note_dense(first);
    BATON_TRY(const ConstTensorView bias, biases_of(tensors));
    made = GroupedLinear(std::move(weights), bias, first.split);
    return {};
  }

  /// The biases of all experts, [n_experts, n] f32; without data if there are none.
  Result<ConstTensorView> biases_of(std::span<const LinearTensors> experts) {
    std::vector<TensorPart> parts;
    for (const LinearTensors& expert : experts) parts.insert(parts.end(), expert.biases.begin(), expert.biases.end());
    if (parts.empty()) return ConstTensorView{};
    BATON_TRY(const ConstTensorView all, vectors(parts, DType::f32, 0));
    return ConstTensorView{all.data, DType::f32, {static_cast<std::int64_t>(experts.size()), experts.front().n()}};
  }

  /// Loads vectors as one vector of `dtype`, with `offset` added to each element.
  Result<ConstTensorView> vectors(std::span<const TensorPart> parts, DType dtype, float offset) {
    BATON_TRY(const TensorView host, stacked(parts, dtype));
    if (offset != 0)
      for (float& element : host.elements<float>()) element += offset;
    const TensorView device{vectors_.data() + vectors_end_, dtype, host.shape};
    vectors_end_ += aligned(host.size_bytes());
    check(vectors_end_ <= vectors_.size_bytes(), "weights: more vectors than expected");
    backend_.copy_from_host(device, host);
    return ConstTensorView(device);
  }

  Result<void> load_into(NormWeights& made, const std::optional<NormTensors>& tensors) {
    if (!tensors) return {};
    BATON_TRY(made.weight, vectors({&tensors->weight, 1}, DType::f32, tensors->weight_offset));
    if (tensors->bias) {
      BATON_TRY(made.bias, vectors({&*tensors->bias, 1}, DType::f32, 0));
    }
    return {};
  }

  /// Loads the table. Returns the output layer's matrix if the embeddings are tied, otherwise null.
  Result<std::unique_ptr<PackedMatrix>> load_embedding(ModelWeights& weights) {
    const LinearTensors tensors = embedding_tensors(spec_, rank_);
    const TensorPart& table = tensors.weights.front();
    TensorView host{nullptr, dtype_, table.shape()};
    BATON_TRY(Buffer buffer, backend_.allocate(host.size_bytes()));
    const TensorView device = buffer.view(dtype_, table.shape());
    if (backend_.capabilities().shares_host_memory) {
      host = device;
      BATON_TRY_VOID(read_below(tensors.weights, host));
    } else {
      BATON_TRY(host, stacked(tensors.weights, dtype_));
      backend_.copy_from_host(device, host);
    }
    weights.embedding = device;
    weights.buffers.push_back(std::move(buffer));
    if (!spec_.tie_embeddings) return nullptr;
    const LinearTensors lm_head = lm_head_tensors(spec_, rank_);
    BATON_TRY(const MatrixForm form, source_.form_of(lm_head.weights.front().tensor));
    if (rank_.world_size > 1 || form.scheme != WeightScheme::dense) return packed(lm_head);
    return backend_.pack_matrix(host, dtype_, table.tensor.name);
  }

  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
  };

  const ModelSpec& spec_;
  const ModelRank rank_;
  Backend& backend_;
  RowPacking* const row_packing_;        ///< the backend, or null
  RandomPacking* const random_packing_;  ///< the same
  const DType dtype_;
  const DType matmul_dtype_;  ///< output dtype of the matmuls inside a layer
  WeightSource& source_;
  const bool has_int8_x_;
  bool takes_int8_x_ = false;  ///< some matrices do
  Buffer vectors_;             ///< all vectors of the model, one after the other
  std::size_t vectors_end_ = 0;
  std::set<std::string> dense_modules_;
  std::unique_ptr<std::byte[], FreeAligned> staging_;
  std::size_t staging_bytes_ = 0;
};

/// A source, or the same source with its matrices rounded.
class MaybeRounded {
 public:
  MaybeRounded(WeightSource& dense, const ModelSpec& spec, const WeightRounding& rounding, const Parallel& parallel)
      : source_(&dense) {
    if (rounding.is_on())
      source_ = &rounded_.emplace(dense, rounding, unrounded_matrices(spec, rounding.rounds_lm_head), parallel);
  }
  MaybeRounded(const MaybeRounded&) = delete;
  MaybeRounded& operator=(const MaybeRounded&) = delete;

  WeightSource& get() const { return *source_; }

 private:
  WeightSource* source_;
  std::optional<RoundingSource> rounded_;
};

void check_dtype(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "weights: matrices are packed as f32, bf16 or f16");
}

/// The matrices of one scheme.
struct Tally {
  std::int64_t n_matrices = 0;
  std::size_t n_bytes = 0;
  std::set<std::string> kernels = {};
};

/// Of the layers' matrices, and of the output layer where it counts.
std::map<WeightScheme, Tally> tallies_of(const ModelWeights& weights, bool counts_lm_head) {
  std::map<WeightScheme, Tally> tallies;
  const auto add = [&](const auto& packed, std::int64_t n) {
    Tally& tally = tallies[packed.scheme];
    tally.n_matrices += n;
    tally.n_bytes += packed.size_bytes;
    const auto* named = dynamic_cast<const NamedKernels*>(&packed);
    if (named != nullptr && packed.scheme != WeightScheme::dense) tally.kernels.insert(named->kernels);
  };
  const auto count = [&]<class Weight>(const Weight& weight) {
    if constexpr (std::is_same_v<Weight, Linear>) {
      if (!weight.is_empty()) add(weight.weight(), 1);
    } else if constexpr (std::is_same_v<Weight, GroupedLinear>) {
      if (!weight.is_empty()) add(weight.weights(), weight.weights().n_experts);
    } else if constexpr (std::is_same_v<Weight, HeadLinear>) {
      if (weight.is_empty()) return;
      tallies[WeightScheme::dense].n_matrices += weight.weights().n_heads;
      tallies[WeightScheme::dense].n_bytes += weight.size_bytes();
    }
  };
  for (const LayerWeights& layer : weights.layers) visit_layer(count, layer);
  if (counts_lm_head) count(weights.lm_head);
  return tallies;
}

std::string_view name_of_scheme(WeightScheme scheme, DType dtype) {
  return scheme == WeightScheme::dense ? to_string(dtype) : to_string(scheme);
}

/// Logs one line for each scheme with its kernels, the dense one with the names of its matrices, unless all matrices are dense.
void log_schemes(const ModelWeights& weights) {
  constexpr std::size_t kMostNames = 8;
  const auto tallies = tallies_of(weights, true);
  if (tallies.size() == 1 && tallies.contains(WeightScheme::dense)) return;
  std::string names;
  std::size_t n_names = 0;
  for (const std::string& name : weights.dense_modules)
    if (n_names++ < kMostNames) names += (names.empty() ? "" : ",") + name;
  if (n_names > kMostNames) names += ",...";
  for (const auto& [scheme, tally] : tallies)
    log::info("event=weights scheme={} matrices={} mb={:.1f}{}", name_of_scheme(scheme, weights.dtype), tally.n_matrices,
              static_cast<double>(tally.n_bytes) / 1e6,
              scheme == WeightScheme::dense ? " modules=" + log_value(names)
                                            : " kernels=" + log_value(fmt::format("{}", fmt::join(tally.kernels, " or "))));
}

}  // namespace

std::size_t ModelWeights::size_bytes() const {
  std::size_t total = lm_head.size_bytes();
  for (const Buffer& buffer : buffers) total += buffer.size_bytes();
  const auto add = [&]<class Weight>(const Weight& weight) {
    if constexpr (!std::is_same_v<Weight, NormWeights>) total += weight.size_bytes();  // norms are in the buffers
  };
  for (const LayerWeights& layer : layers) visit_layer(add, layer);
  if (mtp) visit_mtp(add, *mtp);
  return total;
}

std::string ModelWeights::scheme_text() const {
  const auto tallies = tallies_of(*this, false);
  std::vector<std::pair<WeightScheme, Tally>> schemes(tallies.begin(), tallies.end());
  // Dense ones beside others (routers) are not what the weights are stored in.
  if (schemes.size() > 1) std::erase_if(schemes, [](const auto& each) { return each.first == WeightScheme::dense; });
  std::ranges::sort(schemes, std::greater(), [](const auto& each) { return each.second.n_bytes; });
  std::string text;
  for (const auto& [scheme, tally] : schemes)
    text += (text.empty() ? "" : " and ") + std::string(name_of_scheme(scheme, dtype));
  return text;
}

bool takes_f8_rows(const ModelSpec& spec, const ModelWeights& weights) {
  constexpr std::int64_t kMostRows = kNoF8Rows - 1;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const LayerWeights& of_layer = weights.layers[i];
    const auto takes = [](const Linear& linear) { return !linear.is_empty() && linear.takes_f8(kMostRows); };
    const bool has_experts = layer.feed_forward.has_experts();
    const bool takes_activated = layer.feed_forward.is_gated() && takes(of_layer.down);
    const bool takes_fed = !has_experts && takes(of_layer.up);
    const bool takes_normed =
        !(layer.is_parallel && has_experts) && (takes(of_layer.qkv) || takes(of_layer.attention_gate) ||
                                                takes(of_layer.recurrent_in) || takes(of_layer.recurrent_gates));
    const bool has_gated_out = layer.attention.has_output_gate || layer.delta || layer.mamba2;
    const bool takes_gated = has_gated_out && takes(of_layer.attention_out);
    const bool is_rms = layer.norm.kind == NormSpec::Kind::rms;
    if (takes_activated || takes_gated || takes(of_layer.q_b) || (is_rms && (takes_normed || takes_fed))) return true;
  }
  return false;
}

std::vector<ExpectedTensor> expected_tensors(const ModelSpec& spec) {
  std::vector<ExpectedTensor> expected;
  std::set<std::pair<std::string, std::int32_t>> names;  // some are read for several weights
  for (TensorPart& part : tensor_parts(spec, ModelRank{}))
    if (names.emplace(part.tensor.name, part.tensor.expert).second) expected.push_back(std::move(part.tensor));
  return expected;
}

WeightBytes weight_bytes(const ModelSpec& spec, DType dtype, ModelRank rank, const Checkpoint* checkpoint,
                         const WeightRounding& rounding) {
  WeightBytes bytes;
  const Parallel parallel(1);
  RandomSource drawn(0, {}, parallel, spec.quantization, unrounded_matrices(spec, false));
  std::optional<SafetensorsSource> stored;
  if (checkpoint != nullptr) stored.emplace(*checkpoint, spec.quantization, parallel);
  const MaybeRounded source(stored ? static_cast<WeightSource&>(*stored) : drawn, spec, rounding, parallel);
  bool is_table = true;  // the first one, the embedding, is dense, though a tied output layer of its name may not be
  const auto add = [&](std::span<const LinearTensors> linears, bool are_experts) {
    for (const LinearTensors& linear : linears) {
      if (linear.weights.empty()) continue;
      // Loading names what is wrong with a matrix.
      const auto form = std::exchange(is_table, false) ? Result<StackedForm>() : stacked_form(linear.weights, source.get());
      const bool is_dense = !form || form->form.scheme == WeightScheme::dense;
      const std::int64_t size = is_dense ? linear.n_elements() * static_cast<std::int64_t>(size_bytes(dtype))
                                         : static_cast<std::int64_t>(form->size_bytes());
      bytes.held += size;
      const WeightScheme scheme = is_dense ? WeightScheme::dense : form->form.scheme;
      bytes.held_as[scheme] += size;
      bytes.has_integers = bytes.has_integers || (!are_experts && (scheme == WeightScheme::i8 || scheme == WeightScheme::i4));
      bytes.staged = std::max(bytes.staged, size);
    }
  };
  const auto add_heads = [&](const HeadTensors& tensors) {
    std::int64_t size = 0;
    for (const TensorPart& head : tensors.heads)
      size += head.shape().n_elements() * static_cast<std::int64_t>(size_bytes(dtype));
    bytes.held += size;
    bytes.held_as[WeightScheme::dense] += size;
    bytes.staged = std::max(bytes.staged, size);
  };
  // A tied output layer counts: it is packed from the table, and both are in memory.
  for_each_weight(spec, rank, [&]<class Tensors>(const Tensors& tensors) {
    if constexpr (std::is_same_v<Tensors, LinearTensors>) add({&tensors, 1}, false);
    if constexpr (std::is_same_v<Tensors, std::vector<LinearTensors>>) add(tensors, true);
    if constexpr (std::is_same_v<Tensors, HeadTensors>) add_heads(tensors);
  });
  const auto vectors = static_cast<std::int64_t>(all_vector_bytes(tensor_parts(spec, rank)));
  bytes.held += vectors;
  bytes.held_as[WeightScheme::dense] += vectors;
  return bytes;
}

Result<void> check_weights(const ModelSpec& spec, const Checkpoint& checkpoint, ModelRank rank,
                           const WeightRounding& rounding) {
  const Parallel parallel(1);
  SafetensorsSource stored(checkpoint, spec.quantization, parallel);
  BATON_TRY_VOID(stored.check_tensors(expected_tensors(spec), spec));
  const MaybeRounded source(stored, spec, rounding, parallel);
  Result<void> checked;
  bool is_table = true;  // the first one, the embedding, is dense whatever a tied output layer of its name is
  const auto check_form = [&](std::span<const LinearTensors> linears) {
    for (const LinearTensors& linear : linears)
      if (!linear.weights.empty() && !std::exchange(is_table, false) && checked)
        if (auto form = stacked_form(linear.weights, source.get()); !form) checked = tl::unexpected(std::move(form.error()));
  };
  const auto check_heads = [&](const HeadTensors& tensors) {
    for (const TensorPart& head : tensors.heads)
      if (auto form = stacked_form({&head, 1}, source.get()); !form && checked)
        checked = tl::unexpected(std::move(form.error()));
  };
  for_each_weight(spec, rank, [&]<class Tensors>(const Tensors& tensors) {
    if constexpr (std::is_same_v<Tensors, LinearTensors>) check_form({&tensors, 1});
    if constexpr (std::is_same_v<Tensors, std::vector<LinearTensors>>) check_form(tensors);
    if constexpr (std::is_same_v<Tensors, HeadTensors>) check_heads(tensors);
  });
  return checked;
}

Result<ModelWeights> load_weights(const ModelSpec& spec, const Checkpoint& checkpoint, Backend& backend, DType dtype,
                                  int n_threads, const WeightRounding& rounding, bool has_int8_x) {
  check_dtype(dtype);
  BATON_TRY_VOID(check_weights(spec, checkpoint, rank_of(backend), rounding));
  const Parallel parallel(n_threads);
  SafetensorsSource stored(checkpoint, spec.quantization, parallel);
  const bool is_first_rank = rank_of(backend).rank == 0;  // the others have the same to say
  if (is_first_rank) stored.log_differences(expected_tensors(spec), spec, dtype);
  const MaybeRounded source(stored, spec, rounding, parallel);
  BATON_TRY(ModelWeights weights, Loader(spec, backend, dtype, source.get(), has_int8_x).load());
  if (is_first_rank) log_schemes(weights);
  return weights;
}

Result<ModelWeights> random_weights(const ModelSpec& spec, Backend& backend, DType dtype, std::uint64_t seed, int n_threads,
                                    const WeightRounding& rounding, bool has_int8_x) {
  check_dtype(dtype);
  const Parallel parallel(n_threads);
  RandomSource drawn(seed, expected_tensors(spec), parallel, spec.quantization, unrounded_matrices(spec, false));
  const MaybeRounded source(drawn, spec, rounding, parallel);
  BATON_TRY(ModelWeights weights, Loader(spec, backend, dtype, source.get(), has_int8_x).load());
  if (rank_of(backend).rank == 0) log_schemes(weights);
  return weights;
}

}  // namespace baton
