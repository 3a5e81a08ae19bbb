/// Properties of attention. These must not change a bit: a second run, the number of blocks of the grid and of
/// threads, block numbers, the way of merging, a captured graph, other sequences. Others may change it within the
/// tolerance. Plans of plan_attention, with and without relay, are compared with the reference and with each other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/attention_run.h"
#include "support/long_run.h"
#include "support/plan_fault.h"

namespace baton {
namespace {

using Branch = AttentionCase::Branch;

/// A node of three chunks and a part, for sequences that diverge after it; one of them is a prefill.
const std::vector<Branch> kShared = {{-1, 0, 1100, 1},   {0, 768, 770, 1},  {0, 1024, 1030, 1},
                                     {2, 1024, 1400, 3}, {0, 768, 1290, 1}, {-1, 0, 515, 40}};

/// Every sequence by itself in one item.
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

AttentionPlanOptions plan_options(bool relay, bool batch_invariant) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.batch_invariant = batch_invariant;
  options.costs.item_us = 0.01;  // so that small cases are shared and cut, also with keys of 8 bits
  options.costs.partial_bytes_per_us = 1e12;
  return options;
}

TEST(AttentionInvariance, runs_again_with_the_same_bits_and_however_states_are_merged) {
  for_each_path({}, kShared, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend&) {
    const AttentionPlan plan = problem.input.random_plan(16, 5, true);
    const auto expected = memory.run(plan);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(same_bits(memory.run(plan), expected)) << "run " << i;
      ASSERT_TRUE(same_bits(memory.run(plan, {.merge = false}), expected)) << "merged apart, run " << i;
    }
  });
}

TEST(AttentionInvariance, which_worker_takes_an_item_and_when_changes_no_bit) {
  for_each_path({.n_heads = 8, .n_kv_heads = 4}, kShared,
                [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
                  AttentionPlan plan = problem.input.random_plan(16, 5, true);
                  const auto expected = memory.run(plan);
                  const auto n_items = static_cast<int>(plan.items.size());
                  for (const int n : {0, 1, n_items / 2, n_items}) {
                    plan.n_item_major = n;
                    ASSERT_TRUE(same_bits(memory.run(plan), expected)) << n << " item by item";
                  }
                  for (int i = 0; i < 5; ++i) {
                    problem.input.deal_pairs(plan, on.backend.tuning().attention_costs.n_workers);
                    for (const bool merge : {true, false})
                      ASSERT_TRUE(same_bits(memory.run(plan, {.merge = merge}), expected)) << "dealt, merge " << merge;
                  }
                });
}

TEST(AttentionInvariance, a_large_batch_runs_again_and_again_with_the_same_bits) {
  std::vector<Branch> branches = {{-1, 0, 1100, 1}};
  for (int i = 1; i < 33; ++i) branches.push_back({0, i % 3 == 0 ? 512 : 1024, 1025 + 7 * i, 1});
  for (const DType dtype : storage_dtypes()) {
    AttentionCase input({.n_heads = 16, .n_kv_heads = 4, .head_dim = 128, .kv_dtype = dtype}, branches, 1);
    input.order_depth_first();
    AttentionProblem problem(std::move(input));
    std::vector<reference::HeadOutput> reference;
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      if (reference.empty()) reference = reference_attention(problem, problem.input.rows);
      AttentionPlanOptions options;
      options.costs = on.backend.tuning().attention_costs;
      options.deals_pairs = on.backend.capabilities().deals_pairs;
      if (!on.is_cuda()) options.costs.n_workers = 132;  // many cuts
      const AttentionPlan plan = plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), options);
      const auto expected = memory->run(plan);
      expect_close(problem, reference, expected, name_of(on, problem.input.shape));
      ASSERT_TRUE(same_bits(memory->run(plan, {.merge = false}), expected)) << "merged apart";
      memory->prepare(plan, {}, plan.n_partials);
      const StepInput step = make_step(plan);
      const StepView view = on.backend.upload_step(step);
      const auto graph = on.backend.capture([&] { memory->enqueue(view); });
      ASSERT_TRUE(graph) << graph.error().message;
      for (int i = 0; i < (on.is_cuda() ? 100 : 1); ++i) {
        memory->poison_outputs();
        for (int j = 0; j < (on.is_cuda() ? 10 : 1); ++j) (*graph)->replay();  // without waiting between them
        ASSERT_TRUE(same_bits(memory->outputs(), expected)) << name_of(on, problem.input.shape) << ", run " << i;
      }
    }
  }
}

TEST(AttentionInvariance, any_number_of_workers_gives_the_same_bits) {
  for_each_path({}, kShared, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
    const AttentionPlan plan = problem.input.random_plan(16, 5, true);
    const auto expected = memory.run(plan);
    const int most = on.backend.tuning().attention_costs.n_workers;  // of a GPU: blocks that it holds
    for (const int n_workers : on.is_cuda() ? std::vector{1, 7, most / 2, most} : std::vector{1, 2, 3, 7}) {
      const auto other = on.make({.n_threads = n_workers, .attention_blocks = on.is_cuda() ? n_workers : 0});
      ASSERT_TRUE(other) << other.error().message;
      auto there = AttentionMemory::make(**other, problem);
      ASSERT_TRUE(there);
      for (const bool merge : {true, false}) ASSERT_TRUE(same_bits(there->run(plan, {.merge = merge}), expected)) << n_workers;
    }
  });
}

/// Steps with the same five rows and different sharing and lengths.
std::vector<AttentionCase> changing_steps(const CaseShape& shape) {
  const std::vector<std::vector<Branch>> steps = {
      {{-1, 0, 300, 1}, {0, 256, 259, 1}, {0, 256, 270, 1}, {0, 256, 400, 1}, {-1, 0, 5, 1}},
      {{-1, 0, 301, 1}, {0, 256, 260, 1}, {0, 256, 271, 1}, {0, 256, 401, 1}, {-1, 0, 6, 1}},   // a token longer
      {{-1, 0, 40, 1}, {-1, 0, 700, 1}, {1, 688, 689, 1}, {2, 688, 900, 1}, {3, 896, 899, 1}},  // another tree
      {{-1, 0, 1, 1}, {-1, 0, 2, 1}, {-1, 0, 3, 1}, {-1, 0, 16, 1}, {-1, 0, 17, 1}},            // direct items only
      {{-1, 0, 32, 1}, {0, 16, 17, 1}, {1, 16, 32, 1}, {2, 32, 33, 1}, {3, 32, 48, 1}},         // depth 4, tiny nodes
      {{-1, 0, 600, 5}},                                                                        // an extend
  };
  std::vector<AttentionCase> cases;
  for (const auto& branches : steps) cases.emplace_back(shape, branches, 7);
  return cases;
}

TEST(AttentionInvariance, a_captured_graph_serves_other_lengths_groups_and_trees) {
  for (const DType dtype : storage_dtypes())
    for (const auto& [merge, dealt] : {std::pair{true, false}, {true, true}, {false, true}})
      for (const TestBackend& on : test_backends()) {
        auto cases = changing_steps({.kv_dtype = dtype});
        // One storage holds the blocks of all steps, each with all elements set.
        int n_blocks = 0;
        for (const AttentionCase& made : cases) n_blocks = std::max(n_blocks, made.n_blocks);
        AttentionCase whole({.kv_dtype = dtype}, {{-1, 0, 16 * n_blocks, 5}}, 1);
        AttentionProblem problem(std::move(whole));
        auto memory = AttentionMemory::make(on.backend, problem);
        if (!memory) continue;
        std::vector<AttentionPlan> plans;
        std::vector<std::vector<float>> expected;
        std::int32_t n_partials = 0;
        for (AttentionCase& made : cases)
          for (const int cut : {1, 64}) {
            AttentionPlan plan = made.random_plan(cut, 3, true);
            for (std::int32_t& block : plan.block_lists)
              block = problem.input.sequences[0].blocks[static_cast<std::size_t>(block)];
            if (dealt) made.deal_pairs(plan, on.backend.tuning().attention_costs.n_workers);
            plans.push_back(plan);
            expected.push_back(memory->run(plan, {.merge = merge}));
            n_partials = std::max(n_partials, plan.n_partials);
          }
        ASSERT_GT(plans[0].n_partials, 0);
        memory->prepare(plans[0], {.merge = merge}, n_partials);
        StepInput step = make_step(plans[0]);
        StepView view = on.backend.upload_step(step);
        const auto graph = on.backend.capture([&] { memory->enqueue(view); });
        ASSERT_TRUE(graph) << graph.error().message;
        for (int round = 0; round < 3; ++round)
          for (std::size_t i = 0; i < plans.size(); ++i) {
            StepInput next = make_step(plans[i]);
            memory->set_rows(plans[i].rows);
            memory->poison_outputs();
            view = on.backend.upload_step(next);
            (*graph)->replay();
            ASSERT_TRUE(same_bits(memory->outputs(), expected[i]))
                << name_of(on, problem.input.shape) << ", step " << i << ", merge " << merge << ", dealt " << dealt;
          }
      }
}

TEST(AttentionInvariance, other_block_numbers_give_the_same_bits) {
  for (const DType dtype : storage_dtypes())
    for (const TestBackend& on : test_backends()) {
      std::vector<float> expected;
      for (const std::uint64_t seed : {1, 2, 3}) {
        AttentionProblem problem({.kv_dtype = dtype}, {{-1, 0, 700, 1}, {-1, 0, 33, 2}}, seed);
        problem.fill_places(1, 1, [](bool is_value, int head, int sequence, int t, int dim) {
          return std::sin(static_cast<float>((sequence * 1000 + t) * 131 + dim * 17 + head * 7 + is_value * 3));
        });
        problem.set_queries([](std::size_t i) { return std::cos(static_cast<float>(i)); });
        auto memory = AttentionMemory::make(on.backend, problem);
        if (!memory) continue;
        const auto out = memory->run(leaves(problem));
        if (expected.empty()) expected = out;
        ASSERT_TRUE(same_bits(out, expected)) << name_of(on, problem.input.shape) << ", seed " << seed;
      }
    }
}

TEST(AttentionInvariance, equal_requests_get_equal_rows) {
  const std::vector<Branch> branches = {
      {-1, 0, 290, 1}, {0, 272, 290, 1}, {0, 272, 290, 1}, {0, 272, 290, 1}, {0, 272, 290, 1}};
  for_each_path({}, branches, [](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
    problem.fill_places(1, 1, [](bool is_value, int head, int, int t, int dim) {
      return std::sin(static_cast<float>(t * 131 + dim * 17 + head * 7 + is_value * 3));
    });
    problem.set_queries([&](std::size_t i) { return std::cos(static_cast<float>(i % problem.row_size())); });
    auto memory = AttentionMemory::make(on.backend, problem);
    AttentionPlan shared;
    shared.rows = problem.input.rows;
    problem.input.add_item(shared, 0, 5, 0, 0, 272);
    for (int s = 0; s < 5; ++s) problem.input.add_item(shared, s, 1, s, 272, 290);
    problem.input.finish_plan(shared);
    for (const AttentionPlan& plan : {shared, leaves(problem)}) {
      const auto out = memory->run(plan);
      for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], out[i % problem.row_size()]);
    }
  });
}

TEST(AttentionInvariance, dead_rows_of_others_change_no_bit) {
  for (const int window : {0, 300})
    for_each_path({.window = window}, kShared, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend&) {
      AttentionPlan plan = leaves(problem);
      const auto expected = memory.run(plan);
      const std::size_t row_size = problem.row_size();
      for (std::size_t row = 1; row < plan.rows.size(); row += 2) plan.rows[row].kv_hi = plan.rows[row].kv_lo;
      const auto got = memory.run(plan);
      for (std::size_t row = 0; row < plan.rows.size(); row += 2)
        for (std::size_t i = row * row_size; i < (row + 1) * row_size; ++i) ASSERT_EQ(got[i], expected[i]) << "row " << row;
    });
}

TEST(AttentionInvariance, a_node_in_two_pieces_is_the_node) {
  for_each_dtype({}, {{-1, 0, 600, 1}, {0, 592, 610, 1}, {0, 592, 600, 1}}, 1, [](AttentionProblem& problem) {
    const auto expected = reference_attention(problem, problem.input.rows);
    for (const TestBackend& on : test_backends()) {
      auto memory = AttentionMemory::make(on.backend, problem);
      if (!memory) continue;
      for (const int middle : {1, 16, 17, 255, 256, 300, 591}) {
        AttentionPlan plan;
        plan.rows = problem.input.rows;
        problem.input.add_item(plan, 0, 3, 0, 0, middle);
        problem.input.add_item(plan, 0, 3, 0, middle, 592);
        for (int s = 0; s < 3; ++s)
          problem.input.add_item(plan, s, 1, s, 592, problem.input.sequences[static_cast<std::size_t>(s)].kv_len);
        problem.input.finish_plan(plan);
        expect_close(problem, expected, memory->run(plan),
                     name_of(on, problem.input.shape) + ", cut at " + std::to_string(middle));
      }
    }
  });
}

TEST(AttentionInvariance, plans_of_the_planner_equal_the_reference) {
  for (const int window : {0, 300})
    for_each_path({.window = window}, kShared, [](AttentionProblem& problem, AttentionMemory& memory, const TestBackend& on) {
      const auto expected = reference_attention(problem, problem.input.rows);
      AttentionPlanOptions of_device = plan_options(true, false);
      of_device.costs = on.backend.tuning().attention_costs;
      of_device.deals_pairs = on.backend.capabilities().deals_pairs;
      for (const AttentionPlanOptions& options : {plan_options(true, false), plan_options(false, false), of_device}) {
        const AttentionPlan plan = plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), options);
        expect_close(problem, expected, memory.run(plan), options.relay ? "relay" : "paged");
      }
    });
}

TEST(AttentionInvariance, members_of_a_group_may_come_in_any_order) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 12; ++i) {
    const auto branches = random_branches(random, i % 5, 4 + 2 * i, 4);  // sharers need not be neighbours
    for (const DType dtype : storage_dtypes()) {
      AttentionCase input({.n_heads = 4, .n_kv_heads = 1, .kv_dtype = dtype}, branches, static_cast<std::uint64_t>(i));
      input.order_depth_first();
      AttentionProblem problem(std::move(input));
      const auto sequences = problem.input.sequence_rows();
      const AttentionPlan plan = plan_attention(sequences, problem.input.attention_shape(), plan_options(true, false));
      ASSERT_EQ(test::find_plan_fault(plan, sequences, problem.input.attention_shape()), std::nullopt);
      const auto expected = reference_attention(problem, plan.rows);
      for (const TestBackend& on : test_backends())
        if (auto memory = AttentionMemory::make(on.backend, problem))
          expect_close(problem, expected, memory->run(plan), name_of(on, problem.input.shape));
      if (HasFailure()) return;
    }
  }
}

/// for_each_path with backends in batch-invariant mode, whose memory holds what `fill` makes of the problem.
template <class Fill, class Body>
void for_each_invariant_path(const CaseShape& shape, const std::vector<Branch>& branches, const Fill& fill, const Body& body) {
  for_each_path(shape, branches, [&](AttentionProblem& problem, AttentionMemory&, const TestBackend& on) {
    const auto backend = on.make({.n_threads = 2, .batch_invariant = true});
    ASSERT_TRUE(backend) << backend.error().message;
    fill(problem);
    if (auto memory = AttentionMemory::make(**backend, problem)) body(problem, *memory);
  });
}
template <class Body>
void for_each_invariant_path(const CaseShape& shape, const std::vector<Branch>& branches, const Body& body) {
  for_each_invariant_path(
      shape, branches, [](AttentionProblem&) {}, body);
}
template <class Body>
void for_each_invariant_path(const CaseShape& shape, const Body& body) {
  for_each_invariant_path(shape, kShared, body);
}

/// Items of one chunk, and of at most `max_tile` rows. The first three chunks of kShared's node are read for all its rows.
AttentionPlan chunks(const AttentionProblem& problem, int max_tile) {
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
  return cut;
}

/// The outputs of all rows, each computed in a plan that has only this row, with one item of what it sees.
std::vector<float> outputs_alone(const AttentionProblem& problem, AttentionMemory& memory) {
  const std::size_t row_size = problem.out_row_size();
  std::vector<float> outputs(problem.input.rows.size() * row_size);
  for (std::size_t row = 0; row < problem.input.rows.size(); ++row) {
    AttentionPlan alone;
    alone.rows = problem.input.rows;
    const TokenRow& bounds = problem.input.rows[row];
    problem.input.add_item(alone, static_cast<int>(row), 1, problem.input.sequence_of_row[row], bounds.kv_lo, bounds.kv_hi);
    problem.input.finish_plan(alone);
    const auto got = memory.run(alone);
    std::copy_n(got.begin() + static_cast<std::ptrdiff_t>(row * row_size), row_size,
                outputs.begin() + static_cast<std::ptrdiff_t>(row * row_size));
  }
  return outputs;
}

/// The same work list for the kernel with wide tiles, where the backend has one for these keys; there is none for latent keys.
AttentionPlan widened(AttentionPlan plan, bool is_latent = false) {
  plan.tile_kind = is_latent ? 0 : 1;
  return plan;
}

/// Where two results differ first, and by how much.
std::string difference(const AttentionProblem& problem, const std::vector<float>& got, const std::vector<float>& expected) {
  std::size_t n = 0;
  std::size_t first = got.size();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) != 0) {
      first = std::min(first, i);
      ++n;
    }
  if (n == 0) return "the same bits";
  const auto dim = static_cast<std::size_t>(problem.input.shape.head_dim);
  const std::size_t row = first / problem.row_size();
  return fmt::format("{} of {} numbers differ, first in row {} (position {}), head {}, column {}: {} for {}", n, got.size(),
                     row, problem.input.rows[row].position, first % problem.row_size() / dim, first % dim, got[first],
                     expected[first]);
}

TEST(AttentionBatchInvariance, cuts_at_every_chunk_give_the_bits_of_whole_leaves) {
  for_each_invariant_path({}, [](AttentionProblem& problem, AttentionMemory& memory) {
    const auto expected = memory.run(leaves(problem));
    for (const int max_tile : {1, 2, 40}) {
      ASSERT_TRUE(same_bits(memory.run(chunks(problem, max_tile)), expected)) << "row tiles of " << max_tile;
      ASSERT_TRUE(same_bits(memory.run(widened(chunks(problem, max_tile))), expected)) << "wide, row tiles of " << max_tile;
    }
  });
}

/// All shapes in a long run and where there is a GPU, else the first two.
std::vector<CaseShape> some_of(std::vector<CaseShape> shapes) {
  const bool has_gpu = std::ranges::any_of(test_backends(), [](const TestBackend& on) { return on.is_cuda(); });
  if (!testing::is_long_run() && !has_gpu) shapes.resize(2);
  return shapes;
}

/// Every row of kShared gives the bits that it gives alone, in plans of each kind, and they are close to the reference.
void expect_own_bits(const CaseShape& shape, float softcap) {
  std::vector<reference::HeadOutput> reference;
  DType stored = DType::f32;
  const bool is_latent = shape.latent_dim > 0;
  for_each_invariant_path(shape, [&](AttentionProblem& problem, AttentionMemory& memory) {
    SCOPED_TRACE("soft-cap " + std::to_string(softcap));
    problem.softcap = softcap;
    if (reference.empty() || stored != problem.input.shape.kv_dtype)
      reference = reference_attention(problem, problem.input.rows);
    stored = problem.input.shape.kv_dtype;
    const auto expected = outputs_alone(problem, memory);
    expect_close(problem, reference, expected, "alone");
    ASSERT_TRUE(same_bits(memory.run(leaves(problem)), expected)) << "whole sequences";
    ASSERT_TRUE(same_bits(memory.run(leaves(problem), {.merge = false}), expected)) << "merged apart";
    ASSERT_TRUE(same_bits(memory.run(widened(leaves(problem), is_latent)), expected)) << "whole sequences, wide tiles";
    for (const int max_tile : {1, 3, 17, 40}) {
      ASSERT_TRUE(same_bits(memory.run(chunks(problem, max_tile)), expected)) << "row tiles of " << max_tile;
      ASSERT_TRUE(same_bits(memory.run(widened(chunks(problem, max_tile), is_latent)), expected))
          << "wide, row tiles of " << max_tile;
    }
    for (const bool relay : {true, false}) {
      const auto plan =
          plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), plan_options(relay, true));
      ASSERT_TRUE(same_bits(memory.run(plan), expected)) << "relay " << relay;
    }
  });
}

TEST(AttentionBatchInvariance, a_row_has_its_own_bits_in_any_company_and_they_are_close_to_the_reference) {
  for (const CaseShape& shape : some_of({{.n_heads = 8, .n_kv_heads = 1, .head_dim = 128},
                                         {.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .block_len = 32, .window = 77},
                                         {.n_heads = 4, .n_kv_heads = 2, .head_dim = 128, .block_len = 64, .window = 300},
                                         {.n_heads = 6, .n_kv_heads = 2, .head_dim = 80},
                                         {.n_heads = 4, .n_kv_heads = 2, .head_dim = 256, .window = 300}}))
    for (const float softcap : {0.0f, 5.0f}) expect_own_bits(shape, softcap);
}

TEST(AttentionBatchInvariance, a_row_has_its_own_bits_over_latent_keys) {
  for (const CaseShape& shape : some_of({{.n_heads = 4, .n_kv_heads = 1, .head_dim = 320, .latent_dim = 256},
                                         {.n_heads = 5, .n_kv_heads = 1, .head_dim = 64, .window = 300, .latent_dim = 48},
                                         {.n_heads = 16, .n_kv_heads = 1, .head_dim = 576, .latent_dim = 512}}))
    expect_own_bits(shape, 0);
}

TEST(AttentionBatchInvariance, wide_tiles_give_the_bits_of_narrow_ones) {
  const std::vector<Branch> branches = {{-1, 0, 1300, 190}, {0, 1024, 1500, 300}, {-1, 0, 75, 75}, {-1, 0, 2100, 1}};
  for (const CaseShape& shape : some_of({{.n_heads = 2, .n_kv_heads = 2, .head_dim = 128},
                                         {.n_heads = 4, .n_kv_heads = 1, .head_dim = 64},
                                         {.n_heads = 4, .n_kv_heads = 1, .head_dim = 128},
                                         {.n_heads = 7, .n_kv_heads = 1, .head_dim = 128, .window = 300},
                                         {.n_heads = 7, .n_kv_heads = 1, .head_dim = 64, .window = 777}}))
    for (const float softcap : {0.0f, 5.0f})
      for_each_invariant_path(shape, branches, [&](AttentionProblem& problem, AttentionMemory& memory) {
        problem.softcap = softcap;
        const std::string what =
            fmt::format("{}, {} heads of {}, window {}, soft-cap {}: ", to_string(problem.input.shape.kv_dtype), shape.n_heads,
                        shape.head_dim, shape.window, softcap);
        const auto expected = memory.run(leaves(problem));
        const auto expect_bits = [&](const AttentionPlan& plan, std::string_view name) {
          const auto got = memory.run(widened(plan));
          EXPECT_TRUE(same_bits(got, expected)) << what << name << ": " << difference(problem, got, expected);
        };
        for (int i = 0; i < 3; ++i) expect_bits(leaves(problem), "whole sequences");
        for (const bool relay : {true, false}) {
          AttentionPlanOptions options = plan_options(relay, true);
          for (const int tile_queries : {64, 128}) {
            options.costs.row_tile_queries = tile_queries;
            expect_bits(plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), options),
                        relay ? "relayed" : "paged");
          }
        }
      });
}

TEST(AttentionBatchInvariance, rows_of_many_pieces_have_the_bits_of_one_item) {
  for (const int head_dim : {64, 256})
    for_each_invariant_path({.n_heads = 2, .n_kv_heads = 1, .head_dim = head_dim}, {{-1, 0, 9000, 3}},
                            [](AttentionProblem& problem, AttentionMemory& memory) {
                              AttentionPlanOptions options = plan_options(false, true);
                              options.costs.n_workers = 132;
                              const auto plan =
                                  plan_attention(problem.input.sequence_rows(), problem.input.attention_shape(), options);
                              ASSERT_GT(plan.n_partials, 3 * 32);
                              ASSERT_TRUE(same_bits(memory.run(plan), memory.run(leaves(problem))));
                            });
}

TEST(AttentionBatchInvariance, keys_that_a_row_does_not_see_change_no_bit_however_large) {
  for (const int head_dim : {64, 128})
    for_each_invariant_path(
        {.head_dim = head_dim}, {{-1, 0, 630, 100}},
        [](AttentionProblem& problem) {
          problem.fill_places(1, 1, [](bool is_value, int head, int, int t, int dim) {
            const float x = std::sin(static_cast<float>(t * 131 + dim * 17 + head * 7 + is_value * 3));
            return x * (t < 580 ? 0.001f : is_value ? 60000.0f : 20.0f);
          });
        },
        [](AttentionProblem& problem, AttentionMemory& memory) {
          const auto expected = outputs_alone(problem, memory);
          ASSERT_TRUE(same_bits(memory.run(leaves(problem)), expected));
          ASSERT_TRUE(same_bits(memory.run(widened(leaves(problem))), expected)) << "wide tiles";
        });
}

/// A scale that is a power of two rounds nothing, wherever outputs are multiplied by it.
TEST(AttentionBatchInvariance, scales_of_8_bit_keys_round_alike_in_every_cut) {
  for (const int head_dim : {64, 80, 128})
    for_each_invariant_path(
        {.n_heads = 4, .n_kv_heads = 1, .head_dim = head_dim}, kShared,
        [](AttentionProblem& problem) { problem.fill_normal(0.7f, 1.3f); },
        [](AttentionProblem& problem, AttentionMemory& memory) {
          const auto reference = reference_attention(problem, problem.input.rows);
          const auto expected = outputs_alone(problem, memory);
          expect_close(problem, reference, expected, "alone");
          ASSERT_TRUE(same_bits(memory.run(widened(leaves(problem))), expected)) << "whole sequences";
          for (const int max_tile : {1, 40}) {
            const AttentionPlan cut = chunks(problem, max_tile);
            ASSERT_TRUE(same_bits(memory.run(cut), expected)) << "row tiles of " << max_tile;
            ASSERT_TRUE(same_bits(memory.run(widened(cut)), expected)) << "wide, row tiles of " << max_tile;
          }
        });
}

TEST(AttentionBatchInvariance, a_sequence_alone_gives_the_bits_it_gives_in_a_batch) {
  for_each_invariant_path({}, [](AttentionProblem& problem, AttentionMemory& memory) {
    const auto all = memory.run(leaves(problem));
    const std::size_t row_size = problem.row_size();
    for (std::size_t row = 0; row < problem.input.rows.size(); row += 6) {
      AttentionPlan alone = leaves(problem);
      const int s = problem.input.sequence_of_row[row];
      alone.items.clear();
      alone.block_lists.clear();
      problem.input.add_item(alone, static_cast<int>(row), 1, s, 0, problem.input.rows[row].kv_hi);
      problem.input.finish_plan(alone);
      const auto got = memory.run(alone);
      for (std::size_t i = row * row_size; i < (row + 1) * row_size; ++i) ASSERT_EQ(got[i], all[i]) << "row " << row;
    }
  });
}

TEST(AttentionBatchInvariance, its_plans_give_the_same_bits_with_relay_without_and_alone) {
  for (const int window : {0, 300})
    for_each_invariant_path({.window = window}, [](AttentionProblem& problem, AttentionMemory& memory) {
      const auto sequences = problem.input.sequence_rows();
      const auto shape = problem.input.attention_shape();
      const auto relayed_plan = plan_attention(sequences, shape, plan_options(true, true));
      ASSERT_FALSE(relayed_plan.stats.nodes.empty());
      const auto relayed = memory.run(relayed_plan);
      ASSERT_TRUE(same_bits(relayed, memory.run(plan_attention(sequences, shape, plan_options(false, true)))));
      // Each sequence planned by itself; its rows are moved to their place in the batch.
      const std::size_t row_size = problem.row_size();
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        AttentionPlan alone = plan_attention(std::span(&sequences[s], 1), shape, plan_options(true, true));
        const int first_row = problem.input.first_row_of(static_cast<int>(s));
        alone.rows = problem.input.rows;
        for (AttentionItem& item : alone.items) item.first_row += first_row;
        const auto offsets = alone.merge_offsets;
        alone.merge_offsets.assign(alone.rows.size() + 1, offsets.back());
        std::fill_n(alone.merge_offsets.begin(), first_row, 0);
        std::copy(offsets.begin(), offsets.end(), alone.merge_offsets.begin() + first_row);
        const auto got = memory.run(alone);
        for (std::size_t i = 0; i < static_cast<std::size_t>(sequences[s].n_rows) * row_size; ++i) {
          const std::size_t at = static_cast<std::size_t>(first_row) * row_size + i;
          ASSERT_EQ(got[at], relayed[at]) << "sequence " << s;
        }
      }
    });
}

}  // namespace
}  // namespace baton
