/// `baton info` from its command line to its numbers (apps/programs.h).
#include "apps/programs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "io/json.h"
#include "support/drawn_golden.h"
#include "support/program_run.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

test::ProgramEnd run(std::vector<std::string> words) {
  InfoOptions options;
  CLI::App app{"test"};
  add_info_options(app, options);
  std::ranges::reverse(words);
  app.parse(words);
  return test::run_program("", [&] { return info_main(options); });
}

const fs::path kGolden = test::source_folder() / "tests/goldens/llama_tiny_gqa64";

TEST(Info, json_has_the_numbers_of_the_model_and_of_the_memory) {
  const test::DrawnGolden golden(kGolden);
  const test::ProgramEnd end =
      run({golden.folder().string(), "--json", "--memory", "1G", "--context", "100", "--gpu-memory-utilization", "0.5"});
  ASSERT_EQ(end.code, 0) << end.error;
  const json::Value info = json::parse(end.out, "info").value();
  EXPECT_EQ(info["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(info["fits"]["memory_bytes"], 1 << 30);
  const auto weights = info["weight_bytes"].get<std::int64_t>();
  EXPECT_EQ(info["fits"]["cache_bytes"], ((1 << 30) - weights) / 2);
  EXPECT_EQ(info["fits"]["tokens"].get<std::int64_t>(),
            info["fits"]["cache_bytes"].get<std::int64_t>() / info["kv_bytes_per_token"].get<std::int64_t>());
  EXPECT_EQ(info["sharing"]["requests"], 64);
  EXPECT_EQ(info["sharing"]["kv_bytes_shared"].get<std::int64_t>(),
            info["kv_bytes_per_token"].get<std::int64_t>() * (2048 + 64 * 256));
}

TEST(Info, states_of_recurrent_layers_take_memory_from_the_cache) {
  const test::DrawnGolden golden(test::source_folder() / "tests/goldens/qwen3_next_tiny_heads");
  const auto out = [&](const char* memory) { return run({golden.folder().string(), "--memory", memory}).out; };
  // Of what 128 states leave, 90% are the cache's if there are no snapshots, which take a quarter of that.
  const std::string fits = out("200M");
  EXPECT_NE(fits.find("snapshots of them in the prefix cache, beside those of 128 sequences\n"), std::string::npos) << fits;
  EXPECT_NE(fits.find("states leave of 209.7 MB\n"), std::string::npos) << fits;
  EXPECT_EQ(fits.find("weights and 128 states"), std::string::npos) << fits;
  EXPECT_NE(fits.find("relayed attention"), std::string::npos) << fits;
  EXPECT_NE(out("1M").find("nothing: weights, the states of 128 sequences and of drafts need 52.7 MB, of 1048.6 kB; lower "
                           "--max-num-seqs\n"),
            std::string::npos)
      << out("1M");
  const std::string one = run({golden.folder().string(), "--memory", "2M", "--max-num-seqs", "1"}).out;
  EXPECT_NE(one.find("beside those of 1 sequence\n"), std::string::npos) << one;
  EXPECT_NE(one.find("tokens in contexts of"), std::string::npos) << one;
  EXPECT_NE(out("100K").find("nothing: loading the weights needs "), std::string::npos) << out("100K");
  const auto row_of_states = [&](const char* dtype) {
    const std::string table = run({golden.folder().string(), "--memory", "1G", "--state-cache-dtype", dtype}).out;
    const auto at = table.find("recurrent layers: ");
    return at == std::string::npos ? table : table.substr(at, table.find('\n', at) - at);
  };
  EXPECT_NE(row_of_states("auto").find(" a sequence, float32;"), std::string::npos) << row_of_states("auto");
  EXPECT_NE(row_of_states("bfloat16").find(" a sequence, bfloat16;"), std::string::npos) << row_of_states("bfloat16");
}

TEST(Info, names_the_file_that_the_tokenizer_is_read_from) {
  const test::DrawnGolden golden(kGolden);
  fs::copy_file(test::source_folder() / "tests/goldens/tokenizers/tekken/tekken.json", golden.folder() / "tekken.json");
  ASSERT_TRUE(write_file(golden.folder() / "tokenizer.model", "not a SentencePiece model"));
  const json::Value info = json::parse(run({golden.folder().string(), "--json", "--memory", "1G"}).out, "info").value();
  EXPECT_EQ(info["tokenizer"], "Tekken (tekken.json)");
  EXPECT_FALSE(info.contains("tokenizer_fault")) << info["tokenizer_fault"];
}

TEST(Info, counts_weights_as_they_are_quantised) {
  const test::DrawnGolden golden(kGolden);
  const auto json_with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {golden.folder().string(), "--json", "--memory", "1G"});
    const test::ProgramEnd end = run(words);
    EXPECT_EQ(end.code, 0) << end.error;
    return json::parse(end.out, "info").value();
  };
  const json::Value dense = json_with({});
  EXPECT_EQ(dense["weight_bytes_by_scheme"], (json::Value{{"float32", dense["weight_bytes"]}}));
  const json::Value rounded = json_with({"--quantization", "int8", "--quantize-lm-head"});
  const json::Value& parts = rounded["weight_bytes_by_scheme"];
  EXPECT_EQ(parts["int8"].get<std::int64_t>() + parts["float32"].get<std::int64_t>(),
            rounded["weight_bytes"].get<std::int64_t>());
  EXPECT_LT(rounded["weight_bytes"], dense["weight_bytes"]);
  EXPECT_GT(rounded["fits"]["tokens"], dense["fits"]["tokens"]);
  EXPECT_NE(run({golden.folder().string(), "--memory", "1G", "-q", "int4"}).out.find(" as int4, "), std::string::npos);
  EXPECT_FALSE(dense.contains("activations")) << "a device decides";
  const std::vector<std::string> int8{"-q", "int8", "--activation-dtype", "int8"};
  EXPECT_EQ(json_with(int8)["activations"], "int8");
  EXPECT_EQ(json_with({"--activation-dtype", "dtype"})["activations"], "float32");
  EXPECT_NE(run({golden.folder().string(), "--memory", "1G", "-q", "int8", "--activation-dtype", "int8"})
                .out.find("activations          int8 where the kernel of a matrix takes it, otherwise float32\n"),
            std::string::npos);
  EXPECT_NE(run({golden.folder().string(), "-q", "int4", "--activation-dtype", "fp8"})
                .error.find("--activation-dtype fp8: no weights are in FP8"),
            std::string::npos);
  EXPECT_NE(run({golden.folder().string(), "-q", "awq"})
                .error.find("--quantization awq: the checkpoint's configuration names no method"),
            std::string::npos);
}

TEST(Info, the_table_says_what_fits) {
  const test::DrawnGolden golden(kGolden);
  const std::string model = golden.folder().string();
  const test::ProgramEnd end = run({model, "--memory", "1G", "--requests", "8", "--shared", "1000", "--own", "10"});
  ASSERT_EQ(end.code, 0) << end.error;
  for (const char* text : {"LlamaForCausalLM", "float32", "tokenizer            none",
                           "8 requests with 1,000 shared and 10 own", "7.5 times less with relayed attention", "a cache of"})
    EXPECT_NE(end.out.find(text), std::string::npos) << text << "\n" << end.out;
  EXPECT_NE(run({model, "--memory", "1K"}).out.find("nothing: loading the weights needs"), std::string::npos);
}

TEST(Info, weights_that_cannot_be_read_are_told_from_weights_that_are_not_there) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_info_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(kGolden / "config.json", folder);
  EXPECT_NE(run({folder.string(), "--memory", "1G"}).out.find("no files"), std::string::npos);
  ASSERT_TRUE(write_file(folder / "model.safetensors", "damaged"));
  const test::ProgramEnd end = run({folder.string(), "--memory", "1G"});
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.out.find("no files"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("cannot be loaded: "), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("nothing: the weights cannot be loaded"), std::string::npos) << end.out;
  fs::remove_all(folder);
}

TEST(Info, a_context_that_the_memory_cannot_hold_is_named) {
  const test::DrawnGolden golden(kGolden);
  const std::string model = golden.folder().string();
  const std::string shorter = "serve it with --max-model-len auto";
  EXPECT_EQ(run({model, "--memory", "1G"}).out.find(shorter), std::string::npos);
  const auto weights = json::parse(run({model, "--json"}).out, "info").value()["weight_bytes"].get<std::int64_t>();
  const test::ProgramEnd small = run({model, "--memory", std::to_string(weights + 50'000)});
  EXPECT_NE(small.out.find(shorter), std::string::npos) << small.out;
}

TEST(Info, the_memory_of_the_device_is_asked_for) {
  const test::ProgramEnd end = run({"demo", "--json"});
  ASSERT_EQ(end.code, 0) << end.error;
  EXPECT_GT(json::parse(end.out, "info").value()["fits"]["memory_bytes"], 0);
}

TEST(Info, a_model_that_does_not_exist_is_an_error) {
  const test::ProgramEnd end = run({"/no/such/folder"});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.error.find("/no/such/folder"), std::string::npos) << end.error;
  EXPECT_THROW(run({"--memory", "much"}), CLI::ParseError);
}

}  // namespace
}  // namespace baton
