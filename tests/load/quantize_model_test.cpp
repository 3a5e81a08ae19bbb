/// Checkpoints that `baton quantize` writes (load/quantize/quantize_model.h): what is in them, and what is refused.
#include "load/quantize/quantize_model.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/source/safetensors.h"
#include "model/weights.h"
#include "support/drawn_golden.h"
#include "support/recording_backend.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// Two loaded models and the number of differences between their matrices.
ModelWeights weights_of(const fs::path& folder, const WeightRounding& rounding) {
  ModelSpec spec = read_model_spec(folder).value();
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  EXPECT_TRUE(fit_to_checkpoint(spec, checkpoint));
  test::RecordingBackend backend;
  auto weights = load_weights(spec, checkpoint, backend, DType::bf16, 2, rounding);
  EXPECT_TRUE(weights) << weights.error().message;
  return std::move(*weights);
}

void expect_equal_matrices(const Linear& a, const Linear& b) {
  ASSERT_EQ(a.is_empty(), b.is_empty());
  if (a.is_empty()) return;
  EXPECT_EQ(a.weight().scheme, b.weight().scheme);
  EXPECT_EQ(test::values_of(a.weight()), test::values_of(b.weight()));
}

void expect_equal_weights(const ModelWeights& a, const ModelWeights& b) {
  EXPECT_EQ(test::to_floats(a.embedding), test::to_floats(b.embedding));
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal_matrices(a.layers[i].qkv, b.layers[i].qkv);
    expect_equal_matrices(a.layers[i].attention_out, b.layers[i].attention_out);
    expect_equal_matrices(a.layers[i].up, b.layers[i].up);
    expect_equal_matrices(a.layers[i].down, b.layers[i].down);
    expect_equal_matrices(a.layers[i].router, b.layers[i].router);
    ASSERT_EQ(a.layers[i].expert_up.is_empty(), b.layers[i].expert_up.is_empty());
    if (a.layers[i].expert_up.is_empty()) continue;
    for (std::size_t e = 0; e < static_cast<std::size_t>(a.layers[i].expert_up.weights().n_experts); ++e) {
      EXPECT_EQ(test::values_of(a.layers[i].expert_up.weights(), e), test::values_of(b.layers[i].expert_up.weights(), e));
      EXPECT_EQ(test::values_of(a.layers[i].expert_down.weights(), e), test::values_of(b.layers[i].expert_down.weights(), e));
    }
  }
  expect_equal_matrices(a.lm_head, b.lm_head);
}

class QuantizeModel : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A copy of a golden's checkpoint, which a test may change.
  fs::path model(const std::string& name) {
    golden_.emplace(test::source_folder() / "tests/goldens" / name);
    const fs::path copied = folder_ / "model";
    fs::remove_all(copied);
    fs::create_directories(copied);
    for (const auto& file : fs::directory_iterator(golden_->folder())) fs::copy_file(file, copied / file.path().filename());
    return copied;
  }
  Result<QuantizeReport> quantize(const WeightRounding& rounding, const QuantizeProgress& progress = {}) {
    return quantize_model({folder_ / "model", folder_ / "out", rounding, 2}, progress);
  }
  std::string error(const WeightRounding& rounding = {.scheme = WeightScheme::i8}) {
    const auto made = quantize(rounding);
    return made ? "no error" : made.error().message;
  }
  /// Names of what is in the folder of the test.
  std::set<std::string> left() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename().string());
    return names;
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "baton_quantize_model_test";
  std::optional<test::DrawnGolden> golden_;
};

TEST_F(QuantizeModel, the_checkpoint_has_the_weights_that_are_rounded_at_load) {
  for (const char* name : {"llama_tiny_gqa80", "llama_tiny_bf16", "llama_tiny_sharded", "mixtral_tiny_experts",
                           "phi3_tiny_fused", "cohere2_tiny_interleaved", "gemma3_tiny_images"})
    for (const WeightScheme scheme : {WeightScheme::f8, WeightScheme::i8, WeightScheme::i4})
      for (const bool with_head : {false, true}) {
        SCOPED_TRACE(std::string(name) + " " + std::string(to_string(scheme)) + (with_head ? " with its output layer" : ""));
        const fs::path source = model(name);
        const WeightRounding rounding{.scheme = scheme, .group = 32, .rounds_lm_head = with_head};
        const auto report = quantize(rounding);
        ASSERT_TRUE(report) << report.error().message;
        expect_equal_weights(weights_of(folder_ / "out", {}), weights_of(source, rounding));
        EXPECT_LT(report->bytes_after, report->bytes_before);
        fs::remove_all(folder_ / "out");
      }
}

TEST_F(QuantizeModel, the_report_has_the_error_of_each_matrix) {
  model("llama_tiny_gqa64");
  double before = 0;
  for (const WeightScheme scheme : {WeightScheme::i8, WeightScheme::f8, WeightScheme::i4}) {
    const auto report = quantize({.scheme = scheme});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->matrices.size(), 2u * 7);
    for (const QuantizedMatrix& matrix : report->matrices) {
      EXPECT_GT(matrix.relative_error(), 0.5 * report->relative_error()) << matrix.name;
      EXPECT_LT(matrix.relative_error(), 2 * report->relative_error()) << matrix.name;
    }
    EXPECT_GT(report->relative_error(), 2 * before) << to_string(scheme);
    before = report->relative_error();
    fs::remove_all(folder_ / "out");
  }
  EXPECT_LT(before, 0.2);
}

TEST_F(QuantizeModel, shards_and_other_files_are_those_of_the_model) {
  const fs::path source = model("llama_tiny_sharded");
  ASSERT_TRUE(write_file(source / "tokenizer.json", "{}"));
  ASSERT_TRUE(write_file(source / "pytorch_model.bin", "other weights"));
  fs::create_directory(source / "folder");
  std::vector<std::int64_t> told;
  const auto report = quantize({.scheme = WeightScheme::i4, .group = 16}, [&](std::int64_t done, std::int64_t total) {
    told.push_back(done);
    EXPECT_LE(done, total);
    return true;
  });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_EQ(told.back(), report->bytes_before);
  std::set<std::string> expected, made;
  for (const auto& entry : fs::directory_iterator(source)) expected.insert(entry.path().filename().string());
  expected.erase("pytorch_model.bin");
  expected.erase("folder");
  for (const auto& entry : fs::directory_iterator(folder_ / "out")) made.insert(entry.path().filename().string());
  EXPECT_EQ(made, expected);
  const json::Value config = json::parse_file(folder_ / "out/config.json").value();
  const json::Value& stated = config.at("quantization_config");
  EXPECT_EQ(stated.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(stated.at("format"), "pack-quantized");
  EXPECT_EQ(stated.at("ignore"), json::Value{"lm_head"});
  const json::Value index = json::parse_file(folder_ / "out/model.safetensors.index.json").value();
  EXPECT_TRUE(index.at("weight_map").contains("model.layers.0.mlp.down_proj.weight_packed"));
}

TEST_F(QuantizeModel, groups_that_do_not_divide_a_row_are_stated_for_their_modules) {
  model("llama_tiny_gqa80");
  ASSERT_TRUE(quantize({.scheme = WeightScheme::i4}));
  const json::Value config = json::parse_file(folder_ / "out/config.json").value();
  std::size_t n_modules = 0;
  for (const auto& [name, group] : config.at("quantization_config").at("config_groups").items()) {
    const auto size = group.at("weights").at("group_size");
    EXPECT_TRUE(size.is_null() || size.get<int>() % 16 == 0) << json::dump(group);
    n_modules += group.at("targets").size();
  }
  EXPECT_GE(n_modules, 1u);
}

TEST_F(QuantizeModel, a_folder_that_is_there_is_refused_and_kept) {
  model("llama_tiny_gqa64");
  ASSERT_TRUE(write_file(folder_ / "out", "a file"));
  EXPECT_EQ(error(), (folder_ / "out").string() + " exists already; name a new folder");
  fs::remove(folder_ / "out");
  fs::create_directory(folder_ / "out.part");
  EXPECT_NE(error().find("out.part exists: another run fills it"), std::string::npos) << error();
  EXPECT_EQ(left(), (std::set<std::string>{"model", "out.part"}));
  const std::string long_name(253, 'a');  // with .part it is longer than a name may be
  const auto too_long = quantize_model({folder_ / "model", folder_ / long_name, {.scheme = WeightScheme::i8}, 1}, {});
  ASSERT_FALSE(too_long);
  EXPECT_TRUE(too_long.error().message.ends_with(".part: File name too long")) << too_long.error().message;
  const auto nameless = quantize_model({folder_ / "model", "", {.scheme = WeightScheme::i8}, 1}, {});
  ASSERT_FALSE(nameless);
  EXPECT_EQ(nameless.error().message, "the folder to write has no name");
  EXPECT_NE(quantize_model({folder_ / "model", folder_ / "none/out", {.scheme = WeightScheme::i8}, 1}, {})
                .error()
                .message.find("cannot make the folder"),
            std::string::npos);
}

TEST_F(QuantizeModel, a_folder_inside_the_model_is_refused) {
  const fs::path source = model("llama_tiny_gqa64");
  const WeightRounding int8{.scheme = WeightScheme::i8};
  for (const fs::path& out : {source / "inner", source / "none/../deep/inner", folder_ / "link/inner"}) {
    std::error_code ignored;
    fs::create_directory_symlink(source, folder_ / "link", ignored);
    const auto made = quantize_model({source, out, int8, 1}, {});
    ASSERT_FALSE(made) << out;
    EXPECT_EQ(made.error().param, "out");
    EXPECT_NE(made.error().message.find("is inside the model's folder"), std::string::npos) << made.error().message;
  }
  EXPECT_FALSE(fs::exists(source / "inner.part"));
  EXPECT_TRUE(quantize_model({source, folder_ / "model2", int8, 1}, {})) << "a name that begins like the model's";
}

TEST_F(QuantizeModel, a_group_that_was_asked_for_must_divide_some_row) {
  const fs::path source = model("llama_tiny_gqa64");
  const auto with_group = [&](std::int64_t group) {
    fs::remove_all(folder_ / "out");
    return quantize_model({source, folder_ / "out", {.scheme = WeightScheme::i4, .group = group}, 1, /*needs_group=*/true}, {});
  };
  const auto none = with_group(112);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().param, "group");
  EXPECT_TRUE(none.error().message.starts_with("--group 112: it divides the rows of no matrix; they have "))
      << none.error().message;
  EXPECT_EQ(left(), std::set<std::string>{"model"});
  const auto some = with_group(32);
  ASSERT_TRUE(some) << some.error().message;
  std::int64_t n = 0;
  for (const auto& [columns, count] : some->n_by_columns) n += count;
  EXPECT_EQ(n, 2 * 7);
  EXPECT_GT(some->n_by_columns.at(32), 0);
  EXPECT_TRUE(with_group(48)) << "the whole row of some matrices";
}

TEST_F(QuantizeModel, a_number_that_is_not_finite_is_refused_wherever_the_model_has_it) {
  for (const char* name : {"llama_tiny_gqa64", "llama_tiny_bf16"})
    for (const char* tensor : {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight", "lm_head.weight"}) {
      const fs::path source = model(name);
      std::string text = read_file(source / "model.safetensors").value();
      {
        const Checkpoint checkpoint = Checkpoint::open(source).value();
        if (!checkpoint.contains(tensor)) continue;
        const auto& bytes = checkpoint.find(tensor)->bytes;
        const std::string_view found(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        text.replace(text.find(found) + found.size() - 4, 4, std::string("\x80\x7f\x80\x7f", 4));  // the last numbers
      }
      ASSERT_TRUE(write_file(source / "model.safetensors", text));
      EXPECT_EQ(error(), "tensor '" + std::string(tensor) + "' holds a number that is not finite") << name;
      EXPECT_EQ(left(), std::set<std::string>{"model"});
    }
}

TEST_F(QuantizeModel, an_output_layer_that_only_the_checkpoint_unties_stays_one) {
  const fs::path source = model("llama_tiny_mha64");
  json::Value config = json::parse_file(source / "config.json").value();
  config["tie_word_embeddings"] = true;  // and the checkpoint has another one
  ASSERT_TRUE(write_file(source / "config.json", json::dump(config)));
  const WeightRounding rounding{.scheme = WeightScheme::i4, .group = 32, .rounds_lm_head = true};
  ASSERT_TRUE(Checkpoint::open(source)->contains("lm_head.weight"));
  ASSERT_TRUE(quantize(rounding));
  expect_equal_weights(weights_of(folder_ / "out", {}), weights_of(source, rounding));
  // Another program's file may leave the configuration as it was.
  config = json::parse_file(folder_ / "out/config.json").value();
  EXPECT_EQ(config["tie_word_embeddings"], false);
  config["tie_word_embeddings"] = true;
  ASSERT_TRUE(write_file(folder_ / "out/config.json", json::dump(config)));
  expect_equal_weights(weights_of(folder_ / "out", {}), weights_of(source, rounding));
}

TEST_F(QuantizeModel, nothing_is_left_where_it_fails) {
  const fs::path source = model("llama_tiny_gqa64");
  EXPECT_EQ(quantize({.scheme = WeightScheme::i8}, [](std::int64_t done, std::int64_t) { return done < 20000; }).error().code,
            ErrorCode::unavailable);
  EXPECT_EQ(left(), std::set<std::string>{"model"});

  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small {
    10000, before.rlim_max
  };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string full = error();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(full.starts_with("cannot write " + (folder_ / "out.part/model.safetensors").string() + ": ")) << full;
  EXPECT_EQ(left(), std::set<std::string>{"model"});

  std::string text = read_file(source / "model.safetensors").value();
  const float bad = std::numeric_limits<float>::quiet_NaN();
  {
    const Checkpoint checkpoint = Checkpoint::open(source).value();
    const auto& bytes = checkpoint.find("model.layers.1.mlp.up_proj.weight")->bytes;
    const std::string_view found(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text.replace(text.find(found.substr(0, 64)), 4, reinterpret_cast<const char*>(&bad), 4);
  }
  ASSERT_TRUE(write_file(source / "model.safetensors", text));
  EXPECT_EQ(error(), "tensor 'model.layers.1.mlp.up_proj.weight' holds a number that is not finite and cannot be quantised");
  ASSERT_TRUE(write_file(source / "model.safetensors", text.substr(0, text.size() - 8)));
  EXPECT_NE(error().find("model.safetensors"), std::string::npos) << error();
  fs::remove(source / "config.json");
  EXPECT_NE(error().find("config.json"), std::string::npos) << error();
  EXPECT_EQ(left(), std::set<std::string>{"model"});
}

TEST_F(QuantizeModel, experts_that_share_tensors_are_not_written) {
  model("gpt_oss_tiny_sinks");
  const auto report = quantize({.scheme = WeightScheme::i8});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "tensor 'model.layers.0.mlp.experts.gate_up_proj' holds the matrices of all experts, which cannot be written as "
            "quantised ones; --quantization rounds them at load");
}

TEST_F(QuantizeModel, what_is_quantised_is_not_quantised_again) {
  model("llama_tiny_gqa64");
  ASSERT_TRUE(quantize({.scheme = WeightScheme::f8}));
  const auto again = quantize_model({folder_ / "out", folder_ / "again", {.scheme = WeightScheme::i4}, 1}, {});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("is quantised with compressed-tensors already"), std::string::npos);
  // Without its configuration the tensors say so.
  json::Value config = json::parse_file(folder_ / "out/config.json").value();
  config.erase("quantization_config");
  ASSERT_TRUE(write_file(folder_ / "out/config.json", json::dump(config)));
  const auto unstated = quantize_model({folder_ / "out", folder_ / "again", {.scheme = WeightScheme::i4}, 1}, {});
  ASSERT_FALSE(unstated);
  EXPECT_NE(unstated.error().message.find("is stored as float8_e4m3 already"), std::string::npos) << unstated.error().message;
  EXPECT_FALSE(fs::exists(folder_ / "again.part"));
}

}  // namespace
}  // namespace baton
