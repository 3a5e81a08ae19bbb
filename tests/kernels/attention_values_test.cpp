/// Attention with difficult values: large and equal logits, one dominant key, prefix and context of very different
/// scores, offsets, denormals, NaN. On every backend and storage dtype, compared with double precision.
#include <gtest/gtest.h>

#include "support/attention_run.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

TEST(AttentionValues, large_logits_keep_their_precision) {
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 256, 530, 1}}, 1, [](AttentionProblem& problem) {
    for (const float key_factor : {30.0f, 3000.0f}) {  // logits of about 1e2 and 1e4
      problem.fill_normal(key_factor);
      check_problem(problem, 4);
    }
  });
}

TEST(AttentionValues, values_far_from_zero_keep_their_differences) {
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 256, 530, 1}}, 1, [](AttentionProblem& problem) {
    problem.fill_normal(1, 1, 1000);
    check_problem(problem, 4);
    problem.fill_normal(1, problem.input.shape.kv_dtype == DType::f16 ? 1e-4f : 1e-30f);
    check_problem(problem, 2);
  });
}

TEST(AttentionValues, denormals_and_negative_zeros_are_numbers_like_others) {
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 256, 530, 1}}, 1, [](AttentionProblem& problem) {
    const DType dtype = problem.input.shape.kv_dtype;
    const float tiny = dtype == DType::f16 ? 3e-7f : dtype == DType::f8_e4m3 ? 0x1p-9f : 1e-39f;
    std::normal_distribution<float> normal;
    const auto number = [&] {
      const int kind = problem.input.uniform(0, 3);
      return kind == 0 ? -0.0f : kind == 1 ? tiny : kind == 2 ? -tiny : normal(problem.input.random);
    };
    problem.fill_places(1, 1, [&](bool, int, int, int, int) { return number(); });
    problem.set_queries([&](std::size_t) { return number(); });
    check_problem(problem, 4);
    problem.fill_places(1, 1, [&](bool, int, int, int, int) { return -0.0f; });  // all of it
    for (const TestBackend& on : test_backends())
      if (auto memory = AttentionMemory::make(on.backend, problem)) {
        for (const float x : memory->run(problem.input.random_plan(16, 1, true))) ASSERT_EQ(x, 0.0f) << on.name;
      }
  });
}

/// The error of a weight if the largest score is not subtracted exactly: the f32 rounding error of the score.
double score_loss(float score) { return 8 * std::ldexp(1.0, -24) * static_cast<double>(score); }

TEST(AttentionValues, one_dominating_key_gives_its_value) {
  for (const int hot : {0, 1, 15, 16, 255, 256, 511, 530})
    for_each_path({.n_heads = 1, .n_kv_heads = 1}, {{-1, 0, 531, 1}},
                  [&](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
                    problem.fill_places(1, 1, [&](bool is_value, int, int, int t, int dim) {
                      return is_value ? static_cast<float>((t * 7 + dim * 3) % 64 - 31) : (t == hot ? 100.0f : -100.0f);
                    });
                    problem.set_queries([](std::size_t) { return 4.0f; });
                    auto memory = AttentionMemory::make(on.backend, problem);
                    const std::int32_t block = problem.input.sequences[0].blocks[static_cast<std::size_t>(hot / 16)];
                    const double loss = on.is_cuda() ? score_loss(4 * 100 * 64 * problem.scale) : 0;
                    for (const int cut : {1, 256}) {
                      const auto out = memory->run(problem.input.random_plan(cut, 8, false));
                      for (int i = 0; i < 64; ++i) {
                        const double value = problem.contents.get(true, 0, block, hot % 16, i);
                        ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i)]), value, loss * std::abs(value));
                      }
                    }
                  });
}

TEST(AttentionValues, equal_logits_give_the_mean_of_the_values) {
  for_each_path({.n_heads = 1, .n_kv_heads = 1}, {{-1, 0, 512, 1}},
                [&](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
                  problem.fill_places(1, 1, [](bool is_value, int, int, int t, int dim) {
                    return is_value ? static_cast<float>(t % 4 + dim) : 1.0f;
                  });
                  auto memory = AttentionMemory::make(on.backend, problem);
                  const std::int32_t block = problem.input.sequences[0].blocks[0];
                  const double loss = on.is_cuda() ? score_loss(64) : 0;
                  const auto out = memory->run(problem.input.random_plan(16, 8, false));
                  for (int i = 0; i < 64; ++i) {
                    double mean = 0;
                    for (int t = 0; t < 4; ++t) mean += problem.contents.get(true, 0, block, t, i) / 4;
                    ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i)]), mean, loss * mean);
                  }
                });
}

TEST(AttentionValues, a_prefix_and_a_context_may_dominate_each_other) {
  for (const bool prefix_dominates : {true, false})
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 288, 600, 1}}, 1, [&](AttentionProblem& problem) {
      std::normal_distribution<float> normal;
      problem.fill_places(1, 1, [&](bool is_value, int, int, int t, int) {
        return normal(problem.input.random) + (!is_value && (t < 288) == prefix_dominates ? 50.0f : 0.0f);
      });
      problem.set_queries([&](std::size_t i) { return std::abs(problem.q[i]); });
      check_problem(problem, 4);
    });
}

TEST(AttentionValues, the_largest_score_may_come_last) {
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 1025, 1}}, 1, [](AttentionProblem& problem) {
    std::normal_distribution<float> normal;
    problem.fill_places(1, 1, [&](bool is_value, int, int, int t, int) {
      return normal(problem.input.random) + (is_value ? 0.0f : static_cast<float>(t) * 0.05f);
    });
    problem.set_queries([&](std::size_t i) { return std::abs(problem.q[i]); });
    check_problem(problem, 4);
    // Only the last chunk's last token has it.
    problem.fill_places(1, 1, [&](bool is_value, int, int, int t, int) {
      return normal(problem.input.random) + (!is_value && t == 1024 ? 20.0f : 0.0f);
    });
    check_problem(problem, 4);
  });
}

TEST(AttentionValues, a_number_added_to_all_logits_changes_nothing) {
  for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 256, 530, 1}}, 1, [](AttentionProblem& problem) {
    // Dimension 0 of queries is 1 and of keys the number. The expected result comes from the keys with 0 there.
    problem.set_queries([&](std::size_t i) { return i % 64 == 0 ? 1.0f : problem.q[i]; });
    std::vector<reference::HeadOutput> without;
    for (const float added : {0.0f, 64.0f, -400.0f}) {
      for (int s = 0; s < 2; ++s)
        for (int t = 0; t < problem.input.sequences[static_cast<std::size_t>(s)].kv_len; ++t) {
          const std::int32_t block =
              problem.input.sequences[static_cast<std::size_t>(s)].blocks[static_cast<std::size_t>(t / 16)];
          problem.contents.set(false, 0, block, t % 16, 0, added);  // the same for all, after rounding
        }
      auto expected = reference_attention(problem, problem.input.rows);
      if (without.empty()) without = expected;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i].out = without[i].out;
      for (const TestBackend& on : test_backends()) {
        auto memory = AttentionMemory::make(on.backend, problem);
        if (!memory) continue;
        expect_close(problem, expected, memory->run(problem.input.random_plan(64, 8, true)), name_of(on, problem.input.shape));
      }
    }
  });
}

TEST(AttentionValues, queries_may_be_larger_than_f16) {
  for (const int n_rows : {2, 40})
    for_each_dtype({.n_heads = 2, .n_kv_heads = 1}, {{-1, 0, 300, 1}, {0, 256, 530, n_rows}}, 1, [](AttentionProblem& problem) {
      if (problem.input.shape.kv_dtype == DType::f16) return;  // its queries are f16 themselves
      std::normal_distribution<float> normal;
      problem.fill_normal(0x1p-40f);
      const std::size_t head_dim = static_cast<std::size_t>(problem.input.shape.head_dim);
      problem.set_queries([&](std::size_t i) { return normal(problem.input.random) * (i / head_dim % 3 == 0 ? 1 : 0x1p+41f); });
      check_problem(problem, 4);
    });
}

/// The f16 storage with the numbers of an e4m3 storage without scales, and the same queries.
AttentionProblem in_f16(const AttentionProblem& of, const std::vector<Branch>& branches) {
  CaseShape shape = of.input.shape;
  shape.kv_dtype = DType::f16;
  AttentionProblem problem(shape, branches);
  problem.contents.set_scales(1, 1);
  for (std::int32_t block = 0; block < of.input.n_blocks; ++block)
    for (const bool is_value : {false, true})
      for (int head = 0; head < shape.n_kv_heads; ++head)
        for (int t = 0; t < shape.block_len; ++t)
          for (int i = 0; i < shape.head_dim; ++i)
            problem.contents.set(is_value, head, block, t, i, static_cast<float>(of.contents.get(is_value, head, block, t, i)));
  problem.q = of.q;
  return problem;
}

TEST(AttentionValues, tiles_of_many_rows_over_e4m3_have_the_bits_of_f16) {
  const std::vector<Branch> branches{{-1, 0, 690, 48}};  // tiles of 16 token rows with 4 heads each
  for (const TestBackend& on : test_backends()) {
    if (!on.is_cuda() || on.backend.info().features != "sm_90") continue;  // where stages are converted
    for (const int head_dim : {64, 128}) {
      AttentionProblem problem({.n_heads = 8, .n_kv_heads = 2, .head_dim = head_dim, .kv_dtype = DType::f8_e4m3}, branches);
      std::normal_distribution<float> normal;
      problem.fill_places(1, 1, [&](bool, int, int, int, int) { return normal(problem.input.random); });
      problem.set_queries([&](std::size_t) { return std::round(16 * normal(problem.input.random)) / 16; });
      AttentionProblem wide = in_f16(problem, branches);
      auto memory = AttentionMemory::make(on.backend, problem);
      auto expected = AttentionMemory::make(on.backend, wide);
      ASSERT_TRUE(memory && expected);
      AttentionCosts costs = on.backend.tuning().attention_costs;
      costs.larger_tiles = {};  // the stages of the other kernel have other lengths over e4m3
      const AttentionPlan plan = plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(),
                                                {.costs = costs, .deals_pairs = on.backend.capabilities().deals_pairs});
      EXPECT_TRUE(same_bits(memory->run(plan), expected->run(plan))) << head_dim;
    }
  }
}

TEST(AttentionValues, a_nan_key_that_a_row_sees_is_not_hidden) {
  for_each_dtype({.n_heads = 1, .n_kv_heads = 1}, {{-1, 0, 300, 2}}, 1, [](AttentionProblem& problem) {
    problem.set_token(0, 299, false, [](int) { return std::nanf(""); });  // only the second row sees it
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      const auto out = memory->run(problem.input.random_plan(16, 2, false));
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_FALSE(std::isnan(out[i])) << on.name;
        ASSERT_TRUE(std::isnan(out[64 + i])) << on.name;
      }
    }
  });
}

}  // namespace
}  // namespace baton
