/// Makes a working engine from a model's name and options, and reports mistakes as errors (load/load_engine.h).
#include "load/load_engine.h"

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "model/config.h"
#include "support/recording_backend.h"
#include "support/source_folder.h"

namespace baton {
namespace {

ModelOptions small_options() {
  ModelOptions options;
  options.threads = 2;
  options.max_num_seqs = 2;
  options.max_model_len = 64;
  options.kv_cache_bytes = 1 << 20;
  return options;
}

Result<std::unique_ptr<Engine>> loaded(const ModelOptions& options) {
  BATON_TRY(const ModelFiles files, find_model_files(options, {}));
  return load_engine(files, options);
}

TEST(LoadEngine, the_demo_model_answers_without_a_command_line) {
  ModelOptions options = small_options();
  options.attention = "paged";
  options.kv_cache_dtype = "float32";
  options.eos_token_ids = {7};
  const auto engine = loaded(options);
  ASSERT_TRUE(engine) << engine.error().message;
  const EngineInfo info = (*engine)->info();
  EXPECT_EQ(info.max_model_len, 64);
  EXPECT_NE(std::ranges::find(info.eos_token_ids, 7), info.eos_token_ids.end()) << "beside those of generation_config.json";
  EXPECT_EQ(info.attention, "paged");
  EXPECT_EQ(info.kv_dtype, DType::f32);
  EXPECT_LE(info.kv_cache_bytes, 1 << 20);
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 4;
  request.sampling.ignore_eos = true;
  ASSERT_TRUE((*engine)->submit(std::move(request)));
  std::size_t n_tokens = 0;
  for (int step = 0; step < 16; ++step) {
    (*engine)->step();
    for (const Event& event : (*engine)->wait_events(std::chrono::milliseconds(0))) n_tokens += event.tokens.size();
  }
  EXPECT_EQ(n_tokens, 4u);
}

TEST(LoadEngine, dummy_weights_come_from_the_seed) {
  ModelOptions options = small_options();
  options.load_format = "dummy";
  options.dtype = "float32";
  const auto engine = loaded(options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->info().weight_dtype, DType::f32);
}

TEST(LoadEngine, the_time_to_load_counts_the_device) {
  const ModelOptions options = small_options();
  const auto files = find_model_files(options, {});
  ASSERT_TRUE(files) << files.error().message;
  ::testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  const auto timed = load_timed_engine(*files, options);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  const std::string logged = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(timed) << timed.error().message;
  EXPECT_GT(timed->times.device_s, 0);
  EXPECT_GT(timed->times.weights_s, 0);
  EXPECT_GT(timed->times.engine_s, 0);
  EXPECT_LE(timed->times.total_s(), passed.count());
  EXPECT_NE(logged.find(fmt::format("load_s={:.2f}\n", timed->times.total_s())), std::string::npos) << logged;
}

TEST(LoadEngine, mistakes_are_errors_that_name_the_field) {
  ModelOptions options = small_options();
  options.dtype = "int8";
  EXPECT_EQ(loaded(options).error().param, "dtype");
  options.dtype = "float16";  // a CPU does not multiply it
  EXPECT_EQ(loaded(options).error().param, "dtype");
  EXPECT_NE(loaded(options).error().message.find("device cpu has no float16 matmuls"), std::string::npos);
  if (make_backend("cpu", {}).value()->capabilities().has_bf16_matmul) {
    options.dtype = "bfloat16";
    options.kv_cache_dtype = "float16";
    EXPECT_EQ(loaded(options).error().param, "kv_cache_dtype");
    options.kv_cache_dtype = "fp8";
    EXPECT_NE(loaded(options).error().message.find("not as float8_e4m3"), std::string::npos);
  }
  const ModelSpec latent = read_model_spec(test::source_folder() / "tests/goldens/deepseek_v2_tiny_lite").value();
  options.dtype = "float32";
  options.kv_cache_dtype = "float8_e4m3";
  const auto refused = load_dtypes(options, latent, *make_backend("cpu", {}).value());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--kv-cache-dtype float8_e4m3: DeepseekV2ForCausalLM caches latent vectors (multi-head latent attention), which "
            "Baton keeps in the model's dtype or in float32");
  options = small_options();
  options.speculation.n_tokens = 1000;
  EXPECT_EQ(loaded(options).error().param, "speculative_config");
  options = small_options();
  options.max_model_len = 1 << 30;
  EXPECT_EQ(loaded(options).error().param, "max_model_len");
  options = small_options();
  options.device = "abacus";
  EXPECT_NE(loaded(options).error().message.find("abacus"), std::string::npos);
  options = small_options();
  options.model = "/there/is/no/such/folder";
  EXPECT_FALSE(loaded(options));
}

TEST(LoadEngine, recurrent_layers_are_refused_on_a_device_without_them) {
  ModelOptions options = small_options();
  options.load_format = "dummy";
  test::RecordingBackend backend;
  for (const auto& [golden, layers] :
       {std::pair("qwen3_5_tiny_chunks", "Qwen3_5ForCausalLM has recurrent layers (Gated DeltaNet)"),
        std::pair("lfm2_tiny_biases", "Lfm2ForCausalLM has recurrent layers (short convolutions)"),
        std::pair("nemotron_h_tiny_pattern", "NemotronHForCausalLM has recurrent layers (Mamba-2)")}) {
    const ModelFiles files{.name = "it", .folder = test::source_folder() / "tests/goldens" / golden};
    const auto refused = load_model(files, options, backend);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().param, "device");
    EXPECT_EQ(refused.error().message,
              std::string(layers) + ", which --device " + backend.info().name + " does not compute yet; --device cpu does");
  }
}

/// A device with recurrent layers that refuses every storage of states.
class WithoutStateStorage final : public test::RecordingBackend {
 public:
  BackendCapabilities capabilities() const override { return {.has_recurrent_layers = true}; }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) override {
    return fail(ErrorCode::unsupported,
                fmt::format("{} layers of states in {}", shape.n_layers, to_string(shape.matrix_dtype)));
  }
};

TEST(LoadEngine, states_that_a_device_does_not_offer_are_refused_before_weights_are_read) {
  ModelOptions options = small_options();
  options.load_format = "dummy";
  WithoutStateStorage backend;
  const ModelFiles files{.name = "it", .folder = test::source_folder() / "tests/goldens/qwen3_5_tiny_chunks"};
  EXPECT_EQ(load_model(files, options, backend).error().message, "1 layers of states in float32");
  options.state_cache_dtype = "bf16";
  const auto refused = load_model(files, options, backend);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "--state-cache-dtype bf16: 1 layers of states in bfloat16");
  EXPECT_EQ(refused.error().param, "state_cache_dtype");
}

/// A device without memory, which refuses every cache.
class NoAttention final : public test::RecordingBackend {
 public:
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override {
    return fail(ErrorCode::unsupported, fmt::format("heads of {} in {}", shape.head_dim, to_string(shape.dtype)));
  }
};

TEST(LoadEngine, attention_that_a_device_does_not_offer_is_refused_before_weights_are_read) {
  ModelOptions options = small_options();
  options.load_format = "dummy";
  for (const auto& [golden, head_dim] : {std::pair("llama_tiny_gqa80", 80), std::pair("deepseek_v2_tiny_lite", 320)}) {
    const ModelFiles files{.name = "it", .folder = test::source_folder() / "tests/goldens" / golden};
    NoAttention backend;
    const auto refused = load_model(files, options, backend);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(refused.error().message, fmt::format("heads of {} in float32", head_dim));
  }
}

}  // namespace
}  // namespace baton
