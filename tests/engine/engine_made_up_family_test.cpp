/// The engine with models of two layer groups, one with a window (support/made_up_family.h, made_up_norms_family.h): its
/// tokens equal those of the formulas in float64, cold and warm, alone and in a batch.
#include <memory>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/drawn_golden.h"
#include "support/engine_device.h"
#include "support/golden_model.h"
#include "support/made_up_family.h"
#include "support/made_up_norms_family.h"
#include "support/source_folder.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using testing::Generated;
using testing::greedy;
using testing::run_requests;

constexpr Family kFamilies[] = {testing::kMadeUpFamily, testing::kMadeUpNormsFamily};
constexpr std::int32_t kFamilyBlocks = 64;

/// In f32, on the device and with the golden that GetParam names; the cache holds kFamilyBlocks blocks of each group.
class MadeUpFamily : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const auto split = split_spec(read_model_spec(folder_, kFamilies).value(), {0, testing::n_test_ranks()});
    if (!split) GTEST_SKIP() << split.error().message;
  }
  std::unique_ptr<Engine> make_engine(EngineOptions options) const {
    const ModelSpec spec = read_model_spec(folder_, kFamilies).value();
    const Checkpoint checkpoint = Checkpoint::open(drawn_.folder()).value();
    const auto make_model = testing::checkpoint_model(spec, checkpoint);
    std::unique_ptr<Backend> backend;
    if (std::string(std::get<0>(GetParam())) == "async") {
      options.ranks = testing::fork_async_followers(options.batch_invariant, make_model);
      backend = testing::async_of_rank(options.ranks, options.batch_invariant, testing::Pace::late).value();
    } else {
      const auto make_device = testing::cpu_of_rank(options.batch_invariant);
      options.ranks = testing::fork_followers(testing::n_test_ranks(), make_device, make_model);
      backend = make_device(options.ranks).value();
    }
    auto model = make_model(*backend).value();
    options.kv_dtype = DType::f32;
    for (const KvShape& shape : model->kv_shapes(1, options.block_len, DType::f32))
      options.kv_cache_bytes += kFamilyBlocks * backend->kv_block_bytes(shape);
    auto engine = Engine::create(options, std::move(backend), std::move(model));
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }

  const std::filesystem::path folder_ = test::source_folder() / "tests/goldens" / std::get<1>(GetParam());
  const test::DrawnGolden drawn_{folder_};
  const testing::Golden golden_{folder_ / "golden.safetensors"};
  const std::vector<TokenId> prompt_ = golden_.read<std::int32_t>("input_ids");
  const std::vector<TokenId> expected_ = golden_.read<std::int32_t>("greedy_ids");
};

TEST_P(MadeUpFamily, the_engine_gives_the_tokens_of_float64_cold_warm_and_in_a_batch) {
  for (const bool relay : {true, false}) {
    SCOPED_TRACE(relay ? "relay" : "paged");
    const auto engine = make_engine({.relay = relay});
    const Request request = greedy(prompt_, static_cast<std::int32_t>(expected_.size()));
    EXPECT_EQ(run_requests(*engine, {request})[0].tokens, expected_) << "cold";
    for (const Generated& generated : run_requests(*engine, {request, request, request}))
      EXPECT_EQ(generated.tokens, expected_) << "warm, three at once";
  }
}

// Prompts that diverge at every place before, inside and after a block and the window.
TEST_P(MadeUpFamily, a_cached_prefix_of_any_length_changes_no_bit) {
  const auto warm = make_engine({.batch_invariant = true});
  run_requests(*warm, {greedy(prompt_, 8)});
  for (const std::size_t n_shared : {15u, 16u, 33u, 48u, 59u}) {
    SCOPED_TRACE(n_shared);
    std::vector<TokenId> other(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(n_shared));
    for (TokenId id = 3; other.size() < 75; ++id) other.push_back(id);
    const Request request = greedy(other, 12);
    const auto cold = make_engine({.batch_invariant = true});
    const Generated expected = run_requests(*cold, {request})[0];
    const Generated got = run_requests(*warm, {request})[0];
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.logprobs, expected.logprobs);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MadeUpFamily,
                         ::testing::Combine(::testing::Values("cpu", "async"),
                                            ::testing::Values("made_up_tiny", "made_up_norms_tiny")),
                         [](const auto& of) { return std::string(std::get<0>(of.param)) + "_" + std::get<1>(of.param); });

}  // namespace
}  // namespace baton
