/// Mistral's tekken.json: an encoding of tiktoken with its pattern, after the special tokens.
#include "text/tokenizer/tekken.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "text/models/vocabulary.h"
#include "text/split/base64.h"
#include "text/split/component.h"

namespace baton {

namespace {

constexpr std::string_view kTekken = "tekken.json";

tl::unexpected<Error> invalid_tekken(std::string message) {
  return fail(ErrorCode::invalid_data, "tekken.json: " + std::move(message));
}

/// The special tokens of the first files, which did not list them, by id. Source: mistral-common, tekken.py.
constexpr std::array<std::string_view, 20> kFirstSpecialTokens = {"<unk>",
                                                                  "<s>",
                                                                  "</s>",
                                                                  "[INST]",
                                                                  "[/INST]",
                                                                  "[AVAILABLE_TOOLS]",
                                                                  "[/AVAILABLE_TOOLS]",
                                                                  "[TOOL_RESULTS]",
                                                                  "[/TOOL_RESULTS]",
                                                                  "[TOOL_CALLS]",
                                                                  "[IMG]",
                                                                  "<pad>",
                                                                  "[IMG_BREAK]",
                                                                  "[IMG_END]",
                                                                  "[PREFIX]",
                                                                  "[MIDDLE]",
                                                                  "[SUFFIX]",
                                                                  "[SYSTEM_PROMPT]",
                                                                  "[/SYSTEM_PROMPT]",
                                                                  "[TOOL_CONTENT]"};

/// The list of a file that has none: files of version v7 and older mean kFirstSpecialTokens.
Result<json::Value> first_special_tokens(const json::Value& config) {
  BATON_TRY(const auto version, component::get<std::string>(config, kTekken, "version"));
  if (version != "v1" && version != "v2" && version != "v3" && version != "v7")
    return fail(
        ErrorCode::unsupported,
        fmt::format("tekken.json: a file of version {} without 'special_tokens' is not supported; v1 to v7 are", version));
  json::Value list = json::Value::array();
  for (const std::string_view token : kFirstSpecialTokens) list.push_back({{"rank", list.size()}, {"token_str", token}});
  return list;
}

Result<std::vector<std::string>> special_tokens_of(const json::Value& root, const json::Value& config) {
  const json::Value* list = json::find(root, "special_tokens");
  json::Value first;
  if (list == nullptr || list->is_null()) {
    BATON_TRY(first, first_special_tokens(config));
    list = &first;
  }
  if (!list->is_array()) return invalid_tekken("'special_tokens' must be a list");
  BATON_TRY(const auto n_declared, component::get_optional<std::int64_t>(config, kTekken, "default_num_special_tokens"));
  const std::int64_t n_special = n_declared.value_or(static_cast<std::int64_t>(list->size()));
  if (n_special < static_cast<std::int64_t>(list->size()) || n_special > kMaxTokenId)
    return invalid_tekken(fmt::format("{} special_tokens, but default_num_special_tokens is {}", list->size(), n_special));
  std::vector<std::string> tokens(static_cast<std::size_t>(n_special));
  for (const json::Value& entry : *list) {
    BATON_TRY(const auto rank, component::get<std::int64_t>(entry, kTekken, "rank"));
    BATON_TRY(std::string text, component::get<std::string>(entry, kTekken, "token_str"));
    const bool is_free =
        rank >= 0 && rank < static_cast<std::int64_t>(list->size()) && tokens[static_cast<std::size_t>(rank)].empty();
    if (!is_free || text.empty())
      return invalid_tekken(fmt::format("special_tokens: rank {} ('{}') is not the next one", rank, text));
    tokens[static_cast<std::size_t>(rank)] = std::move(text);
  }
  for (std::size_t i = list->size(); i < tokens.size(); ++i) tokens[i] = fmt::format("<SPECIAL_{}>", i);
  return tokens;
}

}  // namespace

Result<Tekken> Tekken::from_json(const json::Value& root) {
  Tekken tekken;
  const json::Value* config = json::find(root, "config");
  if (config == nullptr || !config->is_object()) return invalid_tekken("'config' must be an object");
  BATON_TRY(tekken.pattern, component::get<std::string>(*config, kTekken, "pattern"));
  BATON_TRY(tekken.special_tokens, special_tokens_of(root, *config));

  const json::Value* vocab = json::find(root, "vocab");
  if (vocab == nullptr || !vocab->is_array()) return invalid_tekken("'vocab' must be a list");
  // The file may hold more tokens than the model has.
  const auto n_special = static_cast<std::int64_t>(tekken.special_tokens.size());
  BATON_TRY(const auto n_ids, component::get_optional<std::int64_t>(*config, kTekken, "default_vocab_size"));
  if (n_ids && *n_ids < n_special)
    return invalid_tekken(fmt::format("default_vocab_size is {}, with {} special tokens", *n_ids, n_special));
  const std::size_t n_tokens = n_ids ? std::min(vocab->size(), static_cast<std::size_t>(*n_ids - n_special)) : vocab->size();
  for (std::size_t rank = 0; rank < n_tokens; ++rank) {
    BATON_TRY(const std::string base64, component::get<std::string>((*vocab)[rank], kTekken, "token_bytes"));
    std::optional<std::string> token = characters_of_base64(base64);
    if (!token || token->empty()) return invalid_tekken(fmt::format("vocab[{}]: token_bytes '{}' is not base64", rank, base64));
    tekken.tokens.push_back(std::move(*token));
  }
  return tekken;
}

}  // namespace baton
