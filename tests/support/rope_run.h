/// Runs rope_append for rows at given positions and KV indices on any backend and compares with double precision.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton::testing {

/// Over what the norm of queries and keys runs.
enum class HeadNorm { none, head, width };

struct RopeCase {
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 64;
  int rotary_dim = 64;
  DType kv_dtype = DType::bf16;
  DType qkv_dtype = DType::f32;
  DType q_dtype = DType::f32;
  float k_scale = 1;
  float v_scale = 1;
  int block_len = 32;
  int n_blocks = 4;
  HeadNorm norm = HeadNorm::none;
  bool has_rope = true;
  bool norms_rotated = false;  ///< the norm over each head comes after the rotation
  bool scales_queries = false;

  int width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  KvShape kv_shape() const {
    KvShape shape;
    shape.n_layers = 2;
    shape.n_blocks = n_blocks;
    shape.block_len = block_len;
    shape.n_kv_heads = n_kv_heads;
    shape.head_dim = head_dim;
    shape.dtype = kv_dtype;
    if (kv_dtype == DType::f8_e4m3) {  // the tested layer has these scales, the other layer different ones
      shape.k_scales = {5 * k_scale, k_scale};
      shape.v_scales = {7 * v_scale, v_scale};
    }
    return shape;
  }
};

inline std::string describe(const TestBackend& test, const RopeCase& shape) {
  return test.name + ", head_dim " + std::to_string(shape.head_dim) + ", rotary_dim " + std::to_string(shape.rotary_dim) +
         ", " + std::string(to_string(shape.qkv_dtype)) + " to " + std::string(to_string(shape.q_dtype)) + " and " +
         std::string(to_string(shape.kv_dtype)) +
         (shape.norm == HeadNorm::none   ? ""
          : shape.norm == HeadNorm::head ? ", norms of heads"
                                         : ", norms of rows") +
         (shape.norms_rotated ? " after the rotation" : "") + (shape.scales_queries ? ", scaled queries" : "");
}

inline HostTensor rows_tensor(const std::vector<TokenRow>& rows) {
  HostTensor tensor(DType::u8, {static_cast<std::int64_t>(rows.size()), sizeof(TokenRow)});
  if (!rows.empty()) std::memcpy(tensor.bytes.data(), rows.data(), tensor.bytes.size());
  return tensor;
}

/// A step with only KV indices, after a section of `n_before` elements.
inline StepInput kv_step(const std::vector<std::int64_t>& kv_indices, std::size_t n_before = 0) {
  StepInput step;
  step.header().n_rows = static_cast<std::int32_t>(kv_indices.size());
  step.append(SectionKind::token_ids, std::vector<TokenId>(n_before, 5));
  step.append(SectionKind::kv_indices, kv_indices);
  step.finish();
  return step;
}

inline constexpr int kPositions = 5000;
inline constexpr int kLayer = 1;
inline constexpr float kNormEps = 1e-3f;  // large enough to be missed

/// cos (or sin) of position * 10000^(-2i / rotary_dim), computed once.
inline const HostTensor& angles(int rotary_dim, bool is_sin) {
  static std::map<std::pair<int, bool>, HostTensor> tables;
  if (const auto found = tables.find({rotary_dim, is_sin}); found != tables.end()) return found->second;
  HostTensor table(DType::f32, {kPositions, rotary_dim / 2});
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const double frequency = std::pow(10000.0, -2.0 * i / rotary_dim);
    for (int position = 0; position < kPositions; ++position) {
      const double angle = position * frequency;
      table.set(position * (rotary_dim / 2) + i, static_cast<float>(is_sin ? std::sin(angle) : std::cos(angle)));
    }
  }
  return tables.emplace(std::pair{rotary_dim, is_sin}, std::move(table)).first->second;
}

/// A factor for the queries of each position, from 1 on.
inline const HostTensor& query_factors() {
  static const HostTensor kFactors = [] {
    HostTensor factors(DType::f32, {kPositions});
    for (int position = 0; position < kPositions; ++position)
      factors.set(position, static_cast<float>(1 + 0.1 * std::log(1 + position / 16)));
    return factors;
  }();
  return kFactors;
}

inline HostTensor random_qkv(const RopeCase& shape, std::size_t n_rows) {
  std::mt19937 random(3);
  return random_tensor(random, shape.qkv_dtype, {static_cast<std::int64_t>(n_rows), shape.width()});
}

/// Random weights of the norm of `n_heads` heads, about 1; without elements if there is none.
inline HostTensor norm_weight(const RopeCase& shape, int n_heads, std::uint32_t seed) {
  const int n = shape.norm == HeadNorm::none ? 0 : shape.norm == HeadNorm::head ? shape.head_dim : n_heads * shape.head_dim;
  std::mt19937 random(seed);
  HostTensor weight = random_tensor(random, DType::f32, {n});
  for (int i = 0; i < n; ++i) weight.set(i, 1 + 0.25f * static_cast<float>(weight.at(i)));
  return weight;
}

/// Rows at given positions and KV indices, and their results. Storage and q are NaN before.
class RopeRun {
 public:
  RopeRun(Backend& backend, const RopeCase& shape, std::vector<TokenRow> token_rows, std::vector<std::int64_t> at_indices,
          const HostTensor& qkv_of_rows)
      : shape(shape),
        rows(std::move(token_rows)),
        kv_indices(std::move(at_indices)),
        cos(angles(shape.rotary_dim, false)),
        sin(angles(shape.rotary_dim, true)),
        q_norm(norm_weight(shape, shape.n_heads, 5)),
        k_norm(norm_weight(shape, shape.n_kv_heads, 6)),
        qkv(qkv_of_rows),
        q(shape.q_dtype, {static_cast<std::int64_t>(rows.size()), shape.n_heads, shape.head_dim}) {
    auto made = backend.make_kv_storage(shape.kv_shape());
    check(made.has_value(), [&] { return made.error().message; });
    kv = std::move(*made);
    kv->fill_bytes(0xff);
    const OnDevice device_qkv(backend, qkv), device_q(backend, q), device_cos(backend, cos), device_sin(backend, sin),
        device_factors(backend, query_factors()), device_rows(backend, rows_tensor(rows)), device_q_norm(backend, q_norm),
        device_k_norm(backend, k_norm);
    const StepInput step = kv_step(kv_indices);
    const StepView view = backend.upload_step(step);
    RopeAppendArgs args;
    args.qkv = device_qkv.view();
    args.q = device_q.view();
    if (shape.has_rope) args.rope = {device_cos.view(), device_sin.view()};
    if (shape.scales_queries) args.rope.q_factor = device_factors.view();
    args.rows = device_rows.view();
    args.step = view;
    args.layer = kLayer;
    args.kv = kv.get();
    if (shape.norm != HeadNorm::none) {
      args.q_norm = device_q_norm.view();
      args.k_norm = device_k_norm.view();
      args.norm_eps = kNormEps;
      args.norms_rotated = shape.norms_rotated;
    }
    rope_append(backend, args);
    q = device_q.to_host();
  }
  RopeRun(Backend& backend, const RopeCase& shape, const std::vector<TokenRow>& token_rows,
          const std::vector<std::int64_t>& at_indices)
      : RopeRun(backend, shape, token_rows, at_indices, random_qkv(shape, token_rows.size())) {}

  /// Input element i of head `head` (queries, then keys, then values) of a row.
  double in(std::size_t row, int head, int i) const {
    return qkv.at(static_cast<std::int64_t>(row) * shape.width() + head * shape.head_dim + i);
  }
  /// What the norm of a query's or key's head divides by, as a factor.
  double norm_factor(std::size_t row, int head) const {
    if (shape.norm == HeadNorm::none) return 1;
    const bool is_key = head >= shape.n_heads;
    const int first_head = shape.norm == HeadNorm::head ? head : is_key ? shape.n_heads : 0;
    const int n_heads = shape.norm == HeadNorm::head ? 1 : is_key ? shape.n_kv_heads : shape.n_heads;
    double squares = 0;
    for (int of_run = 0; of_run < n_heads * shape.head_dim; ++of_run) squares += std::pow(in(row, first_head, of_run), 2);
    return 1 / std::sqrt(squares / (n_heads * shape.head_dim) + static_cast<double>(kNormEps));
  }
  /// The same with the weight of element i.
  double norm(std::size_t row, int head, int i) const {
    if (shape.norm == HeadNorm::none) return 1;
    const bool is_key = head >= shape.n_heads;
    const int of_kind = shape.norm == HeadNorm::head ? 0 : is_key ? head - shape.n_heads : head;
    return norm_factor(row, head) * (is_key ? k_norm : q_norm).at(of_kind * shape.head_dim + i);
  }
  /// A query's or key's element with its norm, if that comes before the rotation.
  double before_rotation(std::size_t row, int head, int i) const {
    return in(row, head, i) * (shape.norms_rotated ? 1 : norm(row, head, i));
  }
  double turned(std::size_t row, int head, int i) const {
    const int half = shape.rotary_dim / 2;
    if (!shape.has_rope || i >= shape.rotary_dim) return before_rotation(row, head, i);
    const std::int64_t angle = static_cast<std::int64_t>(rows[row].position) * half + i % half;
    const double other = before_rotation(row, head, i < half ? i + half : i - half) * sin.at(angle);
    return before_rotation(row, head, i) * cos.at(angle) + (i < half ? -other : other);
  }
  /// What is expected of a query or a key.
  double rotated(std::size_t row, int head, int i) const {
    const bool is_scaled = shape.scales_queries && head < shape.n_heads;
    return turned(row, head, i) * (shape.norms_rotated ? norm(row, head, i) : 1) *
           (is_scaled ? query_factors().at(rows[row].position) : 1);
  }
  double query(std::size_t row, int head, int i) const {
    return q.at((static_cast<std::int64_t>(row) * shape.n_heads + head) * shape.head_dim + i);
  }
  /// The canonical form of a block.
  const std::vector<std::byte>& block(std::int32_t number) {
    auto [found, is_new] = blocks_.try_emplace(number);
    if (is_new) {
      found->second.resize(static_cast<std::size_t>(kv->shape().block_bytes()));
      kv->export_block(BlockId{number}, {found->second.data(), DType::u8, {kv->shape().block_bytes()}});
    }
    return found->second;
  }
  /// Element i of a key or value in this form.
  std::size_t index(bool is_value, int head, std::int64_t kv_index, int i) const {
    return (((2u * kLayer + is_value) * static_cast<std::size_t>(shape.n_kv_heads) + static_cast<std::size_t>(head)) *
                static_cast<std::size_t>(shape.block_len) +
            static_cast<std::size_t>(kv_index % shape.block_len)) *
               static_cast<std::size_t>(shape.head_dim) +
           static_cast<std::size_t>(i);
  }
  /// The storage's contents in the tested layer at a KV index.
  template <class T>
  T stored_as(bool is_value, int head, std::int64_t kv_index, int i) {
    T number;
    const std::byte* from = block(static_cast<std::int32_t>(kv_index / shape.block_len)).data();
    std::memcpy(&number, from + index(is_value, head, kv_index, i) * sizeof(T), sizeof(T));
    return number;
  }
  double stored(bool is_value, int head, std::int64_t kv_index, int i) {
    return visit_stored_float(shape.kv_dtype, [&]<class T>(T) {
      const double scale = static_cast<double>(is_value ? shape.v_scale : shape.k_scale);
      return static_cast<double>(static_cast<float>(stored_as<T>(is_value, head, kv_index, i))) * scale;
    });
  }

  RopeCase shape;
  std::vector<TokenRow> rows;
  std::vector<std::int64_t> kv_indices;
  std::unique_ptr<KvStorage> kv;
  const HostTensor& cos;
  const HostTensor& sin;
  HostTensor q_norm, k_norm;
  HostTensor qkv, q;

 private:
  std::map<std::int32_t, std::vector<std::byte>> blocks_;
};

}  // namespace baton::testing
