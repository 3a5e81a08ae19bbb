/// Runs attention of an AttentionCase on a backend and compares it with the reference.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/attention_case.h"
#include "support/attention_reference.h"
#include "support/test_backends.h"

namespace baton {

using testing::test_backends;
using testing::TestBackend;

/// The dtype of queries for a storage: bf16 over f8_e4m3, otherwise the storage's own.
constexpr DType query_dtype(DType stored) { return stored == DType::f8_e4m3 ? DType::bf16 : stored; }

inline float rounded_to(DType dtype, float x) {
  return visit_float(dtype, [&]<class T>(T) { return static_cast<float>(T(x)); });
}

/// A case with its keys, values and queries [rows, n_heads, head_dim]; queries are rounded to query_dtype.
struct AttentionProblem {
  AttentionCase input;
  KvContents contents;
  std::vector<float> q;
  float scale = 0;
  float softcap = 0;
  std::vector<float> sinks = {};  ///< [n_heads], or empty

  AttentionProblem(const CaseShape& shape, const std::vector<AttentionCase::Branch>& branches, std::uint64_t seed = 1)
      : AttentionProblem(AttentionCase(shape, branches, seed)) {}
  explicit AttentionProblem(AttentionCase made) : input(std::move(made)), contents(input.kv_shape()) {
    scale = 1.0f / std::sqrt(static_cast<float>(input.shape.head_dim));
    fill_normal();
  }

  /// Queries, keys and values are N(0, 1). Keys and values are multiplied by the given factors, and an offset is added
  /// to values. An 8-bit storage gets scales with which five standard deviations fit its range.
  void fill_normal(float key_factor = 1, float value_factor = 1, float value_offset = 0) {
    std::normal_distribution<float> normal;
    contents.set_scales(key_factor / 64, std::max(value_factor, value_offset / 5) / 64);
    input.fill(contents, [&](bool is_value, int, std::int32_t, int, int) {
      return is_value ? normal(input.random) * value_factor + value_offset : normal(input.random) * key_factor;
    });
    set_queries([&](std::size_t) { return normal(input.random); });
  }
  /// A sink for each head, N(0, 4): more and less than a row's largest score.
  void draw_sinks() {
    std::normal_distribution<float> normal;
    sinks.resize(static_cast<std::size_t>(input.shape.n_heads));
    for (float& sink : sinks) sink = 4 * normal(input.random);
  }
  /// Sets keys and values to number(is_value, head, sequence, position, dim).
  template <class Number>
  void fill_places(float k_scale, float v_scale, const Number& number) {
    contents.set_scales(k_scale, v_scale);
    std::int32_t found = -1;
    std::pair<int, int> place;
    input.fill(contents, [&](bool is_value, int head, std::int32_t block, int offset, int dim) {
      if (block != std::exchange(found, block)) place = input.place_of(block, 0);
      return number(is_value, head, place.first, place.second + offset, dim);
    });
  }
  /// Sets element i of all queries to number(i), rounded.
  template <class Number>
  void set_queries(const Number& number) {
    q.resize(input.rows.size() * row_size());
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = rounded_to(query_dtype(input.shape.kv_dtype), number(i));
  }
  /// Stores number(dim) as the key or value of a position of a sequence, in all heads.
  template <class Number>
  void set_token(int sequence, int position, bool is_value, const Number& number) {
    const int block_len = input.shape.block_len;
    const std::int32_t block =
        input.sequences[static_cast<std::size_t>(sequence)].blocks[static_cast<std::size_t>(position / block_len)];
    for (int head = 0; head < input.shape.n_kv_heads; ++head)
      for (int i = 0; i < input.shape.head_dim; ++i) contents.set(is_value, head, block, position % block_len, i, number(i));
  }

  /// Elements of one row of queries: n_heads * head_dim.
  std::size_t row_size() const { return static_cast<std::size_t>(input.shape.n_heads * input.shape.head_dim); }
  /// Elements of one row of outputs: n_heads * v_dim.
  std::size_t out_row_size() const { return static_cast<std::size_t>(input.shape.n_heads * input.shape.v_dim()); }
  Shape q_shape() const { return {static_cast<std::int64_t>(input.rows.size()), input.shape.n_heads, input.shape.head_dim}; }
  Shape out_shape() const { return {static_cast<std::int64_t>(input.rows.size()), input.shape.n_heads, input.shape.v_dim()}; }
};

/// How attention is called. Tests set other dtypes of queries and outputs only for backends that accept them.
struct AttentionCall {
  bool merge = true;  ///< inside attention; otherwise by attention_merge
  DType out = DType::f32;
  std::optional<DType> q = {};
};

/// A problem in a backend's memory, with room for calls over it. Outputs and partial states are NaN before each call,
/// and so is the memory after them, which must stay NaN.
class AttentionMemory {
 public:
  /// Returns nothing if the backend does not support such a storage; this is logged once. Block b of the problem
  /// becomes numbers[b] of n_blocks. A storage too large to be touched is not filled with NaN.
  static std::optional<AttentionMemory> make(Backend& backend, const AttentionProblem& problem, int n_layers = 1,
                                             int layer = 0) {
    return make(backend, problem, n_layers, layer, problem.input.n_blocks, KvContents::same_numbers(problem.input.n_blocks),
                true);
  }
  static std::optional<AttentionMemory> make(Backend& backend, const AttentionProblem& problem, int n_layers, int layer,
                                             std::int32_t n_blocks, const std::vector<std::int32_t>& numbers, bool poison) {
    KvShape shape = problem.contents.shape();
    shape.n_layers = n_layers;
    // Every layer has its own scales.
    for (std::vector<float>* scales : {&shape.k_scales, &shape.v_scales}) {
      if (scales->empty()) continue;
      const float own = scales->front();
      scales->assign(static_cast<std::size_t>(n_layers), 3 * own);
      scales->at(static_cast<std::size_t>(layer)) = own;
    }
    shape.n_blocks = n_blocks;
    auto kv = backend.make_kv_storage(shape);
    if (!kv) {
      EXPECT_TRUE(kv.error().code == ErrorCode::unsupported || kv.error().code == ErrorCode::out_of_memory)
          << kv.error().message;
      testing::say_once(backend.info().name + ": left out: " + kv.error().message);
      return std::nullopt;
    }
    if (poison) (*kv)->fill_bytes(0xff);
    problem.contents.write_to(**kv, layer, numbers);
    return AttentionMemory(backend, problem, std::move(*kv), layer);
  }

  /// Makes room for plans of up to this many rows and partial states, and copies rows and queries there.
  void prepare(const AttentionPlan& plan, const AttentionCall& call, std::int32_t n_partials) {
    const CaseShape& shape = problem_->input.shape;
    const auto n_rows = static_cast<std::int64_t>(plan.rows.size());
    const DType q_dtype = call.q.value_or(query_dtype(shape.kv_dtype));
    std::vector<std::byte> q(problem_->q.size() * size_bytes(q_dtype));
    visit_float(q_dtype, [&]<class T>(T) {
      for (std::size_t i = 0; i < problem_->q.size(); ++i) reinterpret_cast<T*>(q.data())[i] = T(problem_->q[i]);
    });
    q_ = upload(q);
    out_bytes_ = n_outputs() * size_bytes(call.out);
    out_ = poisoned(out_bytes_);
    const auto n_states = static_cast<std::size_t>(n_partials) * static_cast<std::size_t>(shape.n_heads);
    state_bytes_ = n_states * 4;
    o_ = poisoned(state_bytes_ * static_cast<std::size_t>(shape.v_dim()));
    m_ = poisoned(state_bytes_);
    l_ = poisoned(state_bytes_);
    rows_ = upload({reinterpret_cast<const std::byte*>(plan.rows.data()), plan.rows.size() * sizeof(TokenRow)});
    args_.q = q_.view(q_dtype, problem_->q_shape());
    args_.out = out_.view(call.out, problem_->out_shape());
    args_.partials = {o_.view(DType::f32, {n_partials, shape.n_heads, shape.v_dim()}),
                      m_.view(DType::f32, {n_partials, shape.n_heads}), l_.view(DType::f32, {n_partials, shape.n_heads})};
    args_.rows = rows_.view(DType::u8, {n_rows, static_cast<std::int64_t>(sizeof(TokenRow))});
    args_.layer = layer_;
    args_.kv = kv_.get();
    args_.scale = problem_->scale;
    args_.softcap = problem_->softcap;
    args_.merge = call.merge;
    args_.sinks = {};
    if (problem_->sinks.empty()) return;
    sinks_ = upload(std::as_bytes(std::span(problem_->sinks)));
    args_.sinks = sinks_.view(DType::f32, {shape.n_heads});
  }

  /// Calls attention as `prepare` set it up, over an uploaded step.
  void enqueue(const StepView& step) {
    AttentionArgs args = args_;
    args.step = step;
    attention(*backend_, args);
    if (!args.merge) attention_merge(*backend_, {args.out, args.partials, step, 0, args.sinks});
  }
  /// Waits and returns the outputs as f32.
  std::vector<float> outputs() {
    backend_->synchronize();
    const auto states = static_cast<std::size_t>(problem_->input.shape.v_dim()) * state_bytes_;
    expect_guard(out_, out_bytes_, "the outputs");
    expect_guard(o_, states, "the partial states");
    expect_guard(m_, state_bytes_, "the maxima of the partial states");
    expect_guard(l_, state_bytes_, "the sums of the partial states");
    const std::vector<std::byte> bytes = download(out_);
    std::vector<float> result(n_outputs());
    visit_float(args_.out.dtype, [&]<class T>(T) {
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = static_cast<float>(reinterpret_cast<const T*>(bytes.data())[i]);
    });
    return result;
  }
  /// Sets the outputs to NaN again.
  void poison_outputs() { fill_ones(out_); }
  /// Replaces the rows by as many new ones.
  void set_rows(const std::vector<TokenRow>& rows) {
    const auto size = static_cast<std::int64_t>(rows.size() * sizeof(TokenRow));
    backend_->copy_from_host(rows_.view(DType::u8, {size}),
                             {reinterpret_cast<const std::byte*>(rows.data()), DType::u8, {size}});
  }

  std::vector<float> run(const AttentionPlan& plan, const AttentionCall& call = {}) {
    prepare(plan, call, plan.n_partials);
    const StepInput step = make_step(plan);
    enqueue(backend_->upload_step(step));
    return outputs();
  }

 private:
  static constexpr std::size_t kGuardBytes = 1024;

  AttentionMemory(Backend& backend, const AttentionProblem& problem, std::unique_ptr<KvStorage> kv, int layer)
      : backend_(&backend), problem_(&problem), kv_(std::move(kv)), layer_(layer) {}

  std::size_t n_outputs() const { return problem_->input.rows.size() * problem_->out_row_size(); }
  Buffer allocate(std::size_t size) {
    auto buffer = backend_->allocate(size);
    EXPECT_TRUE(buffer) << (buffer ? "" : buffer.error().message);
    return buffer ? std::move(*buffer) : Buffer{};
  }
  Buffer upload(std::span<const std::byte> bytes) {
    Buffer buffer = allocate(std::max<std::size_t>(1, bytes.size()));
    const Shape shape{static_cast<std::int64_t>(bytes.size())};
    if (!bytes.empty()) backend_->copy_from_host(buffer.view(DType::u8, shape), {bytes.data(), DType::u8, shape});
    return buffer;
  }
  Buffer poisoned(std::size_t size) {
    Buffer buffer = allocate(size + kGuardBytes);
    fill_ones(buffer);
    return buffer;
  }
  void fill_ones(const Buffer& buffer) {
    const std::vector<std::byte> ones(buffer.size_bytes(), std::byte{0xff});
    const Shape shape{static_cast<std::int64_t>(ones.size())};
    backend_->copy_from_host(buffer.view(DType::u8, shape), {ones.data(), DType::u8, shape});
  }
  std::vector<std::byte> download(const Buffer& buffer) {
    std::vector<std::byte> bytes(buffer.size_bytes());
    const Shape shape{static_cast<std::int64_t>(bytes.size())};
    backend_->copy_to_host({bytes.data(), DType::u8, shape}, buffer.view(DType::u8, shape));
    return bytes;
  }
  void expect_guard(const Buffer& buffer, std::size_t used, const char* what) {
    const std::vector<std::byte> bytes = download(buffer);
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(used), bytes.end(),
                            [](std::byte b) { return b == std::byte{0xff}; }))
        << "something was written after " << what;
  }

  Backend* backend_;
  const AttentionProblem* problem_;
  std::unique_ptr<KvStorage> kv_;
  int layer_;
  Buffer q_, out_, o_, m_, l_, rows_, sinks_;
  std::size_t out_bytes_ = 0;
  std::size_t state_bytes_ = 0;
  AttentionArgs args_;
};

/// The dtypes in which at least one available backend stores keys and values. Logs once what each backend does not
/// support.
inline const std::vector<DType>& storage_dtypes() {
  static const std::vector<DType> dtypes = [] {
    std::vector<DType> taken;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3}) {
      bool any = false;
      for (const TestBackend& on : test_backends()) {
        const auto kv = on.backend.make_kv_storage({1, 1, 16, 1, 64, dtype});
        any = any || kv;
        if (!kv) testing::say_once(on.device + ": left out: " + kv.error().message);
      }
      if (any) taken.push_back(dtype);
    }
    return taken;
  }();
  return dtypes;
}

/// The reference outputs of all rows and heads.
inline std::vector<reference::HeadOutput> reference_attention(const AttentionProblem& problem,
                                                              const std::vector<TokenRow>& rows) {
  const CaseShape& shape = problem.input.shape;
  reference::Keys keys(problem.contents);
  std::vector<reference::HeadOutput> result;
  std::vector<double> q(static_cast<std::size_t>(shape.head_dim));
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (int head = 0; head < shape.n_heads; ++head) {
      const float* from = &problem.q[row * problem.row_size() + static_cast<std::size_t>(head) * q.size()];
      for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<double>(from[i]);
      const auto& blocks = problem.input.sequences[static_cast<std::size_t>(problem.input.sequence_of_row[row])].blocks;
      result.push_back(reference::attention(
          keys, q, head / (shape.n_heads / shape.n_kv_heads), rows[row], blocks, static_cast<double>(problem.scale),
          static_cast<double>(problem.softcap),
          problem.sinks.empty() ? -INFINITY : static_cast<double>(problem.sinks[static_cast<std::size_t>(head)])));
    }
  return result;
}

/// Expects ||out - reference|| <= bound * ||reference|| for each row and head. The bound is 4e-3 for matmuls in bf16
/// (weights are rounded by 2^-8 each), 1e-3 in f16 and over f8_e4m3, 1e-5 in f32; plus 8 * 2^-24 times the size of the scores and of
/// the soft-cap (the error of f32 sums before the exponential); plus `extra`. If values cancel, the size of the
/// cancelling values replaces ||reference||. In f16 each element may also be off by half of f16's smallest number.
inline void expect_close(const AttentionProblem& problem, const std::vector<reference::HeadOutput>& expected,
                         const std::vector<float>& out, const std::string& what, double extra = 0) {
  const auto dim = static_cast<std::size_t>(problem.input.shape.v_dim());
  const DType stored = problem.input.shape.kv_dtype;
  const DType dtype = stored == DType::f8_e4m3 ? DType::f16 : query_dtype(stored);
  const double base = (dtype == DType::bf16 ? 4e-3 : dtype == DType::f16 ? 1e-3 : 1e-5) + extra;
  const double smallest = dtype == DType::f16 ? std::ldexp(std::sqrt(static_cast<double>(dim)), -25) : 0;
  ASSERT_EQ(out.size(), expected.size() * dim);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double error = 0;
    double norm = 0;
    for (std::size_t k = 0; k < dim; ++k) {
      const double reference = expected[i].out[k];
      const double got = static_cast<double>(out[i * dim + k]);
      error += (got - reference) * (got - reference);
      norm += reference * reference;
    }
    const double bound = base + 8 * std::ldexp(1.0, -24) * (expected[i].score_size + static_cast<double>(problem.softcap));
    ASSERT_LE(std::sqrt(error), bound * std::max(std::sqrt(norm), expected[i].value_size) + smallest)
        << what << ", row " << i / static_cast<std::size_t>(problem.input.shape.n_heads) << ", head "
        << i % static_cast<std::size_t>(problem.input.shape.n_heads);
  }
}

/// Compares bits. A NaN means that nothing was written and never compares equal.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 &&
         std::none_of(a.begin(), a.end(), [](float x) { return std::isnan(x); });
}

/// For failure messages.
inline std::string name_of(const TestBackend& on, const CaseShape& shape) {
  return on.name + ", " + std::string(to_string(shape.kv_dtype)) + ", heads " + std::to_string(shape.n_heads) + "/" +
         std::to_string(shape.n_kv_heads) + ", dim " + std::to_string(shape.head_dim) +
         (shape.latent_dim > 0 ? ", latent " + std::to_string(shape.latent_dim) : "") + ", block " +
         std::to_string(shape.block_len) + (shape.window > 0 ? ", window " + std::to_string(shape.window) : "");
}

/// Runs n_lists random work lists over a problem on every backend that supports it, with both ways of merging.
/// Compares the results with the reference and with each other.
inline void check_problem(AttentionProblem& problem, int n_lists, int max_tile = 40) {
  std::vector<reference::HeadOutput> expected;
  for (const TestBackend& on : test_backends()) {
    auto memory = AttentionMemory::make(on.backend, problem);
    if (!memory) continue;
    if (expected.empty()) expected = reference_attention(problem, problem.input.rows);
    for (int list = 0; list < n_lists; ++list) {
      const int cut = std::array{1, 16, 64, 256}[static_cast<std::size_t>(list % 4)];
      AttentionPlan plan = problem.input.random_plan(cut, problem.input.uniform(1, max_tile), list % 3 != 2);
      const std::string what = name_of(on, problem.input.shape) + ", list " + std::to_string(list);
      const auto out = memory->run(plan);
      expect_close(problem, expected, out, what);
      ASSERT_TRUE(same_bits(out, memory->run(plan, {.merge = false}))) << what << ": merged apart";
      if (on.backend.tuning().attention_costs.larger_tiles[0].costs.row_tile_queries > 0 &&
          problem.input.shape.latent_dim == 0) {  // the other kernel, which takes the same lists
        plan.tile_kind = 1;
        expect_close(problem, expected, memory->run(plan), what + ", wide tiles");
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

/// Calls body(problem) for each dtype that some backend stores, with the same case.
template <class Body>
void for_each_dtype(CaseShape shape, const std::vector<AttentionCase::Branch>& branches, std::uint64_t seed, const Body& body) {
  for (const DType dtype : storage_dtypes()) {
    if (shape.latent_dim > 0 && dtype == DType::f8_e4m3) continue;  // no backend stores such keys
    shape.kv_dtype = dtype;
    AttentionProblem problem(shape, branches, seed);
    body(problem);
    if (::testing::Test::HasFailure()) return;
  }
}

/// Calls body(problem, memory, on) for each dtype and each backend that stores it.
template <class Body>
void for_each_path(const CaseShape& shape, const std::vector<AttentionCase::Branch>& branches, const Body& body) {
  for_each_dtype(shape, branches, 1, [&](AttentionProblem& problem) {
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      SCOPED_TRACE(name_of(on, problem.input.shape));
      body(problem, *memory, on);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

}  // namespace baton
