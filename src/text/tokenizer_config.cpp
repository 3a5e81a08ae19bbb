/// The files beside a tokenizer.json.
#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json.h"
#include "text/component.h"

namespace baton {

namespace {

constexpr std::string_view kFile = "tokenizer_config.json";

/// The text of a file, or "" where it does not exist.
Result<std::string> read_if_there(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  return read_file(path);
}

Result<json::Value> parse_object(std::string_view text, std::string_view what) {
  auto value = json::parse(text, what);
  if (!value) return fail(ErrorCode::invalid_data, value.error().message);
  if (!value->is_object()) return fail(ErrorCode::invalid_data, fmt::format("{}: must be an object", what));
  return value;
}

/// The text of a token given as a string or as {"content": ...}; empty if absent.
std::string token_text(const json::Value* value) {
  if (value == nullptr) return {};
  const json::Value* text = value->is_object() ? json::find(*value, "content") : value;
  return text != nullptr && text->is_string() ? text->get_ref<const std::string&>() : std::string();
}

void read_roles(const json::Value& object, TokenizerConfig& config) {
  const auto add = [&](std::string text) {
    if (!text.empty()) config.special_tokens.push_back(std::move(text));
  };
  if (config.bos_token.empty()) config.bos_token = token_text(json::find(object, "bos_token"));
  if (config.eos_token.empty()) config.eos_token = token_text(json::find(object, "eos_token"));
  for (const std::string_view role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    add(token_text(json::find(object, role)));
  const json::Value* additional = json::find(object, "additional_special_tokens");
  if (additional == nullptr || !additional->is_array()) return;
  for (const json::Value& token : *additional) add(token_text(&token));
}

Result<void> read_added_tokens(const json::Value& object, TokenizerConfig& config) {
  const json::Value* tokens = json::find(object, "added_tokens_decoder");
  if (tokens == nullptr || !tokens->is_object()) return {};
  for (auto entry = tokens->begin(); entry != tokens->end(); ++entry) {
    const std::string& key = entry.key();
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId)
      return fail(ErrorCode::invalid_data,
                  fmt::format("{}: added_tokens_decoder: '{}' is no id from 0 to {}", kFile, key, kMaxTokenId));
    BATON_TRY(AddedToken token, AddedToken::from_json(entry.value(), id));
    config.added_tokens.push_back(std::move(token));
  }
  return {};
}

/// `chat_template`: a string, or a list of {"name", "template"}.
std::string chat_template_of(const json::Value& object) {
  const json::Value* value = json::find(object, "chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) return value->get_ref<const std::string&>();
  if (!value->is_array()) return {};
  for (const json::Value& entry : *value) {
    const json::Value* name = json::find(entry, "name");
    const json::Value* text = json::find(entry, "template");
    if (name != nullptr && *name == "default" && text != nullptr && text->is_string())
      return text->get_ref<const std::string&>();
  }
  return {};
}

/// The tokenizer class of Transformers, without "Fast".
std::string class_of(const json::Value& object) {
  std::string name = token_text(json::find(object, "tokenizer_class"));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

/// `legacy` and `add_prefix_space` of the class that heeds them, or of a file that names no class.
Result<SentencePieceOptions> sentencepiece_options(const json::Value& object) {
  SentencePieceOptions options;
  const std::string name = class_of(object);
  if (!name.empty() && name != "LlamaTokenizer") return options;
  BATON_TRY(const auto is_legacy, component::get_optional<bool>(object, kFile, "legacy"));
  BATON_TRY(const auto adds_space, component::get_optional<bool>(object, kFile, "add_prefix_space"));
  return SentencePieceOptions{is_legacy.value_or(true), adds_space.value_or(true)};
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::from_json(std::string_view text) {
  TokenizerConfig config;
  if (text.empty()) return config;
  BATON_TRY(const json::Value object, parse_object(text, kFile));
  read_roles(object, config);
  BATON_TRY_VOID(read_added_tokens(object, config));
  config.chat_template = chat_template_of(object);
  BATON_TRY(config.clean_up_tokenization_spaces, component::get_or<bool>(object, kFile, "clean_up_tokenization_spaces", false));
  BATON_TRY(config.sentencepiece, sentencepiece_options(object));
  BATON_TRY(config.add_bos_token, component::get_optional<bool>(object, kFile, "add_bos_token"));
  BATON_TRY(config.add_eos_token, component::get_optional<bool>(object, kFile, "add_eos_token"));
  return config;
}

Result<TokenizerConfig> TokenizerConfig::load(const std::filesystem::path& folder) {
  BATON_TRY(const std::string text, read_if_there(folder / kFile));
  BATON_TRY(TokenizerConfig config, from_json(text));

  BATON_TRY(const std::string map_text, read_if_there(folder / "special_tokens_map.json"));
  if (!map_text.empty()) {
    BATON_TRY(const json::Value map, parse_object(map_text, "special_tokens_map.json"));
    read_roles(map, config);
  }

  // A template in a separate file is the newer form and wins.
  BATON_TRY(std::string jinja, read_if_there(folder / "chat_template.jinja"));
  if (!jinja.empty()) {
    config.chat_template = std::move(jinja);
    return config;
  }
  BATON_TRY(const std::string template_json, read_if_there(folder / "chat_template.json"));
  if (!template_json.empty()) {
    BATON_TRY(const json::Value object, parse_object(template_json, "chat_template.json"));
    if (std::string source = chat_template_of(object); !source.empty()) config.chat_template = std::move(source);
  }
  return config;
}

}  // namespace baton
