/// Models on several ranks compared with Transformers and with one rank: tiny checkpoints and the demo model.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/split.h"
#include "support/changed_checkpoint.h"
#include "support/golden_rows.h"
#include "support/rank_threads.h"
#include "support/source_folder.h"

namespace baton {
namespace {

using testing::Golden;
using testing::GoldenModel;
using testing::run_ranks;
using Group = std::shared_ptr<RankGroup>;

/// Whether a model of this configuration can be split, by the rules of split.h.
bool can_be_split(const ModelSpec& spec, int n_ranks) {
  return std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    const AttentionSpec& attention = layer.attention;
    const bool has_heads =
        attention.n_heads % n_ranks == 0 && (attention.n_kv_heads % n_ranks == 0 || n_ranks % attention.n_kv_heads == 0);
    return has_heads && !layer.is_recurrent() && attention.qk_norm != QkNorm::width && layer.feed_forward.d_ff % n_ranks == 0 &&
           spec.d_model % n_ranks == 0;
  });
}

/// A golden of a tiny checkpoint, run by several ranks.
class TensorParallelGolden : public testing::GoldenRows {
 protected:
  testing::GoldenOptions options(const Group& group, const std::string& device = "cpu") const {
    return {.device = device, .max_positions = max_positions(), .ranks = group};
  }
};

TEST_P(TensorParallelGolden, every_rank_has_the_logits_and_tokens_of_transformers) {
  const ModelSpec spec = read_model_spec(GetParam().folder).value();
  const auto greedy = golden_.read<std::int32_t>("greedy_ids");
  for (const int n_ranks : {2, 4}) {
    const auto split = split_spec(spec, {0, n_ranks});
    EXPECT_EQ(split.has_value(), can_be_split(spec, n_ranks)) << n_ranks << " ranks";
    if (!split) continue;
    std::mutex mutex;
    std::vector<std::vector<float>> logits_of_rank;
    run_ranks(n_ranks, [&](const Group& group) {
      GoldenModel model(GetParam().folder, DType::f32, options(group));
      std::vector<float> logits = run_rows(model);
      EXPECT_LE(row_error(logits, expected_), 1e-4) << "rank " << group->rank() << " of " << n_ranks;
      EXPECT_EQ(model.generate(ids_, greedy.size()), greedy) << "rank " << group->rank() << " of " << n_ranks;
      const std::lock_guard lock(mutex);
      logits_of_rank.push_back(std::move(logits));
    });
    // Every rank samples by itself, so all must have the same bits.
    for (const std::vector<float>& logits : logits_of_rank) EXPECT_EQ(logits, logits_of_rank.front());
  }
}

// Rows do not depend on the rows that they are computed with.
TEST_P(TensorParallelGolden, batch_invariant_rows_have_the_same_bits_in_one_step_and_in_three) {
  const ModelSpec spec = read_model_spec(GetParam().folder).value();
  if (!split_spec(spec, {0, 2})) return;
  run_ranks(2, [&](const Group& group) {
    testing::GoldenOptions invariant = options(group);
    invariant.batch_invariant = true;
    GoldenModel model(GetParam().folder, DType::f32, invariant);
    const std::vector<float> together = run_rows(model);
    EXPECT_EQ(run_rows_in_three(model), together);
  });
}

// The bound of decoder_test, with the ranks' sums rounded to bf16 once more.
TEST_P(TensorParallelGolden, two_gpus_stay_near_one_and_have_the_same_bits) {
  const ModelSpec spec = read_model_spec(GetParam().folder).value();
  if (!make_backend("cuda", {.device = 1})) GTEST_SKIP() << "fewer than two GPUs";
  if (!split_spec(spec, {0, 2})) GTEST_SKIP() << "cannot be split";
  GoldenModel alone(GetParam().folder, DType::bf16, {.device = "cuda", .max_positions = max_positions()});
  const std::vector<float> expected = run_rows(alone);
  std::mutex mutex;
  std::vector<std::vector<float>> logits_of_rank;
  run_ranks(2, [&](const Group& group) {
    GoldenModel model(GetParam().folder, DType::bf16, options(group, "cuda"));
    std::vector<float> logits = run_rows(model);
    const double error = row_error(logits, expected);
    EXPECT_LE(error, 3e-2) << "rank " << group->rank();
    const std::lock_guard lock(mutex);
    if (group->rank() == 0) testing::say_once(GetParam().name + ": relative error " + std::to_string(error) + " of one GPU");
    logits_of_rank.push_back(std::move(logits));
  });
  ASSERT_EQ(logits_of_rank.size(), 2u);
  EXPECT_EQ(logits_of_rank[0], logits_of_rank[1]);
}

// Sums over GPUs are added in one order whatever the number of rows is.
TEST_P(TensorParallelGolden, batch_invariant_rows_have_the_same_bits_in_one_step_and_in_three_on_two_gpus) {
  const ModelSpec spec = read_model_spec(GetParam().folder).value();
  if (!make_backend("cuda", {.device = 1})) GTEST_SKIP() << "fewer than two GPUs";
  if (!split_spec(spec, {0, 2})) GTEST_SKIP() << "cannot be split";
  std::mutex mutex;
  std::vector<std::vector<float>> logits_of_rank;
  run_ranks(2, [&](const Group& group) {
    testing::GoldenOptions invariant = options(group, "cuda");
    invariant.batch_invariant = true;
    GoldenModel model(GetParam().folder, DType::bf16, invariant);
    std::vector<float> together = run_rows(model);
    EXPECT_EQ(run_rows_in_three(model), together) << "rank " << group->rank();
    const std::lock_guard lock(mutex);
    logits_of_rank.push_back(std::move(together));
  });
  ASSERT_EQ(logits_of_rank.size(), 2u);
  EXPECT_EQ(logits_of_rank[0], logits_of_rank[1]);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TensorParallelGolden, ::testing::ValuesIn(testing::golden_cases()),
                         [](const auto& of) { return of.param.name; });

/// Greedy tokens of the demo model after a prompt with its catalogue.
void expect_the_demo_tokens(int n_ranks, const std::string& device, DType dtype) {
  const std::filesystem::path source = test::source_folder();
  const Golden golden(source / "tests/goldens/demo/golden.safetensors");
  const auto ids = golden.read<std::int32_t>("4.input_ids");
  const auto greedy = golden.read<std::int32_t>("4.greedy_ids");
  run_ranks(n_ranks, [&](const Group& group) {
    GoldenModel model(source / "models/demo", dtype, {.device = device, .ranks = group});
    EXPECT_EQ(model.generate(ids, greedy.size()), greedy) << "rank " << group->rank() << " of " << n_ranks;
  });
}

TEST(TensorParallel, the_demo_model_gives_the_tokens_of_one_rank) {
  expect_the_demo_tokens(2, "cpu", DType::f32);
  expect_the_demo_tokens(4, "cpu", DType::f32);
}

TEST(TensorParallel, the_demo_model_gives_the_tokens_of_one_rank_on_two_gpus) {
  if (!make_backend("cuda", {.device = 1})) GTEST_SKIP() << "fewer than two GPUs";
  expect_the_demo_tokens(2, "cuda", DType::bf16);
}

/// Two ranks' rows of a quantised checkpoint, all together and one after the other.
void expect_quantised_rows_keep_their_bits(const std::string& name, const std::string& device, DType dtype) {
  const std::filesystem::path folder = test::quantised(name);
  const auto ids = Golden(folder / "golden.safetensors").read<std::int32_t>("input_ids");
  run_ranks(2, [&](const Group& group) {
    GoldenModel model(folder, dtype, {.device = device, .max_positions = 128, .batch_invariant = true, .ranks = group});
    const std::vector<float> together = model.run(ids, 0, true, nullptr);
    std::vector<float> apart;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = model.run(std::vector<TokenId>{ids[i]}, static_cast<std::int32_t>(i), true, nullptr);
      apart.insert(apart.end(), row.begin(), row.end());
    }
    EXPECT_EQ(apart, together) << name << " on " << device << ", rank " << group->rank();
  });
}

TEST(TensorParallel, batch_invariant_rows_of_quantised_weights_have_the_same_bits_alone_and_together) {
  for (const char* const name : {"ct_fp8_channel", "ct_int8", "ct_int4", "gptq", "ct_nvfp4", "gpt_oss_mxfp4"}) {
    expect_quantised_rows_keep_their_bits(name, "cpu", DType::f32);
    if (make_backend("cuda", {.device = 1})) expect_quantised_rows_keep_their_bits(name, "cuda", DType::bf16);
  }
}

}  // namespace
}  // namespace baton
