/// The files beside a tokenizer.json.
#include "text/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json.h"
#include "text/split/component.h"

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
  auto value = json::parse_of_python(text, what);
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

/// Adds the tokens of an object of names and tokens; names that are there keep their token.
void read_role(const json::Value& object, std::string_view role, TokenizerConfig& config) {
  if (const json::Value* value = json::find(object, role); value != nullptr && value->is_null())
    config.null_roles.emplace(role);
  std::string text = token_text(json::find(object, role));
  if (text.empty()) return;
  config.special_tokens.push_back(text);
  config.role_tokens.emplace(role, std::move(text));
}

void read_roles(const json::Value& object, TokenizerConfig& config) {
  for (const std::string_view role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    read_role(object, role, config);
  if (config.bos_token.empty()) config.bos_token = token_text(json::find(object, "bos_token"));
  if (config.eos_token.empty()) config.eos_token = token_text(json::find(object, "eos_token"));
  // Names of the model's own, as image_token.
  if (const json::Value* own = json::find(object, "extra_special_tokens"); own != nullptr && own->is_object())
    for (auto entry = own->begin(); entry != own->end(); ++entry) read_role(*own, entry.key(), config);
  const json::Value* additional = json::find(object, "additional_special_tokens");
  if (additional == nullptr || !additional->is_array()) return;
  for (const json::Value& token : *additional)
    if (std::string text = token_text(&token); !text.empty()) config.special_tokens.push_back(std::move(text));
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

/// The tokenizer class that a file names, without "Fast".
std::string class_of(const json::Value& object) {
  std::string name = token_text(json::find(object, "tokenizer_class"));
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

/// What Transformers 5 has registered for a model's type.
struct Registered {
  std::string_view model_type;
  std::string_view tokenizer_class;  // empty: tokenizer.json as it is, whatever class the files name
  bool overrules = false;            // the class that the files name
};

constexpr std::array<Registered, 29> kRegistered = {{
    {"mistral", ""},
    {"mistral3", ""},
    {"ministral", ""},
    {"ministral3", ""},
    {"mixtral", ""},
    {"phi3", ""},
    {"olmo2", ""},
    {"olmo3", ""},
    {"ernie4_5", ""},
    {"ernie4_5_moe", ""},
    {"glm4", ""},
    {"glm4_moe", ""},
    {"glm4_moe_lite", ""},
    {"deepseek_v2", ""},
    {"deepseek_v3", ""},
    {"kimi_k25", ""},
    {"minimax_m2", ""},
    {"granite", ""},
    {"gpt2", "GPT2Tokenizer"},
    {"phi", "GPT2Tokenizer"},
    {"starcoder2", "GPT2Tokenizer"},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"},
    {"gemma2", "GemmaTokenizer"},
    {"gemma3", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"},
    {"cohere2", "CohereTokenizer"},
}};

/// The class that Transformers 5 takes for a model's type and the class that the files name.
std::string class_in_charge(std::string_view model_type, std::string named) {
  const auto* const found = std::ranges::find(kRegistered, model_type, &Registered::model_type);
  if (found == kRegistered.end()) return named;
  const bool is_named = !named.empty() && !found->tokenizer_class.empty() && !found->overrules;
  return is_named ? named : std::string(found->tokenizer_class);
}

/// Reads `legacy` and `add_prefix_space` where the class that the file names, if any, heeds them.
Result<void> read_spaces(const json::Value& object, TokenizerConfig& config) {
  static constexpr std::array<std::string_view, 6> kHeeding = {
      "", "LlamaTokenizer", "CodeLlamaTokenizer", "GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer"};
  const std::string& name = config.tokenizer_class;
  if (std::ranges::find(kHeeding, name) == kHeeding.end()) return {};
  BATON_TRY(config.legacy, component::get_optional<bool>(object, kFile, "legacy"));
  BATON_TRY(config.adds_prefix_space, component::get_optional<bool>(object, kFile, "add_prefix_space"));
  if (name.empty() || name == "LlamaTokenizer")
    config.sentencepiece = {config.legacy.value_or(true), config.adds_prefix_space.value_or(true)};
  return {};
}

}  // namespace

Result<TokenizerConfig> TokenizerConfig::from_json(std::string_view text) {
  TokenizerConfig config;
  if (text.empty()) return config;
  BATON_TRY(const json::Value object, parse_object(text, kFile));
  read_roles(object, config);
  BATON_TRY_VOID(read_added_tokens(object, config));
  BATON_TRY(config.chat_templates, template_sources(object, kFile));
  BATON_TRY(config.clean_up_tokenization_spaces, component::get_or<bool>(object, kFile, "clean_up_tokenization_spaces", false));
  config.tokenizer_class = class_of(object);
  BATON_TRY_VOID(read_spaces(object, config));
  BATON_TRY(config.add_bos_token, component::get_optional<bool>(object, kFile, "add_bos_token"));
  BATON_TRY(config.add_eos_token, component::get_optional<bool>(object, kFile, "add_eos_token"));
  return config;
}

Result<TokenizerConfig> TokenizerConfig::load(const std::filesystem::path& folder) {
  BATON_TRY(const std::string text, read_if_there(folder / kFile));
  BATON_TRY(TokenizerConfig config, from_json(text));

  BATON_TRY(const std::string model_text, read_if_there(folder / "config.json"));
  if (!model_text.empty()) {
    BATON_TRY(const json::Value model, parse_object(model_text, "config.json"));
    std::string named = config.tokenizer_class.empty() ? class_of(model) : config.tokenizer_class;
    config.tokenizer_class = class_in_charge(token_text(json::find(model, "model_type")), std::move(named));
  }

  BATON_TRY(const std::string map_text, read_if_there(folder / "special_tokens_map.json"));
  if (!map_text.empty()) {
    BATON_TRY(const json::Value map, parse_object(map_text, "special_tokens_map.json"));
    read_roles(map, config);
  }

  // Templates in files of their own are the newer form and win; chat_template.json is that of processors.
  BATON_TRY(TemplateSources files, read_template_files(folder));
  if (!files.empty()) {
    config.chat_templates = std::move(files);
    return config;
  }
  BATON_TRY(const std::string template_json, read_if_there(folder / "chat_template.json"));
  if (!template_json.empty()) {
    BATON_TRY(const json::Value object, parse_object(template_json, "chat_template.json"));
    BATON_TRY(TemplateSources sources, template_sources(object, "chat_template.json"));
    if (!sources.empty()) config.chat_templates = std::move(sources);
  }
  return config;
}

}  // namespace baton
