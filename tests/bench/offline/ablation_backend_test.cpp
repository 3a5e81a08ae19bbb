/// The slow habits of AblationBackend change no result, with and without captured graphs.
#include "bench/offline/ablation_backend.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/engine_device.h"

namespace baton::testing {
namespace {

class AblationBackendTest : public EngineOnDevice {
 protected:
  std::unique_ptr<Engine> make_engine(const Ablation& ablation) const {
    const std::string name = GetParam();
    EngineOptions options;
    options.kv_dtype = is_cuda() ? DType::bf16 : DType::f32;
    std::unique_ptr<Backend> inner;
    if (name == "async") {
      auto made = AsyncBackend::make({.n_threads = 1}, Pace::late);
      EXPECT_TRUE(made) << made.error().message;
      inner = std::move(*made);
    } else {
      auto made = make_backend(name, {.n_threads = 1});
      EXPECT_TRUE(made) << made.error().message;
      inner = std::move(*made);
    }
    auto engine = create_tiny_engine(std::make_unique<AblationBackend>(std::move(inner), ablation), options, 256);
    EXPECT_TRUE(engine) << engine.error().message;
    return std::move(*engine);
  }
};

std::vector<Request> requests() {
  std::vector<Request> made;
  for (std::uint32_t i = 0; i < 5; ++i) made.push_back(greedy(random_prompt(i, 20 + 7 * i), 6 + static_cast<std::int32_t>(i)));
  made[3].sampling.temperature = 1;
  made[3].sampling.seed = 9;
  return made;
}

TEST_P(AblationBackendTest, EverySettingGivesTheSameAnswers) {
  Ablation ablation;
  const auto engine = make_engine(ablation);
  const std::vector<Generated> expected = run_requests(*engine, requests());
  for (const Ablation& setting : {Ablation{true, false}, Ablation{false, true}, Ablation{true, true}, Ablation{false, false}}) {
    ablation = setting;
    const std::vector<Generated> got = run_requests(*engine, requests());
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].finished, expected[i].finished);
      if (i == 3)
        expect_same_draws(got[i], expected[i]);
      else
        expect_same_tokens(got[i], expected[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AblationBackendTest, engine_devices(), name_of_device);

}  // namespace
}  // namespace baton::testing
