/// The executor against attention in double precision: values, lengths, groups, trees, windows, dead rows, poison; on every
/// instruction set of this machine and both storage dtypes.
#include "kernels/cpu/attention_decode.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/attention_run.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

constexpr DType kStorageDtypes[] = {DType::f32, DType::bf16};

std::string name_of(const CaseShape& shape, cpu::CpuIsa isa) {
  return std::string(to_string(shape.kv_dtype)) + ", " + std::string(cpu::to_string(isa)) + ", heads " +
         std::to_string(shape.n_heads) + "/" + std::to_string(shape.n_kv_heads) + ", dim " + std::to_string(shape.head_dim) +
         ", block " + std::to_string(shape.block_len);
}

/// Runs random work lists over a problem on every path and compares each with the reference.
void check_problem(AttentionProblem& problem, int n_lists) {
  for (const auto isa : isas_of_this_machine())
    for (int list = 0; list < n_lists; ++list) {
      const int cut = std::vector<int>{1, 16, 64, 256}[static_cast<std::size_t>(list % 4)];
      const AttentionPlan plan = problem.input.random_plan(cut, problem.input.uniform(1, 40), list % 3 != 2);
      expect_close(problem, plan.rows, run_attention(problem, plan, isa, list == 1 ? 2 : 1),
                   name_of(problem.input.shape, isa) + ", list " + std::to_string(list));
      if (testing::Test::HasFatalFailure()) return;
    }
}

const std::vector<Branch> kTree = {{-1, 0, 300, 1},  {0, 256, 259, 1}, {0, 256, 401, 1}, {2, 320, 333, 1},
                                   {2, 384, 513, 1}, {4, 512, 529, 1}, {-1, 0, 17, 1},   {-1, 0, 1, 1}};

TEST(AttentionDecode, equals_the_reference_over_trees_of_shared_blocks) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.kv_dtype = dtype}, kTree);
    check_problem(problem, 8);
  }
}

TEST(AttentionDecode, equals_the_reference_for_every_group_size_and_head_size) {
  int seed = 1;
  for (const DType dtype : kStorageDtypes) {
    for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
      AttentionProblem problem({.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = 64, .kv_dtype = dtype},
                               {{-1, 0, 131, 1}, {0, 96, 100, 2}, {0, 112, 150, 25}}, static_cast<std::uint64_t>(seed++));
      check_problem(problem, 2);
    }
    for (const int head_dim : {2, 8, 64, 80, 96, 128, 256}) {
      AttentionProblem problem({.n_heads = 3, .n_kv_heads = 1, .head_dim = head_dim, .kv_dtype = dtype},
                               {{-1, 0, 300, 1}, {0, 96, 100, 3}, {0, 112, 270, 1}}, static_cast<std::uint64_t>(seed++));
      check_problem(problem, 3);
    }
  }
}

TEST(AttentionDecode, equals_the_reference_at_lengths_around_tiles_and_chunks) {
  for (const DType dtype : kStorageDtypes) {
    std::vector<Branch> branches;
    for (const int len : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1025})
      branches.push_back({-1, 0, len, 1});
    AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, branches);
    check_problem(problem, 4);
  }
}

TEST(AttentionDecode, takes_every_block_length) {
  for (const DType dtype : kStorageDtypes)
    for (const int block_len : {16, 32, 64, 128, 256}) {
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .block_len = block_len, .kv_dtype = dtype},
                               {{-1, 0, 600, 1}, {0, 256, 301, 1}, {0, 512, 530, 2}});
      check_problem(problem, 4);
    }
}

TEST(AttentionDecode, one_read_serves_many_sequences) {
  for (const DType dtype : kStorageDtypes)
    for (const int n_sequences : {31, 32, 33, 130}) {
      std::vector<Branch> branches = {{-1, 0, 290, 1}};
      for (int i = 1; i < n_sequences; ++i) branches.push_back({0, 272, 273 + i % 20, 1});
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, branches);
      check_problem(problem, 1);
    }
}

TEST(AttentionDecode, prefill_rows_see_no_later_token) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .kv_dtype = dtype},
                             {{-1, 0, 70, 70}, {0, 64, 300, 236}, {-1, 0, 5, 3}});
    check_problem(problem, 3);
  }
}

TEST(AttentionDecode, a_window_hides_what_is_before_it) {
  for (const DType dtype : kStorageDtypes)
    for (const int window : {1, 15, 16, 100, 256, 300}) {
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .window = window, .kv_dtype = dtype},
                               {{-1, 0, 530, 1}, {0, 512, 515, 3}, {0, 256, 300, 40}});
      check_problem(problem, 4);
    }
}

TEST(AttentionDecode, a_dead_row_gives_zero_and_disturbs_nobody) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.kv_dtype = dtype}, kTree);
    AttentionPlan plan = problem.input.random_plan(16, 40, true);
    const AttentionPlan before = plan;
    for (std::size_t row = 0; row < plan.rows.size(); row += 3) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
    const std::size_t row_size = 4 * 64;
    for (const auto isa : isas_of_this_machine()) {
      const auto alive = run_attention(problem, before, isa);
      const auto out = run_attention(problem, plan, isa);
      for (std::size_t row = 0; row < plan.rows.size(); ++row)
        for (std::size_t i = 0; i < row_size; ++i) {
          const float expected = row % 3 == 0 ? 0.0f : alive[row * row_size + i];
          ASSERT_EQ(out[row * row_size + i], expected) << "row " << row;
        }
    }
    for (TokenRow& row : plan.rows) row.kv_hi = row.kv_lo;
    for (const float x : run_attention(problem, plan, cpu::best_cpu_isa(), 2)) ASSERT_EQ(x, 0.0f);
  }
}

TEST(AttentionDecode, dead_rows_read_no_slot_that_was_never_written) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, {{-1, 0, 20, 1}});
    problem.kv->fill_bytes(0xff);
    AttentionPlan plan = problem.input.random_plan(16, 1, false);
    plan.rows[0].kv_hi = plan.rows[0].kv_lo;
    for (const float x : run_attention(problem, plan, cpu::best_cpu_isa())) ASSERT_EQ(x, 0.0f);
  }
}

TEST(AttentionDecode, what_lies_before_every_window_may_hold_anything) {
  for (const DType dtype : kStorageDtypes)
    for (const int window : {1, 2, 16, 17, 270}) {
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .window = window, .kv_dtype = dtype},
                               {{-1, 0, 530, 1}, {-1, 0, 300, 2}});
      const std::vector<float> nan(64, std::nanf(""));
      for (std::size_t s = 0; s < 2; ++s)
        for (int t = 0; t < problem.input.rows[s].kv_lo; ++t)
          problem.kv->write_token(0, 0, problem.input.sequences[s].blocks[static_cast<std::size_t>(t / 16)] * 16 + t % 16,
                                  nan.data(), nan.data());
      check_problem(problem, 3);
    }
}

TEST(AttentionDecode, keeps_its_precision_for_large_logits_and_offset_values) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype},
                             {{-1, 0, 300, 1}, {0, 256, 530, 1}});
    for (const float key_factor : {30.0f, 3000.0f}) {  // logits of about 1e2 and 1e4
      problem.fill_normal(key_factor);
      check_problem(problem, 4);
    }
    problem.fill_normal(1, 1, 1000);
    check_problem(problem, 4);
    problem.fill_normal(1, 1e-30f);
    check_problem(problem, 2);
  }
}

TEST(AttentionDecode, one_dominating_key_gives_exactly_its_value) {
  for (const DType dtype : kStorageDtypes)
    for (const int hot : {0, 1, 15, 16, 255, 256, 511, 530}) {
      AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, {{-1, 0, 531, 1}});
      const auto& blocks = problem.input.sequences[0].blocks;
      const auto value = [&](int t, int i) { return static_cast<float>((t * 7 + i * 3) % 64 - 31); };  // exact in bf16
      problem.input.fill(*problem.kv, 0, [&](bool is_value, int, std::int32_t block, int offset, int dim) {
        const int t = static_cast<int>(std::find(blocks.begin(), blocks.end(), block) - blocks.begin()) * 16 + offset;
        return is_value ? value(t, dim) : (t == hot ? 100.0f : -100.0f);
      });
      for (float& x : problem.q) x = 4.0f;
      for (const auto isa : isas_of_this_machine())
        for (const int cut : {1, 256}) {
          const auto out = run_attention(problem, problem.input.random_plan(cut, 8, false), isa);
          for (int i = 0; i < 64; ++i)
            ASSERT_EQ(out[static_cast<std::size_t>(i)], value(hot, i)) << "token " << hot << " " << cpu::to_string(isa);
        }
    }
}

TEST(AttentionDecode, equal_logits_give_the_mean_of_the_values) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, {{-1, 0, 512, 1}});
    const auto& blocks = problem.input.sequences[0].blocks;
    problem.input.fill(*problem.kv, 0, [&](bool is_value, int, std::int32_t block, int offset, int dim) {
      const int t = static_cast<int>(std::find(blocks.begin(), blocks.end(), block) - blocks.begin()) * 16 + offset;
      return is_value ? static_cast<float>(t % 4 + dim) : 1.0f;
    });
    for (const auto isa : isas_of_this_machine()) {
      const auto out = run_attention(problem, problem.input.random_plan(16, 8, false), isa);
      for (int i = 0; i < 64; ++i)
        ASSERT_EQ(out[static_cast<std::size_t>(i)], 1.5f + static_cast<float>(i)) << cpu::to_string(isa);
    }
  }
}

TEST(AttentionDecode, a_prefix_and_a_context_may_dominate_each_other) {
  for (const DType dtype : kStorageDtypes)
    for (const bool prefix_dominates : {true, false}) {
      AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype},
                               {{-1, 0, 300, 1}, {0, 288, 600, 1}});
      const auto& blocks = problem.input.sequences[1].blocks;
      std::normal_distribution<float> normal;
      problem.input.fill(*problem.kv, 0, [&](bool is_value, int, std::int32_t block, int, int) {
        const bool in_prefix = std::find(blocks.begin(), blocks.begin() + 18, block) != blocks.begin() + 18;
        return normal(problem.input.random) + (!is_value && in_prefix == prefix_dominates ? 50.0f : 0.0f);
      });
      for (float& x : problem.q) x = std::abs(x);
      check_problem(problem, 4);
    }
}

TEST(AttentionDecode, the_largest_score_may_come_last) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 2, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, {{-1, 0, 1025, 1}});
    const auto& blocks = problem.input.sequences[0].blocks;
    std::normal_distribution<float> normal;
    problem.input.fill(*problem.kv, 0, [&](bool is_value, int, std::int32_t block, int offset, int) {
      const auto b = std::find(blocks.begin(), blocks.end(), block) - blocks.begin();
      return normal(problem.input.random) + (is_value ? 0.0f : static_cast<float>(b * 16 + offset) * 0.05f);
    });
    for (float& x : problem.q) x = std::abs(x);
    check_problem(problem, 4);
  }
}

TEST(AttentionDecode, a_nan_key_that_a_row_sees_is_not_hidden) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .kv_dtype = dtype}, {{-1, 0, 300, 2}});
    problem.kv->write_token(0, 0, problem.input.sequences[0].blocks[18] * 16 + 11, std::vector<float>(64, std::nanf("")).data(),
                            std::vector<float>(64, 1.0f).data());  // position 299, which only the second row sees
    for (const auto isa : isas_of_this_machine()) {
      const auto out = run_attention(problem, problem.input.random_plan(16, 2, false), isa);
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_FALSE(std::isnan(out[i]));
        ASSERT_TRUE(std::isnan(out[64 + i])) << cpu::to_string(isa);
      }
    }
  }
}

TEST(AttentionDecode, queries_and_outputs_may_be_16_bit) {
  for (const DType dtype : kStorageDtypes) {
    AttentionProblem problem({.kv_dtype = dtype}, kTree);
    for (float& x : problem.q) x = static_cast<float>(BFloat16(x));
    const AttentionPlan plan = problem.input.random_plan(64, 8, true);
    const auto isa = cpu::best_cpu_isa();
    // Outputs are rounded once more: at most 2^-8 (bf16) or 2^-11 (f16) of each element.
    expect_close(problem, plan.rows, run_attention<BFloat16>(problem, plan, isa), "bf16 outputs", std::ldexp(1.0, -8));
    expect_close(problem, plan.rows, run_attention<Float16>(problem, plan, isa), "f16 outputs", std::ldexp(1.0, -11));
  }
}

TEST(AttentionDecode, reaches_blocks_beyond_2_to_the_31_elements) {
  AttentionProblem problem({.n_heads = 1, .n_kv_heads = 1, .head_dim = 256}, {{-1, 0, 40, 1}});
  AttentionPlan plan = problem.input.random_plan(16, 1, false);
  const auto expected = run_attention(problem, plan, cpu::best_cpu_isa());
  constexpr int kManyBlocks = 280'000;  // of 16 KB; only the pages that are touched exist
  auto large = cpu::CpuKvStorage::make({1, kManyBlocks, 16, 1, 256, DType::bf16});
  if (!large) GTEST_SKIP() << "this machine does not reserve 4.6 GB: " << large.error().message;
  std::vector<std::byte> block(static_cast<std::size_t>((*large)->shape().block_bytes()));
  for (const std::int32_t b : problem.input.sequences[0].blocks) {
    problem.kv->export_block(BlockId{b}, {block.data(), DType::u8, {static_cast<std::int64_t>(block.size())}});
    (*large)->import_block(BlockId{kManyBlocks - 1 - b}, {block.data(), DType::u8, {static_cast<std::int64_t>(block.size())}});
  }
  problem.kv = std::move(*large);
  for (std::int32_t& b : plan.block_lists) b = kManyBlocks - 1 - b;
  EXPECT_TRUE(same_bits(run_attention(problem, plan, cpu::best_cpu_isa()), expected));
}

TEST(AttentionDecode, gives_the_same_through_the_operations_of_a_backend) {
  AttentionProblem problem({}, kTree);
  const AttentionPlan plan = problem.input.random_plan(64, 8, true);
  auto backend = make_backend("cpu", {2, false});
  ASSERT_TRUE(backend) << backend.error().message;
  const auto kv = (*backend)->make_kv_storage(problem.kv->shape()).value();
  std::vector<std::byte> block(static_cast<std::size_t>(kv->shape().block_bytes()));
  for (std::int32_t b = 0; b < kv->shape().n_blocks; ++b) {
    const Shape shape{static_cast<std::int64_t>(block.size())};
    problem.kv->export_block(BlockId{b}, {block.data(), DType::u8, shape});
    kv->import_block(BlockId{b}, {block.data(), DType::u8, shape});
  }
  const auto n_rows = static_cast<std::int64_t>(plan.rows.size());
  const int n_heads = problem.input.shape.n_heads;
  const int head_dim = problem.input.shape.head_dim;
  const StepInput step = make_step(plan);
  std::vector<float> out(problem.q.size());
  std::vector<float> o(static_cast<std::size_t>(plan.n_partials * n_heads * head_dim));
  std::vector<float> m(static_cast<std::size_t>(plan.n_partials * n_heads)), l(m.size());
  const PartialStates partials{view_of(std::span(o), {plan.n_partials, n_heads, head_dim}),
                               view_of(std::span(m), {plan.n_partials, n_heads}),
                               view_of(std::span(l), {plan.n_partials, n_heads})};
  const TensorView out_view = view_of(std::span(out), problem.q_shape());
  attention_decode(**backend, {view_of(std::span<const float>(problem.q), problem.q_shape()),
                               out_view,
                               partials,
                               {reinterpret_cast<const std::byte*>(plan.rows.data()), DType::u8, {n_rows, 16}},
                               step.view(),
                               0,
                               0,
                               kv.get(),
                               problem.scale});
  attention_merge(**backend, {out_view, partials, step.view(), 0});
  (*backend)->synchronize();
  EXPECT_TRUE(same_bits(out, run_attention(problem, plan, cpu::detect_cpu_isa().value())));
}

}  // namespace
}  // namespace baton
