/// Mistral's tekken.json: an encoding of tiktoken with its pattern, behind the special tokens.
#include "text/tekken.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "text/component.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace baton {

namespace {

constexpr std::string_view kTekken = "tekken.json";

tl::unexpected<Error> invalid_tekken(std::string message) {
  return fail(ErrorCode::invalid_data, "tekken.json: " + std::move(message));
}

int digit_of_base64(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

/// The bytes of base64 (RFC 4648, section 4), each as GPT-2's character; nullopt where it is not base64.
std::optional<std::string> characters_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t n_padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(n_padding);
  std::string characters;
  std::uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    const int digit = digit_of_base64(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    unicode::append_utf8(characters, unicode::character_of_byte(static_cast<unsigned char>(bits >> n_bits)));
  }
  return characters;
}

Result<std::vector<std::string>> special_tokens_of(const json::Value& root, const json::Value& config) {
  const json::Value* list = json::find(root, "special_tokens");
  if (list == nullptr || list->is_null())
    return fail(ErrorCode::unsupported, "tekken.json: a file without 'special_tokens' is not supported");
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
