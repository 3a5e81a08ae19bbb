/// The arguments of Python's LLM, read by the flags' tables.
#include "cli/arguments.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "engine/engine_options.h"

namespace baton {
namespace {

EngineArguments parsed(const std::vector<Argument>& arguments) {
  auto made = parse_arguments("org/name", arguments);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : EngineArguments{};
}

Error refused(const std::vector<Argument>& arguments) {
  const auto made = parse_arguments("org/name", arguments);
  EXPECT_FALSE(made);
  return made ? Error{} : made.error();
}

TEST(Arguments, are_the_flags_of_the_command_line) {
  const EngineArguments made = parsed({{"max_num_seqs", "7"},
                                       {"kv_cache_dtype", "float32"},
                                       {"mamba_ssm_cache_dtype", "bfloat16"},
                                       {"enable_prefix_caching", "false"},
                                       {"enforce_eager", "true"},
                                       {"batch_invariant", "false"},
                                       {"kv_cache_memory_bytes", "64M"},
                                       {"max_model_len", "4k"},
                                       {"max_prefill_tokens", "33"},
                                       {"gpu_memory_utilization", "0.5"},
                                       {"speculative_config", R"({"num_speculative_tokens": 3, "prompt_lookup_max": 5})"},
                                       {"structured_outputs_config", R"({"disable_any_whitespace": true})"},
                                       {"max_logprobs", "5"},
                                       {"tensor_parallel_size", "2"}});
  EXPECT_EQ(made.model.model, "org/name");
  EXPECT_EQ(made.model.max_num_seqs, 7);
  EXPECT_EQ(made.model.kv_cache_dtype, "float32");
  EXPECT_EQ(made.model.state_cache_dtype, "bfloat16");
  EXPECT_FALSE(made.model.enable_prefix_caching);
  EXPECT_TRUE(made.model.enforce_eager);
  EXPECT_FALSE(made.model.batch_invariant);
  EXPECT_EQ(made.model.kv_cache_bytes, 64 << 20);
  EXPECT_EQ(made.model.max_model_len, 4096);
  EXPECT_EQ(made.model.max_prefill_tokens, 33);
  EXPECT_EQ(made.model.memory_utilization, 0.5);
  EXPECT_EQ(made.model.speculation.n_tokens, 3);
  EXPECT_EQ(made.model.speculation.lookup_max, 5);
  EXPECT_EQ(made.structured_outputs.spaces, grammar::JsonSpaces::none);
  EXPECT_EQ(made.max_logprobs, 5);
  EXPECT_EQ(made.ranks.tensor_parallel_size, 2);
  EXPECT_EQ(parsed({{"max_model_len", "-1"}}).model.max_model_len, kFittingLength);
  EXPECT_EQ(parsed({{"revision", ""}}).model.revision, "");
  EXPECT_EQ(parse_arguments("", {})->model.model, "");
}

TEST(Arguments, of_vllm_that_change_nothing_are_taken) {
  parsed({{"trust_remote_code", "true"},
          {"tokenizer", "org/name"},
          {"swap_space", "4"},
          {"cpu_offload_gb", "0"},
          {"disable_log_stats", "false"},
          {"disable_custom_all_reduce", "false"},
          {"enable_lora", "false"},
          {"enable_chunked_prefill", "true"},
          {"async_scheduling", "false"},
          {"compilation_config", "3"},
          {"hf_overrides", "{}"},
          {"hf_token", "true"},
          {"worker_extension_cls", ""},
          {"reasoning_parser", ""},
          {"allowed_local_media_path", ""},
          {"limit_mm_per_prompt", R"({"image": 0})"},
          {"distributed_executor_backend", "mp"}});
}

TEST(Arguments, are_refused_in_the_words_of_a_call) {
  const auto expect = [](const Argument& argument, ErrorCode code, const std::string& message, const std::string& param) {
    const Error error = refused({argument});
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_EQ(error.message.substr(0, message.size()), message);
    EXPECT_EQ(error.param, param) << error.message;
  };
  expect({"max_num_seqs", "0"}, ErrorCode::invalid_request, "max_num_seqs: Value 0 not in range", "max_num_seqs");
  expect({"max_num_seqs", "true"}, ErrorCode::invalid_request, "max_num_seqs: 'true' is not a number", "max_num_seqs");
  expect({"kv_cache_dtype", "int3"}, ErrorCode::invalid_request, "kv_cache_dtype: int3 not in {", "kv_cache_dtype");
  expect({"kv_cache_memory_bytes", "5T"}, ErrorCode::invalid_request, "kv_cache_memory_bytes 5T: not a size",
         "kv_cache_memory_bytes");
  expect({"speculative_config", R"({"method": "eagle"})"}, ErrorCode::invalid_request,
         "'speculative_config': method 'eagle' is not supported", "speculative_config");
  expect({"pipeline_parallel_size", "2"}, ErrorCode::unsupported, "pipeline_parallel_size 2: only 1 is supported: one device",
         "pipeline_parallel_size");
  expect({"tokenizer", "org/other"}, ErrorCode::unsupported, "tokenizer org/other: only org/name is supported", "tokenizer");
  expect({"enable_lora", "true"}, ErrorCode::unsupported, "enable_lora is not supported: there are no adapters", "enable_lora");
  expect({"enable_chunked_prefill", "false"}, ErrorCode::unsupported,
         "enable_chunked_prefill=False is not supported: prompts are always", "enable_chunked_prefill");
  expect({"num_gpu_blocks_override", "8"}, ErrorCode::unsupported,
         "num_gpu_blocks_override is not supported: kv_cache_memory_bytes says", "num_gpu_blocks_override");
  expect({"rope_theta", "1"}, ErrorCode::unsupported, "rope_theta is not supported", "rope_theta");
  expect({"trust_remote_code", "yes"}, ErrorCode::invalid_request, "trust_remote_code must be True or False, not 'yes'",
         "trust_remote_code");
  expect({"prefix", "a=b"}, ErrorCode::unsupported, "prefix is not supported: register_prefix", "prefix");
  expect({"config", "file"}, ErrorCode::unsupported, "config is not supported", "config");
}

TEST(Arguments, that_are_unknown_get_a_hint_only_if_one_is_near) {
  const auto message = [](const std::string& name) {
    const Error error = refused({{name, "1"}});
    EXPECT_EQ(error.code, ErrorCode::not_found);
    return error.message;
  };
  EXPECT_EQ(message("max_num_seq"), "unexpected keyword argument 'max_num_seq'; did you mean 'max_num_seqs'?");
  EXPECT_EQ(message("max-num-seqs"), "unexpected keyword argument 'max-num-seqs'; did you mean 'max_num_seqs'?");
  for (const char* name : {"nonsense", "help", "port", "api_key"})
    EXPECT_EQ(message(name), "unexpected keyword argument '" + std::string(name) + "'");
}

TEST(Arguments, do_not_come_from_the_environment) {
  setenv("BATON_MAX_NUM_SEQS", "5", 1);
  EXPECT_EQ(parsed({}).model.max_num_seqs, 128);
  unsetenv("BATON_MAX_NUM_SEQS");
}

TEST(Arguments, have_one_row_each) {
  const std::vector<ArgumentRow> rows = argument_rows();
  std::set<std::string> names;
  for (const ArgumentRow& row : rows) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.effect == "acts", row.reason.empty()) << row.name;
    EXPECT_EQ(row.name.find('-'), std::string::npos) << row.name;
    EXPECT_EQ(row.reason.find("--"), std::string::npos) << row.reason;
  }
  const auto effect = [&](const char* name) { return std::ranges::find(rows, name, &ArgumentRow::name)->effect; };
  EXPECT_EQ(effect("model"), "acts");
  EXPECT_EQ(effect("tensor_parallel_size"), "acts");
  EXPECT_EQ(effect("swap_space"), "neutral");
  EXPECT_EQ(effect("quantization"), "acts");
  EXPECT_EQ(effect("rope_theta"), "refused");
  EXPECT_EQ(effect("log_level"), "refused");
}

TEST(Arguments, take_over_sentences_about_flags) {
  EXPECT_EQ(in_words_of_a_call("--max-model-len 5 is over '--block-size' (--no-enable-prefix-caching)"),
            "max_model_len 5 is over 'block_size' (enable_prefix_caching=False)");
  EXPECT_EQ(in_words_of_a_call("a -- b, a--b, --, /x/a--b.txt"), "a -- b, a--b, --, /x/a--b.txt");
}

}  // namespace
}  // namespace baton
