/// Attention over keys whose beginnings are values (KvShape::latent_dim), compared with double precision on every backend: sizes,
/// numbers of query heads, trees, windows, sinks, plans of the device, and NaN in unused memory.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/attention_run.h"
#include "support/kv_shapes.h"
#include "support/plan_fault.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;
using testing::LatentKeys;

const std::vector<Branch> kLatentTree = {{-1, 0, 300, 1},  {0, 256, 259, 1}, {0, 256, 401, 1}, {2, 320, 333, 1},
                                         {2, 384, 513, 1}, {4, 512, 529, 1}, {-1, 0, 17, 1},   {-1, 0, 1, 1}};

/// Shared nodes, prefill, an extend and single rows.
const std::vector<Branch> kLatentMixed = {{-1, 0, 600, 1},  {0, 512, 515, 1}, {0, 512, 700, 3},
                                          {2, 640, 700, 1}, {-1, 0, 20, 20},  {0, 256, 280, 12}};

/// A case with one KV head.
CaseShape latent_case(const LatentKeys& keys, int n_heads, int window = 0) {
  return {.n_heads = n_heads, .n_kv_heads = 1, .head_dim = keys.head_dim(), .window = window, .latent_dim = keys.latent_dim};
}

/// The sizes of published models, which CUDA takes too.
constexpr LatentKeys kLargeKeys{512, 64};
constexpr LatentKeys kSmallKeys{256, 64};

AttentionPlanOptions options_of(const TestBackend& on, bool relay) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.costs = on.backend.tuning().attention_costs;
  options.deals_pairs = on.backend.capabilities().deals_pairs;
  return options;
}

/// Few rows and keys, with every kind of item, for sanitizer runs (--gtest_filter=LatentAttentionSmall.*).
TEST(LatentAttentionSmall, equals_the_reference) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for (const int n_heads : {1, 20})
      for_each_dtype(latent_case(keys, n_heads), {{-1, 0, 70, 1}, {0, 32, 37, 3}, {-1, 0, 1, 1}}, 1,
                     [](AttentionProblem& problem) { check_problem(problem, 2); });
}

TEST(LatentAttentionSmall, equals_the_reference_over_several_chunks_and_many_rows) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 4), {{-1, 0, 530, 1}, {0, 512, 560, 40}}, 1,
                   [](AttentionProblem& problem) { check_problem(problem, 1, 400); });
}

TEST(LatentAttentionSmall, a_captured_graph_runs_again) {
  for_each_path(latent_case(kLargeKeys, 20), {{-1, 0, 70, 1}, {0, 32, 37, 1}},
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

TEST(LatentAttention, every_backend_takes_the_keys_it_promises) {
  for (const TestBackend& on : test_backends())
    for (const DType dtype : testing::stored_dtypes(on))
      for (const LatentKeys& keys : testing::stored_latents(on, dtype)) {
        KvShape shape{1, 1, 16, 1, keys.head_dim(), dtype};
        shape.latent_dim = keys.latent_dim;
        const auto kv = on.backend.make_kv_storage(shape);
        EXPECT_TRUE(kv) << on.name << ": " << kv.error().message;
      }
}

TEST(LatentAttention, equals_the_reference_over_trees_of_shared_blocks) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 8), kLatentTree, 1, [](AttentionProblem& problem) { check_problem(problem, 4); });
}

TEST(LatentAttention, equals_the_reference_over_random_trees) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 8; ++i) {
    const auto branches = random_branches(random, i % 5, 1 + i, i % 3 == 0 ? 20 : 3);
    for_each_dtype(latent_case(i % 2 == 0 ? kLargeKeys : kSmallKeys, i % 3 == 0 ? 20 : 3), branches,
                   static_cast<std::uint64_t>(i), [](AttentionProblem& problem) { check_problem(problem, 3); });
    if (HasFailure()) return;
  }
}

TEST(LatentAttention, equals_the_reference_for_every_number_of_query_heads) {
  for (const int n_heads : {1, 8, 16, 20, 32, 64, 128})
    for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
      for_each_dtype(latent_case(keys, n_heads), {{-1, 0, 131, 1}, {0, 96, 100, 2}, {0, 112, 130, 3}},
                     static_cast<std::uint64_t>(n_heads), [](AttentionProblem& problem) { check_problem(problem, 1); });
}

TEST(LatentAttention, a_cpu_takes_keys_of_every_even_size) {
  for (const LatentKeys& keys : {LatentKeys{64, 32}, {48, 16}, {30, 2}, {2, 2}, {256, 2}, {496, 80}, {574, 2}})
    for (const int n_heads : {1, 5})
      for_each_dtype(latent_case(keys, n_heads), {{-1, 0, 300, 1}, {0, 96, 100, 3}, {0, 112, 270, 1}}, 1,
                     [](AttentionProblem& problem) { check_problem(problem, 3); });
}

TEST(LatentAttention, equals_the_reference_at_lengths_around_tiles_stages_and_chunks) {
  std::vector<Branch> branches;
  for (const int len : {1,  2,  7,  8,  15, 16,  17,  31,  32,  33,  47,  48,  49,  63,  64,   65,
                        79, 80, 81, 95, 97, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1025})
    branches.push_back({-1, 0, len, 1});
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 2), branches, 1, [](AttentionProblem& problem) { check_problem(problem, 3); });
}

TEST(LatentAttention, prefill_rows_see_no_later_token) {
  for (const auto& [keys, n_heads] : {std::pair{kLargeKeys, 3}, {kSmallKeys, 20}})
    for_each_dtype(latent_case(keys, n_heads), {{-1, 0, 50, 50}, {0, 48, 90, 38}, {-1, 0, 5, 3}}, 1,
                   [](AttentionProblem& problem) {
                     check_problem(problem, 1);
                     check_problem(problem, 1, 400);
                   });
}

TEST(LatentAttention, takes_every_block_length_and_reads_its_own_layer) {
  for (const int block_len : {16, 32, 64, 128, 256}) {
    CaseShape shape = latent_case(kLargeKeys, 4);
    shape.block_len = block_len;
    for_each_dtype(shape, {{-1, 0, 600, 1}, {0, 256, 301, 1}, {0, 512, 530, 2}}, 1, [](AttentionProblem& problem) {
      check_problem(problem, 2);
      for (const TestBackend& on : test_backends()) {
        auto memory = AttentionMemory::make(on.backend, problem, 3, 1);  // the other layers are NaN
        if (!memory) continue;
        expect_close(problem, reference_attention(problem, problem.input.rows),
                     memory->run(problem.input.random_plan(64, 8, true)), name_of(on, problem.input.shape));
      }
    });
  }
}

TEST(LatentAttention, equals_the_reference_in_plans_of_the_device_with_outputs_of_each_type) {
  for (const auto& [keys, n_heads] : {std::pair{kLargeKeys, 20}, {kSmallKeys, 16}})
    for_each_path(latent_case(keys, n_heads), kLatentMixed,
                  [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                    const auto expected = reference_attention(problem, problem.input.rows);
                    const DType own = query_dtype(problem.input.shape.kv_dtype);
                    const double rounding = std::ldexp(1.0, own == DType::bf16 ? -8 : -11);
                    for (const bool relay : {true, false}) {
                      AttentionPlanOptions options = options_of(on, relay);
                      // Each read that is saved pays.
                      options.costs.memory_bytes_per_us = options.costs.cache_bytes_per_us = 1e3;
                      options.costs.flops_per_us = options.costs.latent_tiles.costs.flops_per_us = 1e12;
                      const auto sequences = problem.input.sequence_rows();
                      const AttentionShape shape = problem.input.attention_shape();
                      const AttentionPlan plan = plan_attention(sequences, shape, options);
                      ASSERT_EQ(test::find_plan_fault(plan, sequences, shape), std::nullopt);
                      EXPECT_EQ(plan.tile_kind, 0);
                      EXPECT_EQ(plan.stats.nodes.empty(), !relay);
                      for (const bool merge : {true, false}) {
                        const std::string what = relay ? "relay" : "paged";
                        expect_close(problem, expected, memory.run(plan, {.merge = merge}), what);
                        if (own != DType::f32)
                          expect_close(problem, expected, memory.run(plan, {.merge = merge, .out = own}), what + ", 16 bits",
                                       rounding);
                      }
                    }
                  });
}

// As many requests as one tile has room for, and more, behind a prompt: what relay is for.
TEST(LatentAttention, one_read_serves_any_number_of_sequences) {
  for (const int n_sequences : {3, 4, 23}) {
    std::vector<Branch> branches = {{-1, 0, 290, 1}};
    for (int i = 1; i < n_sequences; ++i) branches.push_back({0, 272, 273 + i % 20, 1});
    for_each_path(latent_case(kLargeKeys, 20), branches,
                  [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                    AttentionPlan plan;
                    plan.rows = problem.input.rows;
                    const auto n = static_cast<int>(problem.input.sequences.size());
                    problem.input.add_item(plan, 0, n, 0, 0, 272);
                    for (int s = 0; s < n; ++s)
                      problem.input.add_item(plan, s, 1, s, 272, problem.input.sequences[static_cast<std::size_t>(s)].kv_len);
                    problem.input.finish_plan(plan);
                    const auto expected = memory.run(plan);
                    expect_close(problem, reference_attention(problem, plan.rows), expected, "one item");
                    for (int i = 0; i < 3; ++i) {
                      problem.input.deal_pairs(
                          plan, on.backend.tuning().attention_costs.of_shape(problem.input.attention_shape()).n_workers);
                      for (const bool merge : {true, false})
                        ASSERT_TRUE(same_bits(memory.run(plan, {.merge = merge}), expected)) << "dealt, merge " << merge;
                    }
                  });
  }
}

TEST(LatentAttention, a_window_hides_what_is_before_it_whatever_it_is) {
  for (const int window : {1, 16, 17, 100, 256, 300, 1000})
    for_each_dtype(latent_case(window % 2 == 0 ? kLargeKeys : kSmallKeys, 4, window),
                   {{-1, 0, 530, 1}, {-1, 0, 300, 2}, {1, 256, 300, 20}}, 1, [](AttentionProblem& problem) {
                     for (int t = 0; t < problem.input.rows[0].kv_lo; ++t)
                       problem.set_token(0, t, false, [](int) { return std::nanf(""); });
                     check_problem(problem, 3);
                   });
}

TEST(LatentAttention, adds_sinks_once_however_a_row_is_cut) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 16), kLatentTree, 1, [](AttentionProblem& problem) {
      problem.draw_sinks();
      check_problem(problem, 4);
    });
}

TEST(LatentAttention, a_cpu_bounds_the_scores) {
  for_each_dtype(latent_case({64, 32}, 4), kLatentTree, 1, [](AttentionProblem& problem) {  // CUDA has no such keys
    problem.softcap = 3;
    check_problem(problem, 3);
  });
}

TEST(LatentAttention, large_logits_keep_their_precision) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 2), {{-1, 0, 300, 1}, {0, 256, 530, 1}}, 1, [](AttentionProblem& problem) {
      for (const float key_factor : {30.0f, 3000.0f}) {  // logits of about 1e2 and 1e4
        problem.fill_normal(key_factor);
        check_problem(problem, 3);
      }
    });
}

// The latent part is small beside the rotated part, which alone decides the scores but is no part of a value.
TEST(LatentAttention, the_rotated_part_counts_for_scores_alone) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_dtype(latent_case(keys, 8), {{-1, 0, 300, 1}, {0, 256, 330, 4}}, 1, [&](AttentionProblem& problem) {
      std::normal_distribution<float> normal;
      problem.fill_places(1, 1, [&](bool, int, int, int, int dim) {
        return normal(problem.input.random) * (dim < keys.latent_dim ? 0.01f : 10.0f);
      });
      check_problem(problem, 3);
    });
}

TEST(LatentAttention, a_dead_row_gives_zero_disturbs_no_other_and_reads_nothing) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_path(latent_case(keys, 20), kLatentTree,
                  [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                    AttentionPlan plan = problem.input.random_plan(16, 40, true);
                    const std::size_t row_size = problem.out_row_size();
                    const auto alive = memory.run(plan);
                    for (std::size_t row = 0; row < plan.rows.size(); row += 3) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
                    const auto out = memory.run(plan);
                    for (std::size_t i = 0; i < out.size(); ++i)
                      ASSERT_EQ(out[i], i / row_size % 3 == 0 ? 0.0f : alive[i]) << "row " << i / row_size;
                    AttentionProblem unwritten = problem;
                    unwritten.contents.clear();
                    for (TokenRow& row : plan.rows) row.kv_hi = row.kv_lo;
                    auto nowhere = AttentionMemory::make(on.backend, unwritten);
                    for (const float x : nowhere->run(plan)) ASSERT_EQ(x, 0.0f);
                  });
}

TEST(LatentAttention, a_nan_key_that_a_row_sees_is_not_hidden) {
  for (const LatentKeys& keys : {kLargeKeys, kSmallKeys})
    for_each_path(latent_case(keys, 1), {{-1, 0, 300, 2}},
                  [](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
                    problem.set_token(0, 299, false, [](int) { return std::nanf(""); });  // of the second row
                    auto memory = AttentionMemory::make(on.backend, problem);
                    const auto out = memory->run(problem.input.random_plan(16, 2, false));
                    for (std::size_t i = problem.out_row_size(); i < out.size(); ++i) ASSERT_TRUE(std::isnan(out[i]));
                  });
}

TEST(LatentAttention, runs_again_with_the_same_bits_and_however_states_are_merged) {
  for_each_path(latent_case(kLargeKeys, 20), kLatentTree,
                [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                  const AttentionPlan plan = problem.input.random_plan(16, 5, true);
                  const auto expected = memory.run(plan);
                  for (int i = 0; i < (on.is_cuda() ? 20 : 2); ++i) {
                    ASSERT_TRUE(same_bits(memory.run(plan), expected)) << "run " << i;
                    ASSERT_TRUE(same_bits(memory.run(plan, {.merge = false}), expected)) << "merged apart, run " << i;
                  }
                });
}

}  // namespace
}  // namespace baton
