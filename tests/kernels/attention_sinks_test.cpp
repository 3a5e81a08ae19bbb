/// Sinks of attention on every backend: compared with double precision in every kind of plan, added to a row once however it is
/// cut and shared, and without effect on rows that see no key.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/attention_run.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

/// Shared nodes, prefill, an extend and single rows.
const std::vector<Branch> kMixed = {{-1, 0, 600, 1},  {0, 512, 515, 1}, {0, 512, 700, 3},
                                    {2, 640, 700, 1}, {-1, 0, 70, 70},  {0, 256, 400, 140}};

/// gpt-oss has heads of 64 in groups of 8, with and without a window of 128.
const std::vector<CaseShape> kShapes = {{.n_heads = 16, .n_kv_heads = 2, .head_dim = 64, .window = 128},
                                        {.n_heads = 8, .n_kv_heads = 1, .head_dim = 64},
                                        {.n_heads = 3, .n_kv_heads = 3, .head_dim = 80},
                                        {.n_heads = 4, .n_kv_heads = 2, .head_dim = 128},
                                        {.n_heads = 2, .n_kv_heads = 1, .head_dim = 256, .window = 300}};

TEST(AttentionSinks, equal_the_reference_in_random_work_lists) {
  for (const CaseShape& shape : kShapes)
    for (const float softcap : {0.0f, 30.0f})
      for_each_dtype(shape, kMixed, 1, [&](AttentionProblem& problem) {
        problem.draw_sinks();
        problem.softcap = softcap;  // not of sinks
        check_problem(problem, softcap > 0 ? 1 : 3);
        check_problem(problem, 1, 400);
      });
}

TEST(AttentionSinks, equal_the_reference_in_plans_of_the_device_with_outputs_of_each_type) {
  for (const CaseShape& shape : kShapes)
    for_each_path(shape, kMixed, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
      problem.draw_sinks();
      const auto expected = reference_attention(problem, problem.input.rows);
      const DType own = query_dtype(problem.input.shape.kv_dtype);
      const double rounding = std::ldexp(1.0, own == DType::bf16 ? -8 : -11);
      AttentionCosts costs = on.backend.tuning().attention_costs;
      costs.memory_bytes_per_us = costs.cache_bytes_per_us = 1e3;  // so that each read that is saved pays
      for (const bool relay : {true, false}) {
        const AttentionPlan plan =
            plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(),
                           {.relay = relay, .costs = costs, .deals_pairs = on.backend.capabilities().deals_pairs});
        const std::string what = relay ? "relay" : "paged";
        for (const bool merge : {true, false}) {
          expect_close(problem, expected, memory.run(plan, {.merge = merge}), what);
          if (own != DType::f32)
            expect_close(problem, expected, memory.run(plan, {.merge = merge, .out = own}), what + ", 16 bits", rounding);
        }
      }
    });
}

TEST(AttentionSinks, keep_the_bits_of_batch_invariance_however_a_row_is_cut) {
  for (const CaseShape& shape : kShapes)
    for_each_path(shape, kMixed, [](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
      const auto backend = on.make({.n_threads = 2, .batch_invariant = true});
      ASSERT_TRUE(backend) << backend.error().message;
      problem.draw_sinks();
      auto memory = AttentionMemory::make(**backend, problem);
      if (!memory) return;
      AttentionPlan whole;  // each sequence is one item, and its rows are written directly
      whole.rows = problem.input.rows;
      for (std::size_t s = 0; s < problem.input.sequences.size(); ++s) {
        const auto& sequence = problem.input.sequences[s];
        problem.input.add_item(whole, problem.input.first_row_of(static_cast<int>(s)), sequence.n_rows, static_cast<int>(s), 0,
                               sequence.kv_len);
      }
      problem.input.finish_plan(whole);
      ASSERT_EQ(whole.n_partials, 0);
      const auto expected = memory->run(whole);
      expect_close(problem, reference_attention(problem, problem.input.rows), expected, "whole sequences");
      whole.tile_kind = 1;
      ASSERT_TRUE(same_bits(memory->run(whole), expected)) << "wide tiles";
      for (const bool relay : {true, false}) {
        AttentionPlanOptions options;
        options.relay = relay;
        options.batch_invariant = true;
        options.costs.item_us = 0.01;  // so that small cases are shared and cut
        AttentionPlan plan = plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), options);
        for (const int tile_kind : {0, 1}) {
          plan.tile_kind = tile_kind;
          for (const bool merge : {true, false})
            ASSERT_TRUE(same_bits(memory->run(plan, {.merge = merge}), expected))
                << (relay ? "relay" : "paged") << ", tiles of kind " << tile_kind << ", merge " << merge;
        }
      }
    });
}

TEST(AttentionSinks, may_hide_all_keys_and_may_count_for_nothing) {
  for_each_path({.n_heads = 8, .n_kv_heads = 1}, kMixed,
                [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend&) {
                  const std::vector<AttentionPlan> plans = {problem.input.random_plan(64, 40, true),
                                                            problem.input.random_plan(600, 400, false)};
                  problem.sinks.clear();  // of the backend before
                  std::vector<std::vector<float>> without;
                  for (const AttentionPlan& plan : plans) without.push_back(memory.run(plan));
                  problem.sinks.assign(8, -1e4f);
                  for (std::size_t i = 0; i < plans.size(); ++i) ASSERT_TRUE(same_bits(memory.run(plans[i]), without[i]));
                  problem.sinks.assign(8, 1e4f);
                  for (const AttentionPlan& plan : plans)
                    for (const float x : memory.run(plan)) ASSERT_EQ(x, 0.0f);
                });
}

TEST(AttentionSinks, leave_rows_without_keys_zero) {
  for (const int head_dim : {64, 128})
    for_each_path({.head_dim = head_dim}, kMixed, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend&) {
      problem.draw_sinks();
      for (const int max_tile : {8, 400})
        for (const int tile_kind : {0, 1}) {
          AttentionPlan plan = problem.input.random_plan(64, max_tile, true);
          plan.tile_kind = tile_kind;
          const auto alive = memory.run(plan);
          for (std::size_t row = 0; row < plan.rows.size(); row += 3) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
          const auto out = memory.run(plan);
          for (std::size_t i = 0; i < out.size(); ++i)
            ASSERT_EQ(out[i], i / problem.row_size() % 3 == 0 ? 0.0f : alive[i]) << "row " << i / problem.row_size();
        }
    });
}

}  // namespace
}  // namespace baton
