/// Recognises each vendor's tensors by their names, types and shapes.
#include "model/source/stored_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <ranges>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::int64_t kWordBits = 32;
constexpr std::int64_t kBlock = 128;  // rows and columns, where no configuration says it
constexpr std::int64_t kNvfp4Columns = 16;
constexpr std::int64_t kMxfp4Columns = 32;

/// Last parts of the names of scales that multiply "weight": compressed-tensors' and NVIDIA's, DeepSeek's (which is no inverse, in
/// spite of its name), Mistral's own, DeepSeek's newer one.
constexpr auto kScaleNames = std::to_array<std::string_view>({"weight_scale", "weight_scale_inv", "qscale_weight", "scale"});

/// What follows the name of a matrix of all experts.
constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kBlockScales = "_scales";
constexpr std::string_view kExpertScales = "_scale_inv";
constexpr std::string_view kExpertInputScale = "_activation_scale";

/// Last parts of names that belong to a matrix.
constexpr auto kPartNames = std::to_array<std::string_view>(
    {"weight_scale", "weight_scale_inv", "qscale_weight", "scale", "input_scale", "activation_scale", "qscale_act",
     "weight_packed", "weight_shape", "weight_zero_point", "weight_g_idx", "weight_global_scale", "input_global_scale",
     "weight_scale_2", "qweight", "qzeros", "scales", "g_idx"});

constexpr std::int64_t ceil_of(std::int64_t n, std::int64_t step) { return (n + step - 1) / step; }

tl::unexpected<Error> bad(std::string_view name, const std::string& what) {
  return fail(ErrorCode::invalid_data, fmt::format("tensor '{}' {}", name, what));
}

std::string to_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// The two integers of a tensor.
template <class T>
std::array<std::int64_t, 2> pair_of(const StoredTensor& stored) {
  std::array<T, 2> pair{};
  std::memcpy(pair.data(), stored.bytes.data(), sizeof(pair));
  return {pair[0], pair[1]};
}

/// Finds the tensors of one matrix.
class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const ExpectedTensor& matrix, const QuantizationSpec& stated)
      : checkpoint_(checkpoint),
        stated_(stated),
        stem_(stem_of_matrix(matrix.name)),
        n_experts_(matrix.n_experts),
        expert_(matrix.expert),
        is_transposed_(matrix.is_transposed) {
    found_.n = matrix.shape[0];
    found_.k = matrix.shape[1];
  }

  Result<StoredLayout> find() {
    if (n_experts_ > 0) {
      BATON_TRY_VOID(find_of_all_experts());
      return found_;
    }
    if (tensor("pre_quant_scale") != nullptr)
      return fail(
          ErrorCode::unsupported,
          fmt::format("tensor '{}pre_quant_scale' scales the inputs of a matrix (modelopt's AWQ), which is not supported; "
                      "FP8, NVFP4, int8 and int4 are without it",
                      stem_));
    if (checkpoint_.contains(stem_ + "weight_packed")) {
      BATON_TRY_VOID(find_packed_rows());
    } else if (checkpoint_.contains(stem_ + "qweight")) {
      BATON_TRY_VOID(find_qweight());
    } else {
      BATON_TRY_VOID(find_weight());
    }
    return found_;
  }

 private:
  const StoredTensor* tensor(std::string_view end) const { return checkpoint_.find(stem_ + std::string(end)); }

  Result<const StoredTensor*> required(std::string_view end) const {
    const StoredTensor* found = tensor(end);
    if (found == nullptr) return fail(ErrorCode::not_found, fmt::format("the checkpoint lacks tensor '{}{}'", stem_, end));
    return found;
  }

  Result<const StoredTensor*> required(std::string_view end, std::string_view dtype, std::vector<std::int64_t> shape) const {
    BATON_TRY(const StoredTensor* const found, required(end));
    if (found->dtype != dtype)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}{}' has the element type {}; {} is read", stem_, end, found->dtype, dtype));
    if (found->shape != shape)
      return bad(stem_ + std::string(end), fmt::format("has the shape {}, not {}", to_text(found->shape), to_text(shape)));
    return found;
  }

  /// The scales of "weight" that are there, or nothing.
  std::string_view scale_name() const {
    const auto found = std::ranges::find_if(kScaleNames, [&](std::string_view end) { return tensor(end) != nullptr; });
    return found == kScaleNames.end() ? std::string_view() : *found;
  }

  /// "weight" alone, or with scales.
  Result<void> find_weight() {
    BATON_TRY(const StoredTensor* const weight, required(kWeight));
    const bool has_scales = !scale_name().empty();
    const bool is_f8 = weight->dtype == "F8_E4M3";
    if (weight->dtype == "U8" && tensor("weight_scale_2") != nullptr) return find_half_bytes(kWeight);
    if (!is_f8 && weight->dtype != "I8") {
      if (weight->dtype == "U8" || has_scales)
        return fail(ErrorCode::unsupported,
                    fmt::format("tensor '{}weight' has the element type {}{}: of schemes of packed bytes, NVFP4 with "
                                "'weight_scale_2' is supported, and so are FP8, int8 and int4",
                                stem_, weight->dtype, has_scales ? " and scales" : ""));
      return {};
    }
    BATON_TRY(const StoredTensor* const values, required(kWeight, weight->dtype, {found_.n, found_.k}));
    found_.layout = ValueLayout::bytes;
    found_.values = values->bytes.data();
    if (!is_f8 && tensor("weight_zero_point") != nullptr)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}weight_zero_point': signed bytes with zeros are not supported", stem_));
    BATON_TRY(SchemeStatement scheme, scales_of_weight(is_f8 ? WeightScheme::f8 : WeightScheme::i8));
    return accept(scheme, "weight");
  }

  /// The block that a statement says, or the usual one.
  SchemeStatement stated_block(WeightScheme scheme) const {
    for (const SchemeStatement& statement : stated_.statements)
      if (statement.scheme == scheme && statement.scales == ScaleKind::block) return statement;
    return {.scheme = scheme, .scales = ScaleKind::block, .rows = kBlock, .columns = kBlock};
  }

  /// The scales of "weight". Their shape says what they are for.
  Result<SchemeStatement> scales_of_weight(WeightScheme scheme) {
    const std::string_view end = scale_name().empty() ? kScaleNames.front() : scale_name();
    const std::string name = stem_ + std::string(end);
    BATON_TRY(const StoredTensor* const stored, required(end));
    const std::vector<std::int64_t>& shape = stored->shape;
    SchemeStatement made{.scheme = scheme, .scales = ScaleKind::tensor};
    const SchemeStatement block = stated_block(scheme);
    const std::vector<std::int64_t> blocks{ceil_of(found_.n, block.rows), ceil_of(found_.k, block.columns)};
    const bool is_one = std::ranges::all_of(shape, [](std::int64_t size) { return size == 1; });
    if (is_one) {
      const bool is_block = stated_is(ScaleKind::block, scheme) && shape == blocks;
      if (is_block) made = block;
    } else if (shape == std::vector{found_.n} || shape == std::vector{found_.n, std::int64_t{1}}) {
      made.scales = ScaleKind::row;
      if (shape == blocks && stated_is(ScaleKind::block, scheme)) made = block;
    } else if (shape == blocks) {
      made = block;
    } else {
      return bad(name, fmt::format("has the shape {}; for {} x {} weights it may be [1], [{}, 1] or {} for blocks of {} x {}",
                                   to_text(shape), found_.n, found_.k, found_.n, to_text(blocks), block.rows, block.columns));
    }
    BATON_TRY_VOID(take_scales(*stored, end));
    return made;
  }

  bool stated_is(ScaleKind kind, WeightScheme scheme) const {
    return std::ranges::any_of(stated_.statements, [&](const SchemeStatement& statement) {
      return statement.scheme == scheme && statement.scales == kind;
    });
  }

  /// One number, or a matrix.
  Result<void> take_scales(const StoredTensor& stored, std::string_view end) {
    const bool is_exponent = stored.dtype == "F8_E8M0" || stored.dtype == "U8";
    DType dtype = DType::u8;
    if (!is_exponent) {
      if (stored.dtype != "F32" && stored.dtype != "BF16" && stored.dtype != "F16")
        return fail(ErrorCode::unsupported,
                    fmt::format("tensor '{}{}' has the element type {}; scales are float32, bfloat16, float16 or exponents "
                                "(F8_E8M0)",
                                stem_, end, stored.dtype));
      dtype = stored.dtype == "F32" ? DType::f32 : stored.dtype == "BF16" ? DType::bf16 : DType::f16;
    }
    const Shape shape = stored.shape.size() == 2   ? Shape{stored.shape[0], stored.shape[1]}
                        : stored.shape.size() == 1 ? Shape{stored.shape[0], 1}
                                                   : Shape{1, 1};
    found_.scales = {stored.bytes.data(), dtype, shape};
    found_.scales_part = end;
    found_.form.scale_dtype = is_exponent ? DType::f32 : dtype;
    return {};
  }

  /// The bits of a value, where `words` words hold `values` of them.
  Result<std::int64_t> bits_of(std::int64_t words, std::int64_t values, std::string_view end) const {
    for (const std::int64_t bits : {std::int64_t{4}, std::int64_t{8}})
      if (ceil_of(values * bits, kWordBits) == words) return bits;
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}{}' has {} words for {} values; integers of 4 and 8 bits are supported", stem_, end,
                            words, values));
  }

  /// The scheme of integers with `n_groups` scales for each row.
  Result<SchemeStatement> integers(std::int64_t bits, std::int64_t n_groups, std::string_view end) const {
    SchemeStatement made{.scheme = bits == 4 ? WeightScheme::i4 : WeightScheme::i8};
    if (n_groups == 1) return made;
    made.scales = ScaleKind::group;
    for (const SchemeStatement& statement : stated_.statements) {
      const bool fits = statement.scheme == made.scheme && statement.scales == ScaleKind::group &&
                        ceil_of(found_.k, statement.columns) == n_groups;  // a last group may be shorter
      if (fits && (made.columns == 0 || statement.columns * n_groups == found_.k)) made.columns = statement.columns;
    }
    if (made.columns > 0) return made;
    if (n_groups < 1 || found_.k % n_groups != 0)
      return bad(stem_ + std::string(end), fmt::format("has {} scales for a row of {} weights", n_groups, found_.k));
    made.columns = found_.k / n_groups;
    return made;
  }

  /// "weight_shape", where it is there, repeats the size of the matrix.
  Result<void> expect_stated_shape() const {
    constexpr std::string_view kEnd = "weight_shape";
    const StoredTensor* const stored = tensor(kEnd);
    if (stored == nullptr) return {};
    const bool is_long = stored->dtype == "I64";
    if ((!is_long && stored->dtype != "I32") || stored->shape != std::vector<std::int64_t>{2})
      return bad(stem_ + std::string(kEnd), fmt::format("has the element type {} and the shape {}; it must be I64 [2]",
                                                        stored->dtype, to_text(stored->shape)));
    const std::array<std::int64_t, 2> sizes = is_long ? pair_of<std::int64_t>(*stored) : pair_of<std::int32_t>(*stored);
    if (sizes == std::array{found_.n, found_.k}) return {};
    return bad(stem_ + std::string(kEnd),
               fmt::format("says {} x {} weights; the configuration asks for {} x {}", sizes[0], sizes[1], found_.n, found_.k));
  }

  Result<void> find_packed_rows() {
    constexpr std::string_view kEnd = "weight_packed";
    BATON_TRY(const StoredTensor* const packed, required(kEnd));
    if (packed->dtype == "U8") return find_half_bytes(kEnd);
    if (packed->shape.size() != 2 || packed->shape[0] != found_.n)
      return bad(stem_ + std::string(kEnd),
                 fmt::format("has the shape {}; it must have {} rows", to_text(packed->shape), found_.n));
    BATON_TRY(const std::int64_t bits, bits_of(packed->shape[1], found_.k, kEnd));
    BATON_TRY(const StoredTensor* const values, required(kEnd, "I32", {found_.n, packed->shape[1]}));
    found_.layout = ValueLayout::packed_rows;
    found_.values = values->bytes.data();
    BATON_TRY(const StoredTensor* const scales, required("weight_scale"));
    if (scales->shape.empty() || scales->shape.size() > 2 || scales->shape[0] != found_.n)
      return bad(stem_ + "weight_scale",
                 fmt::format("has the shape {}; it must have {} rows", to_text(scales->shape), found_.n));
    BATON_TRY_VOID(expect_stated_shape());
    BATON_TRY_VOID(take_scales(*scales, "weight_scale"));
    BATON_TRY(SchemeStatement scheme, integers(bits, found_.scales.shape[1], "weight_scale"));
    if (tensor("weight_zero_point") != nullptr) {
      BATON_TRY(const StoredTensor* const zeros,
                required("weight_zero_point", "I32", {ceil_of(found_.n * bits, kWordBits), found_.scales.shape[1]}));
      found_.zeros = {zeros->bytes.data(), DType::i32, {zeros->shape[0], zeros->shape[1]}};
      scheme.is_symmetric = false;
    }
    if (tensor("weight_g_idx") != nullptr) BATON_TRY_VOID(take_groups("weight_g_idx", scheme));
    return accept(scheme, kEnd);
  }

  /// Floats of 4 bits in "weight_packed" (compressed-tensors) or "weight" (ModelOpt). The type of their scales says which
  /// standard they follow.
  Result<void> find_half_bytes(std::string_view end) {
    BATON_TRY(const StoredTensor* const values, required(end, "U8", {found_.n, row_value_bytes(WeightScheme::f4, found_.k)}));
    if (tensor("weight_zero_point") != nullptr)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}weight_zero_point': floats of 4 bits with zeros are not supported", stem_));
    BATON_TRY(const StoredTensor* const scales, required("weight_scale"));
    const bool is_nvfp4 = scales->dtype == "F8_E4M3";
    if (!is_nvfp4 && scales->dtype != "U8" && scales->dtype != "F8_E8M0")
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}weight_scale' has the element type {}; scales of floats of 4 bits are F8_E4M3 (NVFP4) "
                              "or U8 and F8_E8M0 (MXFP4)",
                              stem_, scales->dtype));
    const std::int64_t group = is_nvfp4 ? kNvfp4Columns : kMxfp4Columns;
    const std::int64_t n_groups = ceil_of(found_.k, group);
    BATON_TRY_VOID(required("weight_scale", scales->dtype, {found_.n, n_groups}).map([](const StoredTensor*) {}));
    found_.layout = ValueLayout::half_bytes;
    found_.values = values->bytes.data();
    found_.scales_part = "weight_scale";
    found_.form.scale_dtype = is_nvfp4 ? DType::f8_e4m3 : DType::u8;
    found_.scales = {scales->bytes.data(), found_.form.scale_dtype, {found_.n, n_groups}};
    if (is_nvfp4)
      BATON_TRY_VOID(take_scale_of_tensor(end == kWeight ? "weight_scale_2" : "weight_global_scale", end != kWeight));
    SchemeStatement scheme{.scheme = WeightScheme::f4};
    if (n_groups > 1) {
      scheme.scales = ScaleKind::group;
      scheme.columns = group;
    }
    return accept(scheme, end);
  }

  /// FP8 of all experts (Mistral Small 4): [n_experts, n, k], and "..._scale_inv" [n_experts, 1, 1] or with a matrix of blocks for
  /// each expert.
  Result<void> find_f8_of_all_experts() {
    BATON_TRY(const StoredTensor* const values, required("", "F8_E4M3", {n_experts_, found_.n, found_.k}));
    BATON_TRY(const StoredTensor* const scales, required(kExpertScales));
    SchemeStatement scheme{.scheme = WeightScheme::f8, .scales = ScaleKind::tensor};
    const SchemeStatement block = stated_block(WeightScheme::f8);
    const std::int64_t n_rows = ceil_of(found_.n, block.rows), n_columns = ceil_of(found_.k, block.columns);
    const bool has_blocks =
        stated_is(ScaleKind::block, WeightScheme::f8) && scales->shape == std::vector{n_experts_, n_rows, n_columns};
    if (has_blocks) scheme = block;
    if (!has_blocks && scales->shape != std::vector<std::int64_t>{n_experts_, 1, 1})
      return bad(stem_ + std::string(kExpertScales),
                 fmt::format("has the shape {}; for {} experts it may be [{}, 1, 1] or [{}, {}, {}]", to_text(scales->shape),
                             n_experts_, n_experts_, n_experts_, n_rows, n_columns));
    StoredTensor of_expert = *scales;
    of_expert.shape.erase(of_expert.shape.begin());
    const std::size_t n_bytes = scales->bytes.size() / static_cast<std::size_t>(n_experts_);
    of_expert.bytes = scales->bytes.subspan(static_cast<std::size_t>(expert_) * n_bytes, n_bytes);
    BATON_TRY_VOID(take_scales(of_expert, kExpertScales));
    found_.layout = ValueLayout::bytes;
    found_.values = values->bytes.data() + expert_ * found_.n * found_.k;
    return accept(scheme, "");
  }

  /// MXFP4 of all experts (gpt-oss): "..._blocks" [n_experts, n, k / 32, 16] and "..._scales" [n_experts, n, k / 32].
  Result<void> find_of_all_experts() {
    const StoredTensor* const dense = tensor("");
    if (dense != nullptr && dense->dtype == "F8_E4M3" && !is_transposed_) return find_f8_of_all_experts();
    if (tensor(kBlocks) == nullptr) return {};
    const std::int64_t n_groups = found_.k / kMxfp4Columns;
    if (found_.k % kMxfp4Columns != 0)
      return fail(ErrorCode::unsupported, fmt::format("tensor '{}{}': rows of {} weights are no multiple of {}", stem_, kBlocks,
                                                      found_.k, kMxfp4Columns));
    BATON_TRY(const StoredTensor* const values, required(kBlocks, "U8", {n_experts_, found_.n, n_groups, kMxfp4Columns / 2}));
    BATON_TRY(const StoredTensor* const scales, required(kBlockScales, "U8", {n_experts_, found_.n, n_groups}));
    found_.layout = ValueLayout::half_bytes;
    found_.values = values->bytes.data() + expert_ * found_.n * row_value_bytes(WeightScheme::f4, found_.k);
    found_.scales_part = kBlockScales;
    found_.form.scale_dtype = DType::u8;
    found_.scales = {scales->bytes.data() + expert_ * found_.n * n_groups, DType::u8, {found_.n, n_groups}};
    SchemeStatement scheme{.scheme = WeightScheme::f4};
    if (n_groups > 1) {
      scheme.scales = ScaleKind::group;
      scheme.columns = kMxfp4Columns;
    }
    return accept(scheme, kBlocks);
  }

  /// NVFP4's scale of the whole tensor. ModelOpt's multiplies; compressed-tensors' is the inverse of that.
  Result<void> take_scale_of_tensor(std::string_view end, bool is_inverse) {
    BATON_TRY(const StoredTensor* const stored, required(end));
    const bool is_one = std::ranges::all_of(stored->shape, [](std::int64_t size) { return size == 1; });
    if (stored->dtype != "F32" || !is_one)
      return bad(stem_ + std::string(end), fmt::format("has the element type {} and the shape {}; it must be F32 [1]",
                                                       stored->dtype, to_text(stored->shape)));
    float scale = 0;
    std::memcpy(&scale, stored->bytes.data(), sizeof(scale));
    found_.row_scale = is_inverse ? 1 / scale : scale;
    found_.form.has_row_scales = true;
    if (std::isfinite(scale) && std::isfinite(found_.row_scale)) return {};
    return bad(stem_ + std::string(end),
               fmt::format("holds {}; it must be finite{}", scale, is_inverse ? " and not near 0" : ""));
  }

  /// GPTQ's packs along k, AWQ's along n.
  Result<void> find_qweight() {
    constexpr std::string_view kEnd = "qweight";
    BATON_TRY(const StoredTensor* const packed, required(kEnd));
    BATON_TRY(const StoredTensor* const scales, required("scales"));
    if (packed->shape.size() != 2)
      return bad(stem_ + std::string(kEnd), fmt::format("has the shape {}; it must have two sizes", to_text(packed->shape)));
    if (scales->shape.size() != 2 || scales->shape[1] != found_.n)
      return bad(stem_ + "scales", fmt::format("has the shape {}; it must have {} columns", to_text(scales->shape), found_.n));
    const bool is_awq = packed->shape == std::vector{found_.k, found_.n / 8} && found_.n % 8 == 0 && tensor("g_idx") == nullptr;
    if (!is_awq && packed->shape[1] != found_.n)
      return fail(ErrorCode::unsupported,
                  fmt::format("tensor '{}{}' has the shape {}, which is neither GPTQ's nor AWQ's (gemm) for {} x {} "
                              "weights",
                              stem_, kEnd, to_text(packed->shape), found_.n, found_.k));
    std::int64_t bits = 4;
    if (!is_awq) {
      BATON_TRY(bits, bits_of(packed->shape[0], found_.k, kEnd));
    }
    BATON_TRY(const StoredTensor* const values, required(kEnd, "I32", packed->shape));
    found_.layout = is_awq ? ValueLayout::awq : ValueLayout::packed_columns;
    found_.values = values->bytes.data();
    BATON_TRY_VOID(take_scales(*scales, "scales"));
    BATON_TRY(SchemeStatement scheme, integers(bits, scales->shape[0], "scales"));
    if (tensor("qzeros") != nullptr) {
      BATON_TRY(const StoredTensor* const zeros,
                required("qzeros", "I32", {scales->shape[0], ceil_of(found_.n * bits, kWordBits)}));
      BATON_TRY_VOID(take_qzeros(*zeros, bits, is_awq, scheme));
    }
    if (tensor("g_idx") != nullptr) BATON_TRY_VOID(take_groups("g_idx", scheme));
    return accept(scheme, kEnd);
  }

  /// Zeros of symmetric GPTQ say nothing: files of one name hold them less one or not, and the middle of the range is meant.
  Result<void> take_qzeros(const StoredTensor& zeros, std::int64_t bits, bool is_awq, SchemeStatement& scheme) {
    const bool is_symmetric = std::ranges::any_of(stated_.statements, [&](const SchemeStatement& statement) {
      return statement.scheme == scheme.scheme && statement.is_symmetric;
    });
    scheme.is_symmetric = is_symmetric;
    if (!is_symmetric) {
      if (!is_awq && stated_.method.empty())
        return fail(ErrorCode::unsupported,
                    fmt::format("tensor '{}qzeros': no configuration says whether GPTQ's zeros are stored less "
                                "one",
                                stem_));
      found_.zeros = {zeros.bytes.data(), DType::i32, {zeros.shape[0], zeros.shape[1]}};
      found_.adds_one_to_zeros = !is_awq && stated_.adds_one_to_zeros;
      return {};
    }
    std::uint32_t word = 0;
    if (zeros.bytes.size() >= sizeof(word)) std::memcpy(&word, zeros.bytes.data(), sizeof(word));
    const std::uint32_t middle = bits == 4 ? 0x88888888u : 0x80808080u;
    const std::uint32_t less_one = bits == 4 ? 0x77777777u : 0x7f7f7f7fu;
    if (word == middle || word == less_one) return {};
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}qzeros' begins with 0x{:08x}; the configuration says that its integers are "
                            "symmetric, which is 0x{:08x} or 0x{:08x}",
                            stem_, word, less_one, middle));
  }

  /// The group of each column: none are kept where they are in order.
  Result<void> take_groups(std::string_view end, const SchemeStatement& scheme) {
    const std::int64_t size = scheme.scales == ScaleKind::group ? scheme.columns : found_.k;
    BATON_TRY(const StoredTensor* const stored, required(end, "I32", {found_.k}));
    bool is_in_order = true;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ceil_of(found_.k, size)));
    for (std::int64_t c = 0; c < found_.k; ++c) {
      std::int32_t group = 0;
      std::memcpy(&group, stored->bytes.data() + c * 4, sizeof(group));
      if (group < 0 || static_cast<std::size_t>(group) >= counts.size())
        return bad(stem_ + std::string(end), fmt::format("has the group {} of {}", group, counts.size()));
      ++counts[static_cast<std::size_t>(group)];
      is_in_order = is_in_order && group == c / size;
    }
    if (is_in_order) return {};
    for (std::size_t group = 0; group < counts.size(); ++group)
      if (counts[group] != std::min(size, found_.k - static_cast<std::int64_t>(group) * size))
        return fail(ErrorCode::unsupported,
                    fmt::format("tensor '{}{}' has {} columns in group {}, not {}", stem_, end, counts[group], group, size));
    found_.groups = {stored->bytes.data(), DType::i32, {found_.k}};
    return {};
  }

  /// Compares the scheme with what the configuration states, and describes it.
  Result<void> accept(const SchemeStatement& scheme, std::string_view end) {
    const auto agrees = [&](const SchemeStatement& statement) {
      if (statement.scheme != scheme.scheme) return false;
      const bool is_whole_row = statement.scales == ScaleKind::group && statement.columns >= found_.k;
      const ScaleKind kind = is_whole_row ? ScaleKind::row : statement.scales;
      const bool same_size = statement.rows == scheme.rows && statement.columns == scheme.columns;
      const bool same = kind == scheme.scales && (kind == ScaleKind::tensor || kind == ScaleKind::row || same_size);
      return same && (scheme.scheme == WeightScheme::f8 || statement.is_symmetric == scheme.is_symmetric);
    };
    if (!stated_.method.empty() && std::ranges::none_of(stated_.statements, agrees)) {
      constexpr std::size_t kMaxNamed = 4;
      std::string all;
      for (const SchemeStatement& statement : stated_.statements | std::views::take(kMaxNamed))
        all += (all.empty() ? "" : ", or ") + to_string(statement);
      if (stated_.statements.size() > kMaxNamed) all += fmt::format(", or {} more", stated_.statements.size() - kMaxNamed);
      return bad(stem_ + std::string(end), fmt::format("is {}; the configuration ('{}') states {}", to_string(scheme),
                                                       stated_.method, all.empty() ? "nothing of the kind" : all));
    }
    MatrixForm& form = found_.form;
    form.scheme = scheme.scheme;
    form.has_zeros = found_.zeros.data != nullptr;
    form.is_permuted = found_.groups.data != nullptr;
    form.scale_rows = scheme.scales == ScaleKind::block ? scheme.rows : scheme.scales == ScaleKind::tensor ? found_.n : 1;
    const bool has_columns = scheme.scales == ScaleKind::block || scheme.scales == ScaleKind::group;
    form.scale_columns = has_columns ? std::min(scheme.columns, found_.k) : found_.k;
    return {};
  }

  const Checkpoint& checkpoint_;
  const QuantizationSpec& stated_;
  const std::string stem_;
  const std::int64_t n_experts_;  ///< that share the tensors; 0: the matrix has its own
  const std::int64_t expert_;
  const bool is_transposed_;  ///< as in ExpectedTensor
  StoredLayout found_;
};

}  // namespace

std::string_view stem_of_matrix(std::string_view weight) {
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight;
}

std::string_view stem_of_part(std::string_view name) {
  const std::size_t begin = name.rfind('.') + 1;  // 0 without a dot
  if (std::ranges::find(kPartNames, name.substr(begin)) != kPartNames.end()) return name.substr(0, begin);
  for (const std::string_view end : {kBlocks, kBlockScales, kExpertScales, kExpertInputScale})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return {};
}

bool has_matrix(const Checkpoint& checkpoint, std::string_view weight) {
  const std::string stem(stem_of_matrix(weight));
  return checkpoint.contains(weight) || checkpoint.contains(stem + "weight_packed") || checkpoint.contains(stem + "qweight") ||
         checkpoint.contains(stem + std::string(kBlocks));
}

Result<StoredLayout> find_layout(const Checkpoint& checkpoint, const ExpectedTensor& matrix, const QuantizationSpec& stated) {
  return Finder(checkpoint, matrix, stated).find();
}

}  // namespace baton
