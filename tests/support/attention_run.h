/// Runs attention of an AttentionCase on the CPU and compares it with the reference.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/attention_decode.h"
#include "kernels/cpu/attention_merge.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kv_storage.h"
#include "support/attention_case.h"
#include "support/attention_reference.h"

namespace baton {

/// Every instruction set this machine has.
inline std::vector<cpu::CpuIsa> isas_of_this_machine() {
  std::vector<cpu::CpuIsa> isas;
  for (const auto isa : {cpu::CpuIsa::baseline, cpu::CpuIsa::avx2, cpu::CpuIsa::avx512, cpu::CpuIsa::avx512_bf16})
    if (isa <= cpu::best_cpu_isa()) isas.push_back(isa);
  return isas;
}

/// A case with its storage and queries [rows, n_heads, head_dim] f32.
struct AttentionProblem {
  AttentionCase input;
  std::unique_ptr<cpu::CpuKvStorage> kv;
  std::vector<float> q;
  float scale = 0;

  AttentionProblem(const CaseShape& shape, const std::vector<AttentionCase::Branch>& branches, std::uint64_t seed = 1)
      : input(shape, branches, seed), kv(std::move(cpu::CpuKvStorage::make(input.kv_shape()).value())) {
    scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    fill_normal();
  }

  /// Queries, keys and values N(0, 1); keys and values times the given factors, values plus an offset.
  void fill_normal(float key_factor = 1, float value_factor = 1, float value_offset = 0) {
    std::normal_distribution<float> normal;
    input.fill(*kv, 0, [&](bool is_value, int, std::int32_t, int, int) {
      return is_value ? normal(input.random) * value_factor + value_offset : normal(input.random) * key_factor;
    });
    q.resize(input.rows.size() * static_cast<std::size_t>(input.shape.n_heads * input.shape.head_dim));
    for (float& x : q) x = normal(input.random);
  }
  Shape q_shape() const { return {static_cast<std::int64_t>(input.rows.size()), input.shape.n_heads, input.shape.head_dim}; }
};

/// Runs a plan's items and merges; the output as f32. Outputs and partial states hold NaN before. `T` is the type of queries
/// and outputs.
template <class T = float>
std::vector<float> run_attention(const AttentionProblem& problem, const AttentionPlan& plan, cpu::CpuIsa isa,
                                 int n_threads = 1) {
  const auto& shape = problem.input.shape;
  const StepInput step = make_step(plan);
  std::vector<T> q(problem.q.begin(), problem.q.end());
  const float nan = std::nanf("");
  std::vector<T> out(problem.q.size(), T(nan));
  const auto n_states = static_cast<std::size_t>(plan.n_partials) * static_cast<std::size_t>(shape.n_heads);
  std::vector<float> o(n_states * static_cast<std::size_t>(shape.head_dim), nan), m(n_states, nan), l(n_states, nan);
  const PartialStates partials{view_of(std::span(o), {plan.n_partials, shape.n_heads, shape.head_dim}),
                               view_of(std::span(m), {plan.n_partials, shape.n_heads}),
                               view_of(std::span(l), {plan.n_partials, shape.n_heads})};
  const auto n_rows = static_cast<std::int64_t>(plan.rows.size());
  const ConstTensorView rows{reinterpret_cast<const std::byte*>(plan.rows.data()), DType::u8, {n_rows, 16}};
  const Parallel parallel(n_threads);
  const TensorView out_view = view_of(std::span(out), problem.q_shape());
  cpu::attention_decode(parallel, isa,
                        {view_of(std::span<const T>(q), problem.q_shape()), out_view, partials, rows, step.view(), 0, 0,
                         problem.kv.get(), problem.scale});
  cpu::attention_merge(parallel, {out_view, partials, step.view(), 0});
  std::vector<float> result(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) result[i] = static_cast<float>(out[i]);
  return result;
}

inline double round_query(float x, DType kv_dtype) {
  return static_cast<double>(kv_dtype == DType::bf16 ? static_cast<float>(BFloat16(x)) : x);
}

/// The reference's outputs for all rows and heads.
inline std::vector<reference::HeadOutput> reference_attention(const AttentionProblem& problem,
                                                              const std::vector<TokenRow>& rows) {
  const auto& shape = problem.input.shape;
  reference::Keys keys(*problem.kv, 0);
  std::vector<reference::HeadOutput> result;
  std::vector<double> q(static_cast<std::size_t>(shape.head_dim));
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (int head = 0; head < shape.n_heads; ++head) {
      const float* from =
          &problem.q[(row * static_cast<std::size_t>(shape.n_heads) + static_cast<std::size_t>(head)) * q.size()];
      for (std::size_t i = 0; i < q.size(); ++i) q[i] = round_query(from[i], shape.kv_dtype);
      const auto& blocks = problem.input.sequences[static_cast<std::size_t>(problem.input.sequence_of_row[row])].blocks;
      result.push_back(reference::attention(keys, problem.kv->shape(), q, head / (shape.n_heads / shape.n_kv_heads), rows[row],
                                            blocks, static_cast<double>(problem.scale)));
    }
  return result;
}

/// ||out - reference|| <= bound * ||reference|| for each row and head, with bound = 4e-3 for a bf16 cache (weights rounded to
/// bf16: 2^-8 each) or 1e-5 for an f32 cache, plus 8 * 2^-24 times the size of the scores (what f32 sums lose before the
/// exponential), plus `extra`. Where values cancel, the size of what cancelled counts instead of ||reference||.
inline void expect_close(const AttentionProblem& problem, const std::vector<TokenRow>& rows, const std::vector<float>& out,
                         const std::string& what, double extra = 0) {
  const auto expected = reference_attention(problem, rows);
  const auto dim = static_cast<std::size_t>(problem.input.shape.head_dim);
  const double base = (problem.input.shape.kv_dtype == DType::bf16 ? 4e-3 : 1e-5) + extra;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double error = 0;
    double norm = 0;
    for (std::size_t k = 0; k < dim; ++k) {
      const double reference = expected[i].out[k];
      const double got = static_cast<double>(out[i * dim + k]);
      error += (got - reference) * (got - reference);
      norm += reference * reference;
    }
    const double bound = base + 8 * std::ldexp(1.0, -24) * expected[i].score_size;
    ASSERT_LE(std::sqrt(error), bound * std::max(std::sqrt(norm), expected[i].value_size))
        << what << ", row " << i / static_cast<std::size_t>(problem.input.shape.n_heads) << ", head "
        << i % static_cast<std::size_t>(problem.input.shape.n_heads);
  }
}

/// The same bits, NaN included.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace baton
