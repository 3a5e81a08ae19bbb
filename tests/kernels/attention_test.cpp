/// Attention compared with double precision: lengths, groups, trees, head shapes, windows, soft-caps, dead rows and
/// NaN in unused memory, on every backend and storage dtype. Difficult values: attention_values_test.
#include <gtest/gtest.h>

#include "support/attention_run.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

const std::vector<Branch> kTree = {{-1, 0, 300, 1},  {0, 256, 259, 1}, {0, 256, 401, 1}, {2, 320, 333, 1},
                                   {2, 384, 513, 1}, {4, 512, 529, 1}, {-1, 0, 17, 1},   {-1, 0, 1, 1}};

/// Few rows and keys, with every kind of item, for sanitizer runs (--gtest_filter=AttentionSmall.*).
TEST(AttentionSmall, equals_the_reference) {
  for (const int head_dim : {64, 80, 128, 256})
    for_each_dtype({.n_heads = 4, .n_kv_heads = 2, .head_dim = head_dim}, {{-1, 0, 70, 1}, {0, 32, 37, 3}, {-1, 0, 1, 1}}, 1,
                   [](AttentionProblem& problem) { check_problem(problem, 2); });
}

TEST(AttentionSmall, equals_the_reference_in_windows_with_bounded_scores) {
  for_each_dtype({.n_heads = 8, .n_kv_heads = 1, .head_dim = 128, .window = 20}, {{-1, 0, 70, 1}, {0, 48, 53, 5}}, 1,
                 [](AttentionProblem& problem) {
                   problem.softcap = 30;
                   check_problem(problem, 2);
                 });
}

TEST(AttentionSmall, equals_the_reference_over_several_chunks_and_many_rows) {
  for_each_dtype({.n_heads = 4, .n_kv_heads = 1, .head_dim = 64}, {{-1, 0, 530, 1}, {0, 512, 560, 40}}, 1,
                 [](AttentionProblem& problem) { check_problem(problem, 1, 400); });
}

TEST(AttentionSmall, a_captured_graph_runs_again) {
  for_each_path({}, {{-1, 0, 70, 1}, {0, 32, 37, 1}},
                [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                  const AttentionPlan plan = problem.input.random_plan(16, 2, true);
                  const auto expected = memory.run(plan);
                  memory.prepare(plan, {}, plan.n_partials);
                  const StepInput step = make_step(plan);
                  const StepView view = on.backend.upload_step(step);
                  const auto graph = on.backend.capture([&] { memory.enqueue(view); });
                  ASSERT_TRUE(graph) << graph.error().message;
                  for (int i = 0; i < 2; ++i) {
                    memory.poison_outputs();
                    (*graph)->replay();
                    ASSERT_TRUE(same_bits(memory.outputs(), expected));
                  }
                });
}

TEST(Attention, every_backend_takes_the_storages_it_promises) {
  for (const TestBackend& on : test_backends()) {
    const std::vector<DType> promised =
        on.is_cuda() ? std::vector{DType::bf16, DType::f16, DType::f8_e4m3} : std::vector{DType::f32, DType::bf16};
    const auto invariant = on.make({.n_threads = 1, .batch_invariant = true});
    ASSERT_TRUE(invariant) << invariant.error().message;
    for (const DType dtype : promised)
      for (const int head_dim : {8, 64, 80, 96, 104, 112, 128, 160, 256}) {
        if (dtype == DType::f8_e4m3 && head_dim > 64 && (head_dim < 104 || head_dim > 128)) continue;
        for (Backend* const backend : {&on.backend, invariant->get()}) {
          const auto kv = backend->make_kv_storage({1, 1, 16, 1, head_dim, dtype});
          EXPECT_TRUE(kv) << on.name << ": " << kv.error().message;
        }
      }
  }
}

TEST(Attention, equals_the_reference_over_trees_of_shared_blocks) {
  for_each_dtype({}, kTree, 1, [](AttentionProblem& problem) { check_problem(problem, 8); });
}

TEST(Attention, equals_the_reference_over_random_trees) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 15; ++i) {
    const auto branches = random_branches(random, i % 5, 1 + i, i % 3 == 0 ? 20 : 3);
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, branches, static_cast<std::uint64_t>(i),
                   [](AttentionProblem& problem) { check_problem(problem, 4); });
    if (HasFailure()) return;
  }
}

TEST(Attention, equals_the_reference_for_every_group_size) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 16, 40, 64})
    for_each_dtype({.n_heads = 2 * group, .n_kv_heads = 2}, {{-1, 0, 131, 1}, {0, 96, 100, 2}, {0, 112, 150, 25}},
                   static_cast<std::uint64_t>(group), [](AttentionProblem& problem) { check_problem(problem, 2); });
}

TEST(Attention, equals_the_reference_for_every_head_size) {
  for (const int head_dim : {2, 8, 64, 80, 96, 128, 256})
    for_each_dtype({.n_heads = 3, .n_kv_heads = 1, .head_dim = head_dim}, {{-1, 0, 300, 1}, {0, 96, 100, 3}, {0, 112, 270, 1}},
                   1, [](AttentionProblem& problem) { check_problem(problem, 3); });
}

TEST(Attention, equals_the_reference_for_every_head_size_and_many_rows) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const int group : {4, 8})
      for_each_dtype({.n_heads = group, .n_kv_heads = 1, .head_dim = head_dim}, {{-1, 0, 300, 1}, {0, 288, 370, 40}}, 1,
                     [](AttentionProblem& problem) { check_problem(problem, 1, 400); });
}

TEST(Attention, equals_the_reference_at_lengths_around_tiles_and_chunks) {
  std::vector<Branch> branches;
  for (int len = 31; len <= 65; ++len) branches.push_back({-1, 0, len, 1});
  for (const int len : {1, 2, 3, 7, 8, 9, 15, 16, 17, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025})
    branches.push_back({-1, 0, len, 1});
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, branches, 1, [](AttentionProblem& problem) { check_problem(problem, 4); });
}

TEST(Attention, one_long_context_may_stand_among_short_ones) {
  for (const TestBackend& on : test_backends())
    for (const DType dtype : storage_dtypes()) {
      std::vector<Branch> branches = {{-1, 0, on.is_cuda() ? 131'071 : 8'191, 1}};
      for (int i = 0; i < 40; ++i) branches.push_back({-1, 0, 1 + i, 1});
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .kv_dtype = dtype}, branches);
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      const AttentionPlan plan =
          plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(),
                         {.costs = on.backend.tuning().attention_costs, .deals_pairs = on.backend.capabilities().deals_pairs});
      const auto expected = reference_attention(problem, problem.input.rows);
      expect_close(problem, expected, memory->run(plan), name_of(on, problem.input.shape));
      expect_close(problem, expected, memory->run(problem.input.random_plan(256, 1, false)), "random cuts");
    }
}

TEST(Attention, takes_every_block_length) {
  for (const int block_len : {16, 32, 64, 128, 256})
    for_each_dtype({.n_heads = 2, .n_kv_heads = 2, .block_len = block_len},
                   {{-1, 0, 600, 1}, {0, 256, 301, 1}, {0, 512, 530, 2}}, 1,
                   [](AttentionProblem& problem) { check_problem(problem, 4); });
}

TEST(Attention, one_read_serves_any_number_of_sequences) {
  for (const int n_sequences : {1, 2, 3, 5, 31, 32, 33, 130}) {
    std::vector<Branch> branches = {{-1, 0, 290, 1}};
    for (int i = 1; i < n_sequences; ++i) branches.push_back({0, 272, 273 + i % 20, 1});
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, branches, 1, [](AttentionProblem& problem) { check_problem(problem, 1); });
    for_each_dtype({.n_heads = 8, .n_kv_heads = 2}, branches, 2, [](AttentionProblem& problem) {
      for (const TestBackend& on : test_backends()) {
        auto memory = AttentionMemory::make(on.backend, problem);
        if (!memory) continue;
        // The node is one item with any number of rows; the contexts are leaves.
        AttentionPlan plan;
        plan.rows = problem.input.rows;
        const auto n = static_cast<int>(problem.input.sequences.size());
        problem.input.add_item(plan, 0, n, 0, 0, 272);
        for (int s = 0; s < n; ++s)
          problem.input.add_item(plan, s, 1, s, 272, problem.input.sequences[static_cast<std::size_t>(s)].kv_len);
        problem.input.finish_plan(plan);
        expect_close(problem, reference_attention(problem, plan.rows), memory->run(plan), name_of(on, problem.input.shape));
      }
    });
    if (HasFailure()) return;
  }
}

TEST(Attention, nodes_may_be_one_block_or_end_within_one) {
  const std::vector<Branch> branches = {{-1, 0, 16, 1}, {0, 16, 17, 1}, {0, 16, 32, 1}, {2, 32, 33, 1},
                                        {2, 32, 48, 2}, {4, 48, 64, 1}, {5, 64, 65, 1}, {-1, 0, 16, 1}};
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, branches, 1, [](AttentionProblem& problem) {
    check_problem(problem, 8);
    for (const TestBackend& on : test_backends())
      for (const int end : {1, 5, 15}) {
        auto memory = AttentionMemory::make(on.backend, problem);
        if (!memory) continue;
        AttentionPlan plan;  // the first seven share `end` tokens of their first block, the rest of it is read by each
        plan.rows = problem.input.rows;
        problem.input.add_item(plan, 0, 8, 0, 0, end);
        for (int s = 0; s < 7; ++s) {
          const auto& sequence = problem.input.sequences[static_cast<std::size_t>(s)];
          problem.input.add_item(plan, problem.input.first_row_of(s), sequence.n_rows, s, end, sequence.kv_len);
        }
        problem.input.add_item(plan, 8, 1, 7, 0, 16);
        problem.input.finish_plan(plan);
        expect_close(problem, reference_attention(problem, plan.rows), memory->run(plan), name_of(on, problem.input.shape));
      }
  });
}

TEST(Attention, prefill_rows_see_no_later_token) {
  for_each_dtype({}, {{-1, 0, 70, 70}, {0, 64, 300, 236}, {-1, 0, 5, 3}}, 1, [](AttentionProblem& problem) {
    check_problem(problem, 3);
    check_problem(problem, 2, 400);
  });
}

TEST(Attention, extends_and_verification_stand_beside_decode) {
  for (const int n_rows : {2, 4, 5, 8, 16, 17})
    for_each_dtype({.n_heads = 8, .n_kv_heads = 2, .head_dim = 128},
                   {{-1, 0, 400, 1}, {0, 384, 384 + n_rows, n_rows}, {0, 384, 420, n_rows}, {-1, 0, n_rows, n_rows}}, 1,
                   [](AttentionProblem& problem) { check_problem(problem, 4); });
}

TEST(Attention, equals_the_reference_where_the_plan_has_larger_tiles) {
  const auto check_plans = [](AttentionProblem& problem) {
    const auto expected = reference_attention(problem, problem.input.rows);
    const DType dtype = query_dtype(problem.input.shape.kv_dtype);
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      AttentionCosts costs = on.backend.tuning().attention_costs;
      costs.flops_per_us /= 100;  // of the smaller tiles: so the plan takes the larger ones although a decode is among the rows
      for (const bool relay : {true, false}) {
        const AttentionPlan plan =
            plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(),
                           {.relay = relay, .costs = costs, .deals_pairs = on.backend.capabilities().deals_pairs});
        EXPECT_EQ(plan.tile_kind == 1, costs.larger_tiles[0].serve(problem.input.attention_shape()));
        const std::string what = name_of(on, problem.input.shape) + (relay ? ", relay" : ", paged");
        expect_close(problem, expected, memory->run(plan), what);
        if (on.is_cuda())
          expect_close(problem, expected, memory->run(plan, {.out = dtype}), what + ", 16 bits",
                       std::ldexp(1.0, dtype == DType::bf16 ? -8 : -11));
      }
    }
  };
  const std::vector<Branch> branches = {{-1, 0, 300, 1}, {0, 288, 440, 152}, {0, 288, 360, 70}, {-1, 0, 75, 75}};
  for (const int head_dim : {64, 128})
    for (const int group : {1, 4, 7})
      for_each_dtype({.n_heads = group, .n_kv_heads = 1, .head_dim = head_dim}, branches, 1, check_plans);
  for (const int window : {40, 200})
    for_each_dtype({.n_heads = 4, .n_kv_heads = 1, .head_dim = 128, .window = window}, branches, 1,
                   [&](AttentionProblem& problem) {
                     problem.softcap = window == 40 ? 30.0f : 0.0f;
                     check_plans(problem);
                   });
}

TEST(Attention, equals_the_reference_where_both_kernels_share_the_work) {
  const auto check_plan = [](AttentionProblem& problem) {
    const auto expected = reference_attention(problem, problem.input.rows);
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      AttentionCosts costs = on.backend.tuning().attention_costs;
      costs.memory_bytes_per_us = costs.cache_bytes_per_us = 1e3;  // so that each read that is saved pays
      costs.larger_tiles[0].smaller_ratio = 100;
      const AttentionShape shape = problem.input.attention_shape();
      const AttentionPlan plan = plan_attention(problem.input.sequence_rows(), shape,
                                                {.costs = costs, .deals_pairs = on.backend.capabilities().deals_pairs});
      EXPECT_EQ(plan.n_larger_workers > 0, costs.larger_tiles[0].may_join(shape)) << name_of(on, problem.input.shape);
      for (int run = 0; run < 3; ++run) expect_close(problem, expected, memory->run(plan), name_of(on, problem.input.shape));
    }
  };
  std::vector<Branch> branches = {{-1, 0, 460, 1}};
  for (int i = 0; i < 27; ++i) branches.push_back({0, i < 18 ? 384 : 192, 400 + 5 * i, i % 7 == 0 ? 2 : 1});
  for (const int head_dim : {64, 128})
    for (const int group : {4, 7})
      for_each_dtype({.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = head_dim}, branches, 1, check_plan);
  for (const int window : {250, 470})
    for_each_dtype({.n_heads = 4, .n_kv_heads = 1, .head_dim = 128, .window = window}, branches, 1,
                   [&](AttentionProblem& problem) {
                     problem.softcap = window == 250 ? 30.0f : 0.0f;
                     check_plan(problem);
                   });
}

TEST(Attention, a_window_hides_what_is_before_it) {
  for (const int window : {1, 2, 15, 16, 17, 100, 255, 256, 257, 300, 530, 1000})
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1, .window = window}, {{-1, 0, 530, 1}, {0, 512, 515, 3}, {0, 256, 300, 40}}, 1,
                   [](AttentionProblem& problem) { check_problem(problem, 4); });
}

TEST(Attention, bounds_the_scores_if_asked_with_and_without_windows) {
  for (const float softcap : {30.0f, 50.0f})
    for (const int window : {0, 100})
      for (const float key_factor : {1.0f, 30.0f, 1000.0f})
        for_each_dtype({.n_heads = 2, .n_kv_heads = 1, .window = window},
                       {{-1, 0, 300, 1}, {0, 256, 530, 1}, {0, 256, 300, 20}}, 1, [&](AttentionProblem& problem) {
                         problem.fill_normal(key_factor);
                         problem.softcap = softcap;
                         check_problem(problem, 2);
                       });
}

TEST(Attention, bounds_the_scores_inside_windows_for_every_head_size_and_many_queries_a_key) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const int group : {1, 8, 16})
      for_each_dtype({.n_heads = group, .n_kv_heads = 1, .head_dim = head_dim, .window = 100},
                     {{-1, 0, 300, 1}, {0, 256, 330, 20}}, 1, [](AttentionProblem& problem) {
                       problem.softcap = 30;
                       check_problem(problem, 1);
                     });
}

TEST(Attention, reads_its_own_layer) {
  for_each_dtype({}, kTree, 1, [](AttentionProblem& problem) {
    for (const TestBackend& on : test_backends())
      for (const int layer : {0, 1, 2}) {
        auto memory = AttentionMemory::make(on.backend, problem, 3, layer);  // the other layers are NaN
        if (!memory) continue;
        expect_close(problem, reference_attention(problem, problem.input.rows),
                     memory->run(problem.input.random_plan(64, 8, true)), name_of(on, problem.input.shape));
      }
  });
}

TEST(Attention, a_dead_row_gives_zero_and_disturbs_no_other) {
  const auto check_plan = [](AttentionProblem& problem, AttentionMemory& memory, int tile_kind) {
    AttentionPlan before = problem.input.random_plan(16, 40, true);
    before.tile_kind = tile_kind;
    AttentionPlan plan = before;
    for (std::size_t row = 0; row < plan.rows.size(); row += 3) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
    const std::size_t row_size = problem.row_size();
    const auto alive = memory.run(before);
    const auto out = memory.run(plan);
    for (std::size_t row = 0; row < plan.rows.size(); ++row)
      for (std::size_t i = 0; i < row_size; ++i) {
        const float expected = row % 3 == 0 ? 0.0f : alive[row * row_size + i];
        ASSERT_EQ(out[row * row_size + i], expected) << "row " << row;
      }
    for (TokenRow& row : plan.rows) row.kv_hi = row.kv_lo;
    for (const float x : memory.run(plan)) ASSERT_EQ(x, 0.0f);
  };
  for (const int head_dim : {16, 64, 128})
    for_each_path({.head_dim = head_dim}, kTree, [&](AttentionProblem& problem, AttentionMemory& memory, const TestBackend&) {
      for (const int tile_kind : {0, 1}) check_plan(problem, memory, tile_kind);
    });
}

TEST(Attention, dead_rows_read_no_position_that_was_never_written) {
  for_each_dtype({.n_heads = 1, .n_kv_heads = 1}, {{-1, 0, 20, 1}}, 1, [](AttentionProblem& problem) {
    problem.contents.clear();
    AttentionPlan plan = problem.input.random_plan(16, 1, false);
    plan.rows[0].kv_hi = plan.rows[0].kv_lo;
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      for (const float x : memory->run(plan)) ASSERT_EQ(x, 0.0f) << on.name;
    }
  });
}

TEST(Attention, what_lies_before_every_window_may_hold_anything) {
  for (const int window : {1, 2, 16, 17, 270})
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1, .window = window}, {{-1, 0, 530, 1}, {-1, 0, 300, 2}}, 1,
                   [](AttentionProblem& problem) {
                     for (int s = 0; s < 2; ++s)
                       for (int t = 0; t < problem.input.rows[static_cast<std::size_t>(s)].kv_lo; ++t)
                         for (const bool is_value : {false, true})
                           problem.set_token(s, t, is_value, [](int) { return std::nanf(""); });
                     check_problem(problem, 3);
                   });
}

TEST(Attention, outputs_may_be_16_bit) {
  for_each_path({}, kTree, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
    const AttentionPlan plan = problem.input.random_plan(64, 8, true);
    const auto expected = reference_attention(problem, plan.rows);
    const DType own = query_dtype(problem.input.shape.kv_dtype);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      if (on.is_cuda() && dtype != own) continue;  // CUDA writes f32 or the dtype that it reads
      // Outputs are rounded once more, by at most 2^-8 (bf16) or 2^-11 (f16) of each element.
      const double rounding = std::ldexp(1.0, dtype == DType::bf16 ? -8 : -11);
      for (const bool merge : {true, false})
        expect_close(problem, expected, memory.run(plan, {.merge = merge, .out = dtype}), std::string(to_string(dtype)),
                     rounding);
    }
  });
}

TEST(Attention, a_cpu_takes_queries_of_any_type) {
  for_each_path({}, kTree, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
    if (on.is_cuda()) return;
    problem.set_queries([&](std::size_t i) { return static_cast<float>(BFloat16(std::sin(static_cast<float>(i)))); });
    const AttentionPlan plan = problem.input.random_plan(64, 8, true);
    const auto expected = memory.run(plan);
    for (const DType dtype :
         {DType::f32, DType::bf16, DType::f16})  // sines of 8 bits are the same in each, but for the smallest
      expect_close(problem, reference_attention(problem, plan.rows), memory.run(plan, {.q = dtype}),
                   std::string(to_string(dtype)), dtype == DType::f16 ? 1e-6 : 0);
    ASSERT_TRUE(same_bits(memory.run(plan, {.q = DType::f32}), expected));
  });
}

TEST(Attention, reaches_blocks_beyond_2_to_the_31_elements) {
  AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 256}, {{-1, 0, 40, 1}});
  const AttentionPlan plan = problem.input.random_plan(16, 1, false);
  constexpr int kManyBlocks = 280'000;  // of 16 KB; on a CPU only touched pages take memory
  std::vector<std::int32_t> numbers;
  for (std::int32_t b = 0; b < problem.input.n_blocks; ++b) numbers.push_back(kManyBlocks - 1 - b);
  AttentionPlan far = plan;
  for (std::int32_t& b : far.block_lists) b = numbers[static_cast<std::size_t>(b)];
  for (const TestBackend& on : test_backends()) {
    auto near_memory = AttentionMemory::make(on.backend, problem);
    auto far_memory = AttentionMemory::make(on.backend, problem, 1, 0, kManyBlocks, numbers, on.is_cuda());
    if (!near_memory || !far_memory) continue;
    EXPECT_TRUE(same_bits(far_memory->run(far), near_memory->run(plan))) << on.name;
  }
}

}  // namespace
}  // namespace baton
