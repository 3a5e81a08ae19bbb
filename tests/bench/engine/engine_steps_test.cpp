/// The step loop of benchmarks: it ends when nothing is left, and the callback may submit more or stop it.
#include "bench/engine/engine_steps.h"

#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/engine/bench_model.h"
#include "load/load_engine.h"

namespace baton {
namespace {

TEST(EngineSteps, steps_until_nothing_is_left_and_passes_on_what_the_callback_says) {
  ModelOptions options;
  options.threads = 1;
  options.max_model_len = 64;
  const auto model = find_bench_model(options, "");
  ASSERT_TRUE(model) << model.error().message;
  const auto engine = load_engine(model->files, model->options);
  ASSERT_TRUE(engine) << engine.error().message;
  std::int64_t n_tokens = 0;
  const auto submit = [&] {
    Request request;
    request.prompt = std::vector<TokenId>(20, 7);
    request.sampling.max_tokens = 3;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE((*engine)->submit(std::move(request)));
  };
  submit();
  ASSERT_TRUE(step_to_end(**engine, [&](std::span<const Event> events) -> Result<void> {
    for (const Event& event : events) {
      n_tokens += static_cast<std::int64_t>(event.tokens.size());
      if (event.finished && n_tokens == 3) submit();
    }
    return {};
  }));
  EXPECT_EQ(n_tokens, 6);
  EXPECT_TRUE((*engine)->is_idle());
  submit();
  const auto stopped =
      step_to_end(**engine, [](std::span<const Event>) -> Result<void> { return fail(ErrorCode::unavailable, "enough"); });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message, "enough");
}

}  // namespace
}  // namespace baton
