/// The table of docs/models.md that says which models fit which cards, computed as `baton info` computes it (load/model_info.h).
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "load/model_info.h"
#include "support/source_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A model as its authors publish it: the fields of its config.json that decide sizes, and its number of parameters.
struct PublishedShape {
  const char* name;
  const char* config;
  std::int64_t n_parameters;
};

const PublishedShape kShapes[] = {
    {"Llama 3.1 8B",
     R"({"architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
         "max_position_embeddings":131072,"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
         "rms_norm_eps":1e-05,"rope_theta":500000.0,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":128256,
         "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
         "rope_type":"llama3"}})",
     8'030'261'248},
    {"Phi 4",
     R"({"architectures":["Phi3ForCausalLM"],"hidden_act":"silu","hidden_size":5120,"intermediate_size":17920,
         "max_position_embeddings":16384,"original_max_position_embeddings":16384,"num_attention_heads":40,
         "num_hidden_layers":40,"num_key_value_heads":10,"rms_norm_eps":1e-05,"rope_theta":250000,"rope_scaling":null,
         "sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":100352})",
     14'659'507'200},
    {"Qwen3 14B",
     R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"head_dim":128,"hidden_act":"silu","hidden_size":5120,
         "intermediate_size":17408,"max_position_embeddings":40960,"num_attention_heads":40,"num_hidden_layers":40,
         "num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_theta":1000000,"use_sliding_window":false,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":151936})",
     14'768'307'200},
    {"Mistral Small 3 24B",
     R"({"architectures":["MistralForCausalLM"],"head_dim":128,"hidden_act":"silu","hidden_size":5120,
         "intermediate_size":32768,"max_position_embeddings":32768,"num_attention_heads":32,"num_hidden_layers":40,
         "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":100000000.0,"sliding_window":null,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":131072})",
     23'572'403'200},
    {"Gemma 3 27B (text)",
     R"({"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","head_dim":128,
         "hidden_activation":"gelu_pytorch_tanh","hidden_size":5376,"intermediate_size":21504,
         "max_position_embeddings":131072,"num_attention_heads":32,"num_hidden_layers":62,"num_key_value_heads":16,
         "query_pre_attn_scalar":168,"rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_theta":1000000,
         "rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024,"sliding_window_pattern":6,
         "torch_dtype":"bfloat16","vocab_size":262208})",
     27'009'346'304},
    {"Qwen3 30B-A3B",
     R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,"decoder_sparse_step":1,"head_dim":128,
         "hidden_act":"silu","hidden_size":2048,"intermediate_size":6144,"max_position_embeddings":40960,
         "mlp_only_layers":[],"moe_intermediate_size":768,"norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,
         "num_experts_per_tok":8,"num_hidden_layers":48,"num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":151936})",
     30'532'122'624},
    {"Qwen3 32B",
     R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"head_dim":128,"hidden_act":"silu","hidden_size":5120,
         "intermediate_size":25600,"max_position_embeddings":40960,"num_attention_heads":64,"num_hidden_layers":64,
         "num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_theta":1000000,"use_sliding_window":false,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":151936})",
     32'762'123'264},
    {"Mixtral 8x7B",
     R"({"architectures":["MixtralForCausalLM"],"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
         "max_position_embeddings":32768,"num_attention_heads":32,"num_experts_per_tok":2,"num_hidden_layers":32,
         "num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,"sliding_window":null,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32000})",
     46'702'792'704},
    {"Llama 3.3 70B",
     R"({"architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":8192,"intermediate_size":28672,
         "max_position_embeddings":131072,"num_attention_heads":64,"num_hidden_layers":80,"num_key_value_heads":8,
         "rms_norm_eps":1e-05,"rope_theta":500000.0,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":128256,
         "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
         "rope_type":"llama3"}})",
     70'553'706'496},
    {"Qwen2.5 72B",
     R"({"architectures":["Qwen2ForCausalLM"],"hidden_act":"silu","hidden_size":8192,"intermediate_size":29568,
         "max_position_embeddings":32768,"max_window_layers":70,"num_attention_heads":64,"num_hidden_layers":80,
         "num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":131072,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":152064})",
     72'706'203'648},
    {"Mistral Large 123B",
     R"({"architectures":["MistralForCausalLM"],"head_dim":128,"hidden_act":"silu","hidden_size":12288,
         "intermediate_size":28672,"max_position_embeddings":131072,"num_attention_heads":96,"num_hidden_layers":88,
         "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,"sliding_window":null,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32768})",
     122'610'069'504},
};

constexpr std::int64_t kCards[] = {24, 48, 80, 141};  // 10^9 bytes
constexpr double kShare = 0.9;

/// Thousands of tokens.
std::string tokens_text(std::int64_t n_tokens) { return n_tokens < 1000 ? "-" : fmt::format("{}k", n_tokens / 1000); }

/// The rows of one model: a scheme each.
std::string rows_of(const PublishedShape& shape, const fs::path& folder) {
  EXPECT_TRUE(write_file(folder / "config.json", shape.config));
  std::string rows;
  for (const char* scheme : {"", "fp8", "int8", "int4"}) {
    ModelOptions options;
    options.quantization = scheme;
    const auto info = read_model_info(folder, options);
    EXPECT_TRUE(info) << shape.name << ": " << info.error().message;
    if (!info) return rows;
    EXPECT_EQ(info->spec.n_parameters(), shape.n_parameters) << shape.name;
    const std::string_view name = std::string_view(scheme).empty() ? "bfloat16" : scheme;
    rows += fmt::format("| {} | {} | {:.1f} |", shape.name, name, static_cast<double>(info->weights.held) / 1e9);
    for (const std::int64_t card : kCards)
      rows += fmt::format(
          " {} |",
          tokens_text(fit_in(*info, card * 1'000'000'000, kShare, default_context(*info), /*is_host=*/false).n_tokens));
    rows += "\n";
  }
  return rows;
}

std::string fits_table(const fs::path& folder) {
  std::string text = "\n| model | weights | GB |";
  for (const std::int64_t card : kCards) text += fmt::format(" {} GB |", card);
  text += "\n|---|---|---|";
  for (std::size_t i = 0; i < std::size(kCards); ++i) text += "---|";
  text += "\n";
  for (const PublishedShape& shape : kShapes) text += rows_of(shape, folder);
  return text + "\n";
}

// With BATON_WRITE_DOCS in the environment the page is written instead of compared.
TEST(WhatFits, is_what_the_page_for_users_says) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_what_fits_test";
  fs::create_directories(folder);
  const std::string table = fits_table(folder);
  fs::remove_all(folder);
  const fs::path page = test::source_folder() / "docs/models.md";
  const std::string text = read_file(page).value();
  constexpr std::string_view kBegin = "<!-- what fits: written by tests/load/what_fits_test.cpp -->\n";
  constexpr std::string_view kEnd = "<!-- end of what fits -->";
  const std::size_t begin = text.find(kBegin) + kBegin.size();
  const std::size_t end = text.find(kEnd);
  ASSERT_LE(begin, end);
  ASSERT_NE(end, std::string::npos);
  if (std::getenv("BATON_WRITE_DOCS") != nullptr) {
    ASSERT_TRUE(write_file(page, text.substr(0, begin) + table + text.substr(end)));
  } else {
    EXPECT_EQ(text.substr(begin, end - begin), table) << "BATON_WRITE_DOCS=1 load_what_fits_test writes it";
  }
}

}  // namespace
}  // namespace baton
