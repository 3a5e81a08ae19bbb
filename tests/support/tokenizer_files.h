/// Small tokenizer.json files made in memory, and the tokenizers in tests/goldens and BATON_TEST_DATA.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "io/json.h"
#include "text/split/unicode.h"

namespace baton::test {

/// A BPE `model`: `first_tokens` get ids from 0 on, the results of merges the following ids.
inline json::Value bpe_model(const std::vector<std::string>& first_tokens,
                             const std::vector<std::pair<std::string, std::string>>& merges) {
  json::Value model = {{"type", "BPE"}, {"vocab", json::Value::object()}, {"merges", json::Value::array()}};
  int next = 0;
  const auto add = [&](const std::string& token) {
    if (!model["vocab"].contains(token)) model["vocab"][token] = next++;
  };
  for (const std::string& token : first_tokens) add(token);
  for (const auto& [left, right] : merges) {
    add(left + right);
    model["merges"].push_back({left, right});
  }
  return model;
}

/// Byte-level BPE as in GPT-2: ids 0 to 255 are the bytes, then " the" and its intermediate merges, then <|end|>
/// (special) and "tool".
inline json::Value byte_level_tokenizer() {
  std::vector<std::string> alphabet;
  for (int byte = 0; byte < 256; ++byte)
    alphabet.push_back(unicode::to_utf8(unicode::character_of_byte(static_cast<unsigned char>(byte))));
  const json::Value byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json::Value root;
  root["model"] = bpe_model(alphabet, {{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"Ã", "©"}});
  root["pre_tokenizer"] = byte_level;
  root["decoder"] = byte_level;
  root["added_tokens"] = {{{"id", 260}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}},
                          {{"id", 261}, {"content", "tool"}, {"special", false}, {"normalized", false}}};
  return root;
}

/// Byte-fallback BPE as in Llama 2: <unk>, <s>, </s>, the bytes (3 to 258), "▁", some letters, "▁the" and its
/// intermediate merges.
inline json::Value byte_fallback_tokenizer() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  for (const char* letter : {"▁", "t", "h", "e", "c", "a", "é"}) tokens.emplace_back(letter);
  json::Value root;
  root["model"] = bpe_model(tokens, {{"t", "h"}, {"th", "e"}, {"▁", "the"}, {"▁", "▁"}});
  root["model"]["byte_fallback"] = true;
  root["model"]["fuse_unk"] = true;
  root["model"]["unk_token"] = "<unk>";
  root["added_tokens"] = json::Value::array();
  for (int id = 0; id < 3; ++id)
    root["added_tokens"].push_back(
        {{"id", id}, {"content", tokens[static_cast<std::size_t>(id)]}, {"special", true}, {"normalized", false}});
  root["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}}, {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  root["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}};
  root["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return root;
}

/// The folder of real tokenizers. If the path is empty, the test is skipped.
inline std::filesystem::path tokenizer_data() {
  const char* root = std::getenv("BATON_TEST_DATA");
  return root == nullptr ? std::filesystem::path() : std::filesystem::path(root) / "tokenizers";
}

/// The output of `zstd -dc` for a file.
inline std::string decompress(const std::filesystem::path& file) {
  FILE* pipe = ::popen(fmt::format("zstd -dc '{}'", file.string()).c_str(), "r");
  check(pipe != nullptr, "zstd does not start");
  std::string out;
  char buffer[65536];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  check(::pclose(pipe) == 0, "zstd failed");
  return out;
}

}  // namespace baton::test
