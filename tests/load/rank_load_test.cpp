/// Ranks that load what rank 0 loads, as threads of this process (load/rank_load.h).
#include "load/rank_load.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/step/rank_steps.h"
#include "io/json.h"
#include "load/load_engine.h"
#include "support/wait_until.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A folder with a config.json and one file of "weights".
class RankLoad : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("rank_load_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    write("config.json", "{}");
    write("model.safetensors", std::string(200'000, 'w'));
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::string digest(const std::string& load_format = "auto", const std::string& quantization = {},
                     bool with_head = false) const {
    ModelOptions options;
    options.load_format = load_format;
    options.quantization = quantization;
    options.quantize_lm_head = with_head;
    return model_digest(folder_, options).value();
  }

  fs::path folder_;
};

TEST_F(RankLoad, the_digest_is_of_configuration_and_weights) {
  const std::string first = digest();
  EXPECT_EQ(digest(), first);
  std::string weights(200'000, 'w');
  weights[77] = 'x';
  write("model.safetensors", weights);
  const std::string second = digest();
  EXPECT_NE(second, first);
  write("model.safetensors", std::string(200'001, 'w'));
  EXPECT_NE(digest(), first);
  write("model.safetensors", std::string(200'000, 'w'));
  EXPECT_EQ(digest(), first);
  write("config.json", "{ }");
  EXPECT_NE(digest(), first);
}

TEST_F(RankLoad, random_weights_need_no_files_and_a_missing_configuration_is_named) {
  const std::string before = digest("dummy");
  write("model.safetensors", "other");
  EXPECT_EQ(digest("dummy"), before);
  fs::remove(folder_ / "config.json");
  const auto missing = model_digest(folder_, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("config.json"), std::string::npos) << missing.error().message;
}

TEST_F(RankLoad, the_digest_is_of_what_weights_are_rounded_to) {
  for (const char* format : {"auto", "dummy"}) {
    std::set<std::string> all{digest(format)};
    for (const char* scheme : {"fp8", "int8", "int4"})
      for (const bool with_head : {false, true}) EXPECT_TRUE(all.insert(digest(format, scheme, with_head)).second) << scheme;
  }
  write("config.json", R"({"quantization_config": {"quant_method": "fp8"}})");
  EXPECT_EQ(digest("auto", "fp8"), digest()) << "the name of what the checkpoint has changes nothing";
}

ModelOptions demo_options(std::shared_ptr<RankGroup> ranks) {
  ModelOptions options;
  options.threads = 1;
  options.dtype = "float32";
  options.max_num_seqs = 2;
  options.max_model_len = 64;
  options.kv_cache_bytes = 1 << 20;
  options.ranks = std::move(ranks);
  return options;
}

std::vector<TokenId> generate(Engine& engine) {
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 6;
  request.sampling.ignore_eos = true;
  EXPECT_TRUE(engine.submit(std::move(request)));
  std::vector<TokenId> tokens;
  while (engine.step())
    for (const Event& event : engine.wait_events(std::chrono::milliseconds(0)))
      for (const TokenOutput& token : event.tokens) tokens.push_back(token.token);
  return tokens;
}

TEST(RankLoadEngine, two_ranks_load_the_demo_model_and_answer_as_one) {
  const ModelFiles files = find_model_files(demo_options(nullptr), {}).value();
  const auto alone = load_engine(files, demo_options(nullptr));
  ASSERT_TRUE(alone) << alone.error().message;
  auto groups = RankGroup::make_threads({.world_size = 2}).value();
  Result<void> followed;
  std::thread other([&] { followed = run_rank(groups[1]); });
  {
    const auto engine = load_engine(files, demo_options(groups[0]));
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(generate(**engine), generate(**alone));
  }
  groups[0].reset();
  other.join();
  EXPECT_TRUE(followed) << followed.error().message;
}

/// Devices connect to each other when they are opened, so a rank that does not know the model yet would miss that.
TEST(RankLoadEngine, rank_0_says_what_to_load_before_it_opens_its_device) {
  auto groups = RankGroup::make_threads({.world_size = 2}).value();
  Result<std::optional<std::string>> loaded;
  Result<std::optional<std::string>> device;
  std::thread other([&] {
    loaded = next_load(*groups[1]);
    if (loaded && *loaded) device = next_device(*groups[1]);
  });
  ModelOptions options = demo_options(groups[0]);
  options.device = "none";
  const auto engine = load_engine(find_model_files(options, {}).value(), options);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("none"), std::string::npos) << engine.error().message;
  groups[0].reset();
  options.ranks.reset();
  other.join();
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_TRUE(*loaded) << "rank 1 was told nothing";
  EXPECT_NE((*loaded)->find("\"device\":\"none\""), std::string::npos) << **loaded;
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_FALSE(*device) << "rank 0 has no device";
}

TEST(RankLoadEngine, a_rank_with_other_files_ends_the_load_with_its_sentence) {
  auto groups = RankGroup::make_threads({.world_size = 2}).value();
  std::thread other([&] { EXPECT_FALSE(run_rank(groups[1])); });
  ModelFiles files = find_model_files(demo_options(nullptr), {}).value();
  const ModelOptions options = demo_options(groups[0]);
  std::string what = describe_load(files, options).value();
  const std::string key = "\"digest\":\"";
  what[what.find(key) + key.size()] = 'x';
  RankSteps(groups[0]).load(what);
  const std::string fault = groups[0]->wait_fault(testing::kUntilKilled).value_or("none");
  EXPECT_TRUE(fault.starts_with("rank 1: its checksum of config.json and weights ")) << fault;
  other.join();
}

/// What rank 0 says when it loads with `options`, as `change` has it.
std::string fault_after(const std::function<void(json::Value&)>& change) {
  auto groups = RankGroup::make_threads({.world_size = 2}).value();
  std::thread other([&] { EXPECT_FALSE(run_rank(groups[1])); });
  ModelOptions options = demo_options(groups[0]);
  options.quantization = "int4";
  const std::string what = describe_load(find_model_files(options, {}).value(), options).value();
  json::Value said = json::parse(what, "the test").value();
  change(said);
  RankSteps(groups[0]).load(json::dump(said));
  std::string fault = groups[0]->wait_fault(testing::kUntilKilled).value_or("none");
  other.join();
  return fault;
}

TEST(RankLoadEngine, a_rank_that_would_round_weights_otherwise_ends_the_load) {
  const std::string differs = "rank 1: its checksum of config.json and weights ";
  EXPECT_TRUE(fault_after([](auto& said) { said["quantization"] = "int8"; }).starts_with(differs));
  EXPECT_TRUE(fault_after([](auto& said) { said["quantization"] = ""; }).starts_with(differs));
  EXPECT_TRUE(fault_after([](auto& said) { said["quantize_lm_head"] = true; }).starts_with(differs));
  EXPECT_TRUE(fault_after([](auto& said) { said["activation_dtype"] = "fp8"; }).starts_with(differs));
}

TEST(RankLoadEngine, two_ranks_round_weights_as_one) {
  ModelOptions alone_options = demo_options(nullptr);
  alone_options.quantization = "int8";
  alone_options.quantize_lm_head = true;
  const ModelFiles files = find_model_files(alone_options, {}).value();
  const auto alone = load_engine(files, alone_options);
  ASSERT_TRUE(alone) << alone.error().message;
  auto groups = RankGroup::make_threads({.world_size = 2}).value();
  Result<void> followed;
  std::thread other([&] { followed = run_rank(groups[1]); });
  {
    ModelOptions options = alone_options;
    options.ranks = groups[0];
    const auto engine = load_engine(files, options);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_EQ(generate(**engine), generate(**alone));
  }
  groups[0].reset();
  other.join();
  EXPECT_TRUE(followed) << followed.error().message;
}

}  // namespace
}  // namespace baton
