/// What must not change a single bit of attention: threads, other rows, cuts at chunk boundaries, block numbers, a second run;
/// and the plans of plan_attention, relayed and not, against the reference and each other.
#include <gtest/gtest.h>

#include "support/attention_run.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

constexpr DType kStorageDtypes[] = {DType::f32, DType::bf16};

/// Calls body(problem, isa) for each dtype and instruction set.
template <class Body>
void for_each_path(const CaseShape& shape, const std::vector<Branch>& branches, const Body& body) {
  for (const DType dtype : kStorageDtypes) {
    CaseShape with_dtype = shape;
    with_dtype.kv_dtype = dtype;
    AttentionProblem problem(with_dtype, branches);
    for (const auto isa : isas_of_this_machine()) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(cpu::to_string(isa)));
      body(problem, isa);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// A node of three chunks and a part for sequences that go on differently, one of them a prefill.
const std::vector<Branch> kShared = {{-1, 0, 1100, 1},   {0, 768, 770, 1},  {0, 1024, 1030, 1},
                                     {2, 1024, 1400, 3}, {0, 768, 1290, 1}, {-1, 0, 515, 40}};

AttentionPlan leaves(const AttentionProblem& problem) {
  AttentionPlan plan;
  plan.rows = problem.input.rows;
  for (std::size_t s = 0; s < problem.input.sequences.size(); ++s) {
    const auto& sequence = problem.input.sequences[s];
    problem.input.add_item(plan, problem.input.first_row_of(static_cast<int>(s)), sequence.n_rows, static_cast<int>(s), 0,
                           sequence.kv_len);
  }
  problem.input.finish_plan(plan);
  return plan;
}

TEST(AttentionInvariance, a_second_run_and_other_numbers_of_threads_give_the_same_bits) {
  for_each_path({}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
    const AttentionPlan plan = problem.input.random_plan(16, 5, true);
    const auto expected = run_attention(problem, plan, isa, 1);
    for (const int n_threads : {1, 2, 3, 7})
      ASSERT_TRUE(same_bits(run_attention(problem, plan, isa, n_threads), expected)) << n_threads;
  });
}

TEST(AttentionInvariance, cuts_at_every_chunk_give_the_bits_of_whole_leaves) {
  for_each_path({}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
    const auto expected = run_attention(problem, leaves(problem), isa);
    // Every item is one chunk; the chunks of the shared node serve all rows, or any row tiles.
    for (const int max_tile : {1, 2, 40}) {
      AttentionPlan cut;
      cut.rows = problem.input.rows;
      for (std::size_t s = 0; s < problem.input.sequences.size(); ++s) {
        const auto& sequence = problem.input.sequences[s];
        const bool shares = s < 5;
        if (s == 0)
          for (int chunk = 0; chunk < 3; ++chunk)
            for (int row = 0; row < 7; row += max_tile)
              problem.input.add_item(cut, row, std::min(max_tile, 7 - row), 0, chunk * 256, (chunk + 1) * 256);
        for (int from = shares ? 768 : 0; from < sequence.kv_len; from += 256)
          for (int row = 0; row < sequence.n_rows; row += max_tile)
            problem.input.add_item(cut, problem.input.first_row_of(static_cast<int>(s)) + row,
                                   std::min(max_tile, sequence.n_rows - row), static_cast<int>(s), from,
                                   std::min(from + 256, sequence.kv_len));
      }
      problem.input.finish_plan(cut);
      ASSERT_TRUE(same_bits(run_attention(problem, cut, isa, 2), expected)) << "row tiles of " << max_tile;
    }
  });
}

TEST(AttentionInvariance, a_sequence_alone_gives_the_bits_it_gives_in_a_batch) {
  for_each_path({}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
    const auto all = run_attention(problem, leaves(problem), isa);
    const auto row_size = static_cast<std::size_t>(problem.input.shape.n_heads * problem.input.shape.head_dim);
    for (std::size_t row = 0; row < problem.input.rows.size(); row += 6) {
      AttentionPlan alone = leaves(problem);
      const int s = problem.input.sequence_of_row[row];
      alone.items.clear();
      alone.block_lists.clear();
      problem.input.add_item(alone, static_cast<int>(row), 1, s, 0, problem.input.rows[row].kv_hi);
      problem.input.finish_plan(alone);
      const auto got = run_attention(problem, alone, isa);
      for (std::size_t i = row * row_size; i < (row + 1) * row_size; ++i) ASSERT_EQ(got[i], all[i]) << "row " << row;
    }
  });
}

TEST(AttentionInvariance, other_block_numbers_give_the_same_bits) {
  for (const DType dtype : kStorageDtypes) {
    std::vector<std::vector<float>> outputs;
    for (const std::uint64_t seed : {1, 2, 3}) {
      AttentionProblem problem({.kv_dtype = dtype}, {{-1, 0, 700, 1}, {-1, 0, 33, 2}}, seed);
      const auto number = [&](bool is_value, int head, int t, int i) {
        return std::sin(static_cast<float>(t * 131 + i * 17 + head * 7 + is_value * 3));
      };
      problem.input.fill(*problem.kv, 0, [&](bool is_value, int head, std::int32_t block, int offset, int i) {
        for (std::size_t s = 0; s < 2; ++s) {
          const auto& blocks = problem.input.sequences[s].blocks;
          const auto at = std::find(blocks.begin(), blocks.end(), block);
          if (at != blocks.end())
            return number(is_value, head, static_cast<int>(s * 1000) + static_cast<int>(at - blocks.begin()) * 16 + offset, i);
        }
        return 0.0f;
      });
      for (std::size_t i = 0; i < problem.q.size(); ++i) problem.q[i] = std::cos(static_cast<float>(i));
      outputs.push_back(run_attention(problem, leaves(problem), cpu::best_cpu_isa()));
    }
    EXPECT_TRUE(same_bits(outputs[0], outputs[1]));
    EXPECT_TRUE(same_bits(outputs[0], outputs[2]));
  }
}

TEST(AttentionInvariance, windows_and_dead_rows_of_others_change_no_bit) {
  for_each_path({.window = 300}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
    AttentionPlan plan = leaves(problem);
    const auto expected = run_attention(problem, plan, isa);
    const auto row_size = static_cast<std::size_t>(problem.input.shape.n_heads * problem.input.shape.head_dim);
    for (std::size_t row = 1; row < plan.rows.size(); row += 2) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
    const auto got = run_attention(problem, plan, isa);
    for (std::size_t row = 0; row < plan.rows.size(); row += 2)
      for (std::size_t i = row * row_size; i < (row + 1) * row_size; ++i) ASSERT_EQ(got[i], expected[i]) << "row " << row;
  });
}

AttentionPlanOptions plan_options(bool relay, bool batch_invariant) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.batch_invariant = batch_invariant;
  options.costs.item_us = 0.01;  // so that small cases are shared and cut
  return options;
}

TEST(AttentionInvariance, plans_of_the_planner_equal_the_reference) {
  for_each_path({}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
    for (const bool relay : {true, false}) {
      const AttentionPlan plan =
          plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), plan_options(relay, false));
      expect_close(problem, plan.rows, run_attention(problem, plan, isa, 2), relay ? "relay" : "paged");
    }
  });
}

TEST(AttentionInvariance, batch_invariant_plans_give_the_same_bits_with_relay_without_and_alone) {
  for (const int window : {0, 300})
    for_each_path({.window = window}, kShared, [](AttentionProblem& problem, cpu::CpuIsa isa) {
      const auto sequences = problem.input.sequence_rows();
      const auto shape = problem.input.attention_shape();
      const auto relayed_plan = plan_attention(sequences, shape, plan_options(true, true));
      ASSERT_FALSE(relayed_plan.stats.nodes.empty());
      const auto relayed = run_attention(problem, relayed_plan, isa, 2);
      ASSERT_TRUE(same_bits(relayed, run_attention(problem, plan_attention(sequences, shape, plan_options(false, true)), isa)));
      // Each sequence planned by itself, its rows moved to their place in the batch.
      const auto row_size = static_cast<std::size_t>(problem.input.shape.n_heads * problem.input.shape.head_dim);
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        AttentionPlan alone = plan_attention(std::span(&sequences[s], 1), shape, plan_options(true, true));
        const int first_row = problem.input.first_row_of(static_cast<int>(s));
        alone.rows = problem.input.rows;
        for (AttentionItem& item : alone.items) item.first_row += first_row;
        const auto offsets = alone.merge_offsets;
        alone.merge_offsets.assign(alone.rows.size() + 1, offsets.back());
        std::fill_n(alone.merge_offsets.begin(), first_row, 0);
        std::copy(offsets.begin(), offsets.end(), alone.merge_offsets.begin() + first_row);
        const auto got = run_attention(problem, alone, isa);
        for (std::size_t i = 0; i < static_cast<std::size_t>(sequences[s].n_rows) * row_size; ++i) {
          const std::size_t at = static_cast<std::size_t>(first_row) * row_size + i;
          ASSERT_EQ(got[at], relayed[at]) << "sequence " << s;
        }
      }
    });
}

}  // namespace
}  // namespace baton
