/// Tests of whole tokenizers: small ones made here, goldens of Hugging Face `tokenizers`, and real ones under
/// BATON_TEST_DATA.
#include "text/tokenizer/tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/source_folder.h"
#include "support/tokenizer_files.h"
#include "text/tokenizer/stream_decoder.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer tokenizer_of(const json::Value& root, std::string_view config = "") {
  auto tokenizer = Tokenizer::from_json(json::dump(root), config);
  check(tokenizer.has_value(), [&] { return tokenizer.error().message; });
  return std::move(*tokenizer);
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special_tokens) {
  StreamDecoder decoder(tokenizer, {}, false, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) out += decoder.push(id).text;
  return out + decoder.finish().text;
}

TEST(Tokenizer, byte_level_encodes_and_decodes) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_level_tokenizer());
  const Ids ids = tokenizer.encode("the the é<|end|>toolx", true);
  EXPECT_EQ(ids, (Ids{257, 258, ' ', 259, 260, 261, 'x'}));
  EXPECT_EQ(tokenizer.decode(ids, false), "the the é<|end|>toolx");
  EXPECT_EQ(tokenizer.decode(ids, true), "the the étoolx");
  EXPECT_EQ(tokenizer.token_text(258), "Ġthe");
  EXPECT_EQ(tokenizer.token_bytes(258), " the");
  EXPECT_EQ(tokenizer.n_vocab(), 262);
  EXPECT_EQ(tokenizer.id_of("<|end|>"), 260);
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
}

TEST(Tokenizer, strangers_cannot_write_special_tokens) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_level_tokenizer());
  const Ids ids = tokenizer.encode_plain("<|end|>tool");
  EXPECT_TRUE(std::ranges::none_of(ids, [&](TokenId id) { return tokenizer.is_special(id); }));
  EXPECT_EQ(tokenizer.decode(ids, true), "<|end|>tool");
}

TEST(Tokenizer, byte_fallback_prepends_falls_back_and_strips) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_fallback_tokenizer(), R"({"bos_token": "<s>", "eos_token": "</s>"})");
  EXPECT_EQ(tokenizer.encode("the cat", true), (Ids{1, 268, 259, 263, 264, 260}));
  EXPECT_EQ(tokenizer.encode("é🦙", false), (Ids{259, 265, 3 + 0xF0, 3 + 0x9F, 3 + 0xA6, 3 + 0x99}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 268, 259, 263}, true), "the c");
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_EQ(tokenizer.role_tokens().at("eos_token"), "</s>");
}

TEST(Tokenizer, added_tokens_in_normalized_text_keep_their_space) {
  json::Value root = test::byte_fallback_tokenizer();
  root["added_tokens"].push_back({{"id", 300}, {"content", "<t>"}, {"normalized", true}});
  const Tokenizer tokenizer = tokenizer_of(root);
  const Ids ids = tokenizer.encode("a <t> a", false);
  EXPECT_EQ(ids, (Ids{259, 264, 300, 259, 264}));
  EXPECT_EQ(tokenizer.decode(ids, false), "a <t> a");
}

TEST(Tokenizer, text_that_is_not_utf8_is_read_as_replacements) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_level_tokenizer());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF z", false), false), "a\uFFFD z");
  EXPECT_EQ(tokenizer.encode("", true), Ids{});
}

TEST(Tokenizer, ids_that_are_no_tokens_are_passed_over) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_level_tokenizer());
  EXPECT_EQ(tokenizer.decode(Ids{-1, 257, 100000}, false), "the");
  EXPECT_EQ(tokenizer.token_bytes(-5), "");
  EXPECT_EQ(tokenizer.token_text(100000), "");
}

// Transformers 5.17 gives these ids.
TEST(Tokenizer, the_post_processor_of_a_tokenizer_json_counts_whatever_add_bos_token_says) {
  json::Value root = test::byte_fallback_tokenizer();
  const char* both = R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
                         "add_bos_token": false, "add_eos_token": true})";
  EXPECT_EQ(tokenizer_of(root, both).encode("a", true), (Ids{1, 259, 264}));
  root["post_processor"] = nullptr;
  EXPECT_EQ(tokenizer_of(root, both).encode("a", true), (Ids{259, 264}));
}

TEST(Tokenizer, cleans_up_spaces_where_asked_but_not_after_bpe) {
  const char* config = R"({"clean_up_tokenization_spaces": true})";
  json::Value root;
  root["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::Value::array()}};
  for (const char* piece : {"<unk>", "▁a", "▁."}) root["model"]["vocab"].push_back(json::Value::array({piece, -1}));
  root["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  EXPECT_EQ(tokenizer_of(root, "").decode(Ids{1, 2}, false), "a .");
  EXPECT_EQ(tokenizer_of(root, config).decode(Ids{1, 2}, false), "a.");
  EXPECT_EQ(streamed(tokenizer_of(root, config), Ids{1, 2, 1}, false), "a. a");
  const Tokenizer bpe = tokenizer_of(test::byte_level_tokenizer(), config);
  EXPECT_EQ(bpe.decode(bpe.encode("a .", false), false), "a .");
}

TEST(Tokenizer, the_configuration_adds_tokens) {
  const json::Value root = test::byte_level_tokenizer();
  const Tokenizer tokenizer =
      tokenizer_of(root, R"({"added_tokens_decoder": {"270": {"content": "<new>", "special": true}}, "eos_token": "the"})");
  EXPECT_EQ(tokenizer.encode("a<new>", false), (Ids{'a', 270}));
  EXPECT_EQ(tokenizer.n_vocab(), 271);
  EXPECT_TRUE(tokenizer.is_special(257)) << "tokens with a role are special";
  EXPECT_FALSE(Tokenizer::from_json(json::dump(root), R"({"added_tokens_decoder": {"1": {"content": "<new>"}}})"));
}

TEST(Tokenizer, damaged_and_unsupported_files_are_errors_that_name_what) {
  const auto error_of = [](const json::Value& root) { return Tokenizer::from_json(json::dump(root), "").error(); };
  json::Value root = test::byte_level_tokenizer();
  root["model"]["type"] = "Mamba";
  EXPECT_EQ(error_of(root).message, "tokenizer.json: the model Mamba is not supported");
  EXPECT_EQ(error_of(root).code, ErrorCode::unsupported);
  EXPECT_EQ(error_of({{"added_tokens", 3}}).code, ErrorCode::invalid_data);
  EXPECT_EQ(error_of(json::Value::array()).code, ErrorCode::invalid_data);
  EXPECT_EQ(Tokenizer::from_json("{\"model\"", "").error().code, ErrorCode::invalid_data);
  EXPECT_EQ(Tokenizer::load("/nowhere").error().code, ErrorCode::not_found);
}

TEST(Tokenizer, several_threads_encode_at_once) {
  const Tokenizer tokenizer = tokenizer_of(test::byte_level_tokenizer());
  const std::string text = "the theatre é the<|end|> then 123";
  const Ids expected = tokenizer.encode(text, true);
  std::vector<int> n_wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& wrong : n_wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += tokenizer.encode(text, true) == expected ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST(Tokenizer, equals_the_goldens_of_hugging_face) {
  const std::filesystem::path goldens = test::source_folder() / "tests/goldens/tokenizers";
  int n_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
    if (!std::filesystem::exists(entry.path() / "cases.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto tokenizer = Tokenizer::load(entry.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto cases = json::parse_file(entry.path() / "cases.json");
    ASSERT_TRUE(cases);
    for (const json::Value& one : cases->at("encode")) {
      const auto text = one.at("text").get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, one.at("add_special_tokens").get<bool>()), one.at("ids").get<Ids>()) << text;
    }
    for (const char* list : {"encode", "decode"})
      for (const json::Value& one : cases->at(list)) {
        const Ids ids = one.at("ids").get<Ids>();
        EXPECT_EQ(tokenizer->decode(ids, false), one.at("decoded").get<std::string>()) << one.dump();
        EXPECT_EQ(tokenizer->decode(ids, true), one.at("decoded_skip_special").get<std::string>()) << one.dump();
        EXPECT_EQ(streamed(*tokenizer, ids, false), one.at("decoded").get<std::string>());
        ++n_cases;
      }
  }
  EXPECT_GT(n_cases, 500);
}

TEST(Tokenizer, equals_the_goldens_of_sentencepiece_legacy_and_not) {
  const std::filesystem::path goldens = test::source_folder() / "tests/goldens/sentencepiece";
  int n_cases = 0;
  for (const char* name : {"legacy", "not_legacy", "no_prefix_space"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(goldens / name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto cases = json::parse_file(goldens / name / "cases.json");
    ASSERT_TRUE(cases);
    for (const json::Value& one : *cases) {
      const auto text = one.at("text").get<std::string>();
      const bool adds = one.at("add_special_tokens").get<bool>();
      const Ids ids = one.at("ids").get<Ids>();
      EXPECT_EQ(tokenizer->encode(text, adds), ids) << '"' << text << '"';
      EXPECT_EQ(tokenizer->encode_behind(tokenizer->encode_head(text), text, adds), ids) << '"' << text << '"';
      ++n_cases;
    }
  }
  EXPECT_GT(n_cases, 400);
}

TEST(Tokenizer, equals_the_goldens_of_a_unigram_model_with_byte_fallback) {
  const std::filesystem::path folder = test::source_folder() / "tests/goldens/sentencepiece/unigram";
  const auto tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto cases = json::parse_file(folder / "cases.json");
  ASSERT_TRUE(cases);
  for (const json::Value& one : cases->at("encode"))
    EXPECT_EQ(tokenizer->encode(one.at("text").get<std::string>(), false), one.at("ids").get<Ids>()) << one.dump();
  for (const json::Value& one : cases->at("decode")) {
    const Ids ids = one.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer->decode(ids, false), one.at("text").get<std::string>()) << one.dump();
    EXPECT_EQ(streamed(*tokenizer, ids, false), one.at("text").get<std::string>());
  }
  EXPECT_GT(cases->at("encode").size() + cases->at("decode").size(), 150u);
}

std::string bytes_of(const Tokenizer& tokenizer, const Ids& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

TEST(Tokenizer, text_after_other_text_gets_no_space_in_front) {
  const auto goldens = test::source_folder() / "tests/goldens";
  std::vector<std::filesystem::path> folders{goldens / "tokenizers/llama2", goldens / "tokenizers/gpt2"};
  for (const char* name : {"legacy", "not_legacy", "no_prefix_space"}) folders.push_back(goldens / "sentencepiece" / name);
  int n_spaced = 0;
  for (const std::filesystem::path& folder : folders) {
    SCOPED_TRACE(folder.string());
    const auto tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const std::string& text : std::vector<std::string>{"the cat", "e", "\"name\": ", " the", "\n\nthe", "{\n"}) {
      const Ids ids = tokenizer->encode_plain_behind(text);
      EXPECT_EQ(bytes_of(*tokenizer, ids), text);
      n_spaced += bytes_of(*tokenizer, tokenizer->encode_plain(text)) != text ? 1 : 0;
    }
    EXPECT_TRUE(tokenizer->encode_plain_behind("").empty());
  }
  EXPECT_GT(n_spaced, 5) << "some of them put a space in front of a text";
}

// The strings of llama.cpp's vectors, and the ids that Hugging Face's tokenizers give without special tokens.
std::vector<std::pair<std::string, Ids>> llama_cpp_vectors(const std::filesystem::path& data, const char* name) {
  const std::string inputs = *read_file(data / "llama.cpp-vectors/inputs.inp");
  std::istringstream lines(*read_file(data / "llama.cpp-vectors" / (std::string("ggml-vocab-") + name + ".gguf.out")));
  constexpr std::string_view kEnd = "\n__ggml_vocab_test__\n";
  std::vector<std::pair<std::string, Ids>> vectors;
  std::size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = inputs.find(kEnd, at);
    check(end != std::string::npos, "fewer inputs than outputs");
    std::istringstream numbers(line);
    vectors.emplace_back(inputs.substr(at, end - at), Ids(std::istream_iterator<TokenId>(numbers), {}));
    at = end + kEnd.size();
  }
  return vectors;
}

struct Real {
  const char* file;     // below tokenizers/
  const char* vectors;  // llama.cpp's name of it
};

TEST(Tokenizer, equals_llama_cpps_vectors_on_real_vocabularies) {
  const auto data = test::tokenizer_data();
  if (data.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  // phi-2's file has the tokens of GPT-2, and runs of spaces besides; so only GPT-2 itself is compared.
  for (const Real& real : {Real{"gpt2/tokenizer.json.zst", "gpt-2"}, Real{"falcon/tokenizer.json.zst", "falcon"},
                           Real{"phi-3/tokenizer.json.zst", "phi-3"}}) {
    SCOPED_TRACE(real.file);
    const auto tokenizer = Tokenizer::from_json(test::decompress(data / real.file), "");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto vectors = llama_cpp_vectors(data, real.vectors);
    EXPECT_EQ(vectors.size(), 46u);
    for (const auto& [text, ids] : vectors) {
      EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
      EXPECT_EQ(tokenizer->decode(ids, false), text);
    }
  }
}

// A tokenizer.json like those of Llama 3 and Qwen 2, whose vocabularies come as vocab.json and merges.txt.
json::Value split_and_byte_level(const std::filesystem::path& folder, const char* digits) {
  const json::Value byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const std::string words = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + std::string(digits) +
                            R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  json::Value root;
  root["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}}, byte_level}}};
  root["decoder"] = byte_level;
  json::Value merges = json::Value::array();
  std::istringstream lines(test::decompress(folder / "merges.txt.zst"));
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) merges.push_back(line);
  root["model"] = {{"type", "BPE"}, {"merges", std::move(merges)}};
  root["model"]["vocab"] = *json::parse(test::decompress(folder / "vocab.json.zst"), "vocab.json");
  return root;
}

TEST(Tokenizer, equals_llama_cpps_vectors_on_llama_3_and_qwen_2) {
  const auto data = test::tokenizer_data();
  if (data.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  json::Value llama_3 = split_and_byte_level(data / "llama3", R"(\p{N}{1,3})");
  llama_3["model"]["ignore_merges"] = true;
  json::Value qwen_2 = split_and_byte_level(data / "qwen2", R"(\p{N})");
  qwen_2["normalizer"] = {{"type", "NFC"}};
  for (const auto& [root, vectors] : {std::pair(&llama_3, "llama-bpe"), std::pair(&qwen_2, "qwen2")}) {
    SCOPED_TRACE(vectors);
    const Tokenizer tokenizer = tokenizer_of(*root);
    for (const auto& [text, ids] : llama_cpp_vectors(data, vectors)) {
      EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
      EXPECT_EQ(tokenizer.decode(ids, false), text);
    }
  }
}

TEST(Tokenizer, llama_2s_sentencepiece_model_equals_llama_cpps_vectors) {
  const auto data = test::tokenizer_data();
  if (data.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  const auto tokenizer = Tokenizer::load(data / "llama2");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const auto& [text, ids] : llama_cpp_vectors(data, "llama-spm")) {
    EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), text);
    EXPECT_EQ(streamed(*tokenizer, ids, false), text);
  }
  EXPECT_EQ(tokenizer->encode("Hello<s></s> world", true), (Ids{1, 15043, 1, 2, 29871, 3186}));
  EXPECT_EQ(tokenizer->encode_plain("<s>"), (Ids{529, 29879, 29958}));
  EXPECT_EQ(tokenizer->role_tokens().at("bos_token"), "<s>");
  EXPECT_EQ(tokenizer->n_vocab(), 32000);
}

TEST(Tokenizer, phi_and_the_stories_model_load_with_their_configurations) {
  const auto data = test::tokenizer_data();
  if (data.empty()) GTEST_SKIP() << "BATON_TEST_DATA is not set";
  // Its tokenizer_config.json names LlamaTokenizer, which Transformers does not take for this type of model.
  const auto folder = std::filesystem::temp_directory_path() / ("baton_phi_3_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "phi3"})";
  std::ofstream(folder / "tokenizer.json") << test::decompress(data / "phi-3/tokenizer.json.zst");
  std::filesystem::copy(data / "phi-3/tokenizer_config.json", folder);
  const auto phi_3 = Tokenizer::load(folder);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(phi_3) << phi_3.error().message;
  // The file's post-processor adds no token, and Transformers 5 lets it decide although the configuration has add_bos_token.
  EXPECT_EQ(phi_3->encode("<|user|>Hi<|end|>", true), (Ids{32010, 6324, 32007}));
  EXPECT_EQ(phi_3->eos(), 32000);
  EXPECT_NE(phi_3->chat_templates().at("default").find("<|assistant|>"), std::string::npos);

  const auto phi_2 = Tokenizer::from_json(test::decompress(data / "phi-2/tokenizer.json.zst"),
                                          *read_file(data / "phi-2/tokenizer_config.json"));
  ASSERT_TRUE(phi_2) << phi_2.error().message;
  EXPECT_EQ(phi_2->decode(phi_2->encode("def f():\n        return\t\t1", true), true), "def f():\n        return\t\t1");

  const auto stories = Tokenizer::load(data.parent_path() / "model-stories260K/hf");
  ASSERT_TRUE(stories) << stories.error().message;
  const Ids ids = stories->encode("Once upon a time", true);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(stories->decode(ids, true), "Once upon a time");
}

}  // namespace
}  // namespace baton
