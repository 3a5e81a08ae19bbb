/// Checks and converts the tensors of a checkpoint.
#include "model/source/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "model/source/kv_scales.h"
#include "model/source/stored_layout.h"
#include "model/source/unpack.h"

namespace baton {
namespace {

/// Converts `n` elements; `from` may be unaligned.
template <class From, class To>
void convert_run(const std::byte* from, To* to, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(To));
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      From value;
      std::memcpy(&value, from + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
      to[i] = static_cast<To>(static_cast<float>(value));
    }
  }
}

/// Converts the elements of `in` to the dtype of `out`, which has the same shape; both are float. `in` may be
/// unaligned.
void convert(const Parallel& parallel, ConstTensorView in, TensorView out) {
  visit_float(in.dtype, [&]<class From>(From) {
    visit_float(out.dtype, [&]<class To>(To) {
      parallel.for_ranges(in.shape.n_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
        const std::byte* const from = in.data + static_cast<std::size_t>(begin) * sizeof(From);
        convert_run<From>(from, out.elements<To>().data() + begin, end - begin);
      });
    });
  });
}

/// The same for `columns` of a matrix [n, k]; out is [n, columns].
void convert_columns(const Parallel& parallel, ConstTensorView in, IndexRange columns, TensorView out) {
  const std::int64_t k = in.shape[1];
  visit_float(in.dtype, [&]<class From>(From) {
    visit_float(out.dtype, [&]<class To>(To) {
      const std::int64_t rows_a_task = std::max<std::int64_t>(1, kElementsPerTask / columns.size());
      parallel.for_ranges(in.shape[0], rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::byte* const from = in.data + static_cast<std::size_t>(row * k + columns.begin) * sizeof(From);
          To* const to = out.elements<To>().data() + row * columns.size();
          convert_run<From>(from, to, columns.size());
        }
      });
    });
  });
}

/// The same for a matrix that is stored transposed, [k, n]: out is [rows, columns] of it.
void convert_transposed(const Parallel& parallel, ConstTensorView in, IndexRange rows, IndexRange columns, TensorView out) {
  constexpr std::int64_t kRowsTogether = 16;  // whose lines of `out` stay in the cache
  const std::int64_t n = in.shape[1];
  visit_float(in.dtype, [&]<class From>(From) {
    visit_float(out.dtype, [&]<class To>(To) {
      To* const to = out.elements<To>().data();
      parallel.for_ranges(rows.size(), kRowsTogether, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t first = begin; first < end; first += kRowsTogether)
          for (std::int64_t c = 0; c < columns.size(); ++c) {
            const std::int64_t at = (columns.begin + c) * n + rows.begin;
            for (std::int64_t r = first; r < std::min(end, first + kRowsTogether); ++r)
              convert_run<From>(in.data + static_cast<std::size_t>(at + r) * sizeof(From), to + r * columns.size() + c, 1);
          }
      });
    });
  });
}

/// The name of a weight outside the layers.
std::string weight_name(const TensorNames& names, std::string_view name) { return checkpoint_name(names, name, 0) + ".weight"; }

/// Whether a tensor belongs to a layer that only drafts tokens (ModelSpec::n_draft_layers).
bool is_of_draft_layer(std::string_view name, const ModelSpec& spec) {
  for (std::int32_t i = 0; i < spec.n_draft_layers; ++i)
    if (name.starts_with(checkpoint_name(spec.names, "model.layers.{}.", spec.layers.size() + static_cast<std::size_t>(i))))
      return true;
  return false;
}

bool is_left_out(std::string_view name, const ModelSpec& spec) {
  return !spec.ignored_prefix.empty() && name.starts_with(spec.ignored_prefix);
}

void log_unused(std::span<const ExpectedTensor> expected, const Checkpoint& checkpoint, const ModelSpec& spec) {
  const TensorNames& names = spec.names;
  std::set<std::string_view> used;
  std::set<std::string_view> stems;
  for (const ExpectedTensor& tensor : expected) {
    used.insert(tensor.name);
    if (tensor.kind == ExpectedTensor::Kind::matrix) stems.insert(stem_of_matrix(tensor.name));
  }
  const std::string lm_head = weight_name(names, names.lm_head);  // also in some checkpoints with tied embeddings
  constexpr std::size_t kMaxNames = 8;
  std::size_t n_unused = 0;
  std::string named;
  for (const std::string& name : checkpoint.names()) {
    if (used.contains(name) || name == lm_head || stems.contains(stem_of_part(name)) || is_kv_scale(name)) continue;
    if (!names.ignored_suffix.empty() && name.ends_with(names.ignored_suffix)) continue;
    if (is_of_draft_layer(name, spec) || is_left_out(name, spec)) continue;
    if (n_unused++ < kMaxNames) named += (named.empty() ? "" : ",") + name;
  }
  if (n_unused > 0)
    log::warning("event=unused_tensors count={} names={}", n_unused, log_value(named + (n_unused > kMaxNames ? ",..." : "")));
}

/// What a conversion loses; empty if it loses nothing.
std::string_view loss_of(DType from, DType to) {
  if (to == DType::bf16 && from == DType::f16) return "11 bits of each significand become 8";
  if (to == DType::bf16 && from == DType::f32) return "24 bits of each significand become 8";
  if (to == DType::f16 && from == DType::f32) return "24 bits of each significand become 11, the largest number 65504";
  if (to == DType::f16 && from == DType::bf16) return "the largest number becomes 65504";
  return {};
}

/// Logs one line for each stored dtype whose matrices lose something.
void log_conversions(std::span<const ExpectedTensor> expected, const Checkpoint& checkpoint, DType dtype) {
  for (const DType stored : {DType::f16, DType::bf16, DType::f32}) {
    const std::string_view loss = loss_of(stored, dtype);
    if (loss.empty()) continue;
    const auto n_tensors = std::ranges::count_if(expected, [&](const ExpectedTensor& tensor) {
      const auto found = checkpoint.load(tensor.name, tensor.dense_shape());
      return tensor.kind == ExpectedTensor::Kind::matrix && found && found->dtype == stored;
    });
    if (n_tensors > 0)
      log::warning("event=weights_converted from={} to={} tensors={} effect=\"{}\"", to_string(stored), to_string(dtype),
                   n_tensors, loss);
  }
}

/// The tensor that holds the matrices of all experts, among them the one of an expert that is missing: "....experts.gate_up_proj"
/// or, of MXFP4, with "_blocks".
std::string fused_experts(const Checkpoint& checkpoint, std::string_view missing) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t place = missing.find(kExperts);
  if (place == std::string_view::npos) return {};
  const std::string stem(missing.substr(0, place + kExperts.size()));
  for (const std::string_view end : {"gate_up_proj", "gate_up_proj_blocks", "gate_up_proj.weight", "down_proj"})
    if (checkpoint.contains(stem + std::string(end))) return stem + std::string(end);
  return {};
}

/// Whether the output layer is the embedding. If the spec says so and the checkpoint holds another output layer, it is
/// not.
Result<bool> ties_embeddings(const ModelSpec& spec, const Checkpoint& checkpoint) {
  const std::string head_name = weight_name(spec.names, spec.names.lm_head);
  const std::string embedding_name = weight_name(spec.names, spec.names.embedding);
  if (!spec.tie_embeddings || !has_matrix(checkpoint, head_name)) return spec.tie_embeddings;
  if (checkpoint.contains(head_name)) {  // otherwise it is packed
    const Shape shape{spec.n_vocab, spec.d_model};
    BATON_TRY(const ConstTensorView head, checkpoint.load(head_name, shape));
    BATON_TRY(const ConstTensorView embedding, checkpoint.load(embedding_name, shape));
    const bool is_same = head.dtype == embedding.dtype && std::memcmp(head.data, embedding.data, head.size_bytes()) == 0;
    if (is_same) {
      checkpoint.drop_pages(head);
      return true;
    }
  }
  log::warning(
      "event=output_layer_not_tied tensor={} reason=\"config.json ties it to {}, and the checkpoint holds another: both are "
      "used, each as it is\"",
      head_name, embedding_name);
  return false;
}

/// Releases the pages of a matrix' values.
void drop_values(const Checkpoint& checkpoint, const StoredLayout& layout) {
  checkpoint.drop_pages({layout.values, DType::u8, {layout.n * row_value_bytes(layout.form.scheme, layout.k)}});
}

/// Unpacks rows on the caller's thread. The destructor releases the pages that were read.
class LayoutReader final : public ValueReader {
 public:
  LayoutReader(const Checkpoint& checkpoint, StoredLayout layout, const TensorPart& part)
      : checkpoint_(checkpoint), layout_(std::move(layout)), part_(part) {}
  ~LayoutReader() override { drop_values(checkpoint_, layout_); }

  Result<void> read(IndexRange rows, std::byte* to) const override {
    TensorPart some = part_;
    some.rows = rows;
    const std::int64_t row_bytes = row_value_bytes(layout_.form.scheme, part_.columns.size());
    StoredRows out;
    out.scheme = layout_.form.scheme;
    out.values = {to, DType::u8, {rows.size(), row_bytes}};
    return unpack(serial_, layout_, some, out);
  }

 private:
  const Checkpoint& checkpoint_;
  const StoredLayout layout_;
  const TensorPart part_;
  const Parallel serial_{1};
};

}  // namespace

Result<void> SafetensorsSource::check_tensors(std::span<const ExpectedTensor> expected, const ModelSpec& spec) const {
  std::vector<const ExpectedTensor*> missing;
  for (const ExpectedTensor& tensor : expected)
    if (tensor.kind == ExpectedTensor::Kind::matrix ? !has_matrix(checkpoint_, tensor.name)
                                                    : !checkpoint_.contains(tensor.name))
      missing.push_back(&tensor);
  if (!missing.empty()) {
    const ExpectedTensor& first = *missing.front();
    if (const std::string fused = fused_experts(checkpoint_, first.name); first.n_experts == 0 && !fused.empty())
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}' holds a matrix of all experts, which is not supported; a tensor "
                              "for each expert is ('{}')",
                              fused, first.name));
    // Tensors of all experts count once.
    std::erase_if(missing, [](const ExpectedTensor* tensor) { return tensor->expert > 0; });
    const std::string others = missing.size() == 1 ? "" : fmt::format(" and {} others", missing.size() - 1);
    return fail(ErrorCode::not_found,
                fmt::format("the checkpoint lacks tensor '{}'{} of the {} that {} has", first.name, others,
                            std::ranges::count(expected, 0, &ExpectedTensor::expert), spec.family));
  }
  for (const ExpectedTensor& tensor : expected) {
    if (tensor.kind == ExpectedTensor::Kind::matrix) {
      BATON_TRY(const MatrixForm form, form_of(tensor));
      if (form.scheme != WeightScheme::dense) continue;
    }
    BATON_TRY_VOID(find(tensor));
  }
  return {};
}

void SafetensorsSource::log_differences(std::span<const ExpectedTensor> expected, const ModelSpec& spec, DType dtype) const {
  log_unused(expected, checkpoint_, spec);
  log_conversions(expected, checkpoint_, dtype);
}

Result<ConstTensorView> SafetensorsSource::find(const ExpectedTensor& tensor) const {
  BATON_TRY(ConstTensorView values, checkpoint_.load(tensor.name));
  // ERNIE 4.5 stores a vector as a matrix of one row.
  const bool is_one_row =
      tensor.kind == ExpectedTensor::Kind::bias && tensor.n_experts == 0 && values.shape == Shape{1, tensor.shape[0]};
  if (is_one_row) {
    values.shape = tensor.shape;
  } else {
    BATON_TRY(values, checkpoint_.load(tensor.name, tensor.dense_shape()));
  }
  if (values.dtype != DType::f32 && values.dtype != DType::bf16 && values.dtype != DType::f16)
    return fail(ErrorCode::unsupported, fmt::format("tensor '{}' is {}; weights must be float32, bfloat16 or float16",
                                                    tensor.name, to_string(values.dtype)));
  return values;
}

Result<MatrixForm> SafetensorsSource::form_of(const ExpectedTensor& matrix) const {
  BATON_TRY(const StoredLayout layout, find_layout(checkpoint_, matrix, quantization_));
  return layout.form;
}

Result<void> SafetensorsSource::read_stored(const TensorPart& part, const StoredRows& out) {
  BATON_TRY(const StoredLayout layout, find_layout(checkpoint_, part.tensor, quantization_));
  BATON_TRY_VOID(unpack(parallel_, layout, part, out));
  if (out.values.data != nullptr) drop_values(checkpoint_, layout);
  return {};
}

Result<std::unique_ptr<ValueReader>> SafetensorsSource::value_reader(const TensorPart& part) const {
  BATON_TRY(StoredLayout layout, find_layout(checkpoint_, part.tensor, quantization_));
  return std::make_unique<LayoutReader>(checkpoint_, std::move(layout), part);
}

Result<void> SafetensorsSource::read(const TensorPart& part, TensorView out) {
  BATON_TRY(ConstTensorView stored, find(part.tensor));
  if (part.tensor.n_taps > 0) stored.shape = part.tensor.shape;
  if (part.tensor.n_experts > 0) {
    const Shape& shape = part.tensor.shape;
    stored = stored.rows(part.tensor.expert, part.tensor.expert + 1);
    stored.shape = part.tensor.is_transposed ? Shape{shape[1], shape[0]} : shape;
    if (part.tensor.is_transposed) {
      convert_transposed(parallel_, stored, part.rows, part.columns, out);
      checkpoint_.drop_pages(stored);
      return {};
    }
  }
  const ConstTensorView rows = stored.rows(part.rows.begin, part.rows.end);
  if (rows.shape.rank() == 1 || part.columns.size() == rows.shape[1])
    convert(parallel_, rows, out);
  else
    convert_columns(parallel_, rows, part.columns, out);
  checkpoint_.drop_pages(rows);
  return {};
}

Result<void> fit_to_checkpoint(ModelSpec& spec, const Checkpoint& checkpoint) {
  for (const TensorRoot& root : spec.other_roots) {
    TensorNames names = spec.names;
    names.root = root.model;
    names.lm_head = root.lm_head;
    if (!checkpoint.contains(weight_name(names, names.embedding))) continue;
    spec.names = names;
    break;
  }
  TensorNames& names = spec.names;
  const auto with_experts =
      std::ranges::find_if(spec.layers, [](const LayerSpec& layer) { return layer.feed_forward.has_experts(); });
  if (!names.other_expert_gate_up.empty() && with_experts != spec.layers.end() &&
      has_matrix(checkpoint, checkpoint_name(names, names.other_expert_gate_up,
                                             static_cast<std::size_t>(with_experts - spec.layers.begin())))) {
    names.expert_gate_up = names.other_expert_gate_up;
    names.expert_down = names.other_expert_down;
  }
  const auto embedding = checkpoint.load(weight_name(spec.names, spec.names.embedding));
  if (!spec.states_dtype && embedding && (embedding->dtype == DType::bf16 || embedding->dtype == DType::f16))
    spec.dtype = embedding->dtype;
  BATON_TRY(spec.tie_embeddings, ties_embeddings(spec, checkpoint));
  return {};
}

}  // namespace baton
