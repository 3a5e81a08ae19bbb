/// The components that Transformers' tokenizer classes build themselves.
#include "text/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include <fmt/format.h>

#include "text/split/component.h"

namespace baton {

namespace {

constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Gives a role the class's token where the configuration does not say anything about it.
void name_by_default(TokenizerConfig& config, const std::string& role, const char* token) {
  if (config.null_roles.contains(role) || config.role_tokens.contains(role)) return;
  config.role_tokens.emplace(role, token);
  config.special_tokens.emplace_back(token);
  if (role == "bos_token") config.bos_token = token;
  if (role == "eos_token") config.eos_token = token;
}

bool has_byte_fallback(const json::Value& root) {
  const json::Value* model = json::find(root, "model");
  const json::Value* type = model == nullptr ? nullptr : json::find(*model, "type");
  const json::Value* fallback = model == nullptr ? nullptr : json::find(*model, "byte_fallback");
  return model != nullptr && (type == nullptr || *type == "BPE") && fallback != nullptr && *fallback == true;
}

}  // namespace

void rebuild_for_class(json::Value& root, TokenizerConfig& config) {
  const bool is_code = config.tokenizer_class == "CodeLlamaTokenizer";
  if ((!is_code && config.tokenizer_class != "LlamaTokenizer") || !has_byte_fallback(root)) return;

  name_by_default(config, "unk_token", "<unk>");
  name_by_default(config, "bos_token", "<s>");
  name_by_default(config, "eos_token", "</s>");
  json::Value& model = root["model"];
  model["fuse_unk"] = true;
  for (const char* option : {"dropout", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix", "unk_token"})
    model.erase(option);
  if (is_code) {
    if (const auto unk = config.role_tokens.find("unk_token"); unk != config.role_tokens.end())
      model["unk_token"] = unk->second;
    for (const char* token : {"▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}) config.special_tokens.emplace_back(token);
    config.add_bos_token = true;
  }

  const bool adds_space = config.adds_prefix_space.value_or(true);
  const bool is_legacy = !is_code && config.legacy.value_or(false);
  const char* const spaced = is_legacy ? "always" : "first";
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", adds_space ? spaced : "never"}, {"split", false}};
  json::Value decoders = {
      {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}}, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (adds_space || is_code) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  root["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  // Where the configuration lists the added tokens, the others of the tokenizer.json are none.
  if (!config.added_tokens.empty()) root["added_tokens"] = json::Value::array();
}

namespace {

Result<json::Value> merges_of(std::string_view text) {
  json::Value merges = json::Value::array();
  for (std::size_t n_line = 1; !text.empty(); ++n_line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      return fail(ErrorCode::invalid_data, fmt::format("merges.txt: line {} is not two tokens with a space between", n_line));
    merges.push_back(json::Value::array({line.substr(0, space), line.substr(space + 1)}));
  }
  return merges;
}

/// Adds the tokens of an added_tokens.json: special are those with a role.
Result<void> read_added(const json::Value& added, TokenizerConfig& config) {
  if (!config.added_tokens.empty() || !added.is_object()) return {};
  const std::unordered_set<std::string_view> special(config.special_tokens.begin(), config.special_tokens.end());
  for (auto entry = added.begin(); entry != added.end(); ++entry) {
    const auto id = json::to_int64(entry.value(), entry.key(), 0, kMaxTokenId);
    if (!id) return fail(ErrorCode::invalid_data, "added_tokens.json: " + id.error().message);
    const bool is_special = special.contains(entry.key());
    config.added_tokens.push_back(
        {.content = entry.key(), .id = static_cast<TokenId>(*id), .is_special = is_special, .is_normalized = !is_special});
  }
  return {};
}

/// Adds the default end token after the vocabulary where neither it nor the configuration has the token.
void add_end_of_text(json::Value& root, const json::Value& vocab, const TokenizerConfig& config) {
  constexpr std::string_view kEnd = "<|endoftext|>";
  const auto is_end = [&](const auto& token) { return token.content == kEnd; };
  if (std::ranges::find(config.special_tokens, kEnd) == config.special_tokens.end() || vocab.contains(kEnd) ||
      std::ranges::any_of(config.added_tokens, is_end))
    return;
  auto id = static_cast<std::int64_t>(vocab.size());
  for (const AddedToken& token : config.added_tokens) id = std::max<std::int64_t>(id, token.id + 1);
  root["added_tokens"].push_back({{"id", id}, {"content", kEnd}, {"special", true}, {"normalized", false}});
}

}  // namespace

Result<json::Value> root_for_class(json::Value vocab, std::string_view merges, const json::Value& added,
                                   TokenizerConfig& config) {
  const std::string& name = config.tokenizer_class;
  const bool is_qwen = name == "Qwen2Tokenizer";
  if (!is_qwen && name != "GPT2Tokenizer" && name != "CodeGenTokenizer")
    return fail(
        ErrorCode::unsupported,
        fmt::format("vocab.json and merges.txt are read for GPT2Tokenizer, CodeGenTokenizer and Qwen2Tokenizer; here {}",
                    name.empty() ? "no tokenizer class is named" : "the tokenizer class is " + name));
  if (!vocab.is_object()) return fail(ErrorCode::invalid_data, "vocab.json: must be an object of tokens and their ids");
  name_by_default(config, "unk_token", "<|endoftext|>");
  if (!is_qwen) name_by_default(config, "bos_token", "<|endoftext|>");
  name_by_default(config, "eos_token", "<|endoftext|>");
  if (is_qwen) name_by_default(config, "pad_token", "<|endoftext|>");

  BATON_TRY_VOID(read_added(added, config));
  json::Value root;
  root["added_tokens"] = json::Value::array();
  add_end_of_text(root, vocab, config);
  const bool adds_space = config.adds_prefix_space.value_or(false);
  const json::Value byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"use_regex", !is_qwen}};
  root["pre_tokenizer"] = byte_level;
  root["decoder"] = byte_level;
  if (is_qwen) {
    const json::Value split = {{"type", "Split"}, {"pattern", {{"Regex", kQwen2Words}}}, {"behavior", "Isolated"}};
    root["normalizer"] = {{"type", "NFC"}};
    root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::Value::array({split, byte_level})}};
  }
  root["model"] = {{"type", "BPE"}};
  BATON_TRY(root["model"]["merges"], merges_of(merges));
  root["model"]["vocab"] = std::move(vocab);
  return root;
}

}  // namespace baton
