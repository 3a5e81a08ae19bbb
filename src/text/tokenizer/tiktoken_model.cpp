/// Lines of tokens and ranks.
#include "text/tokenizer/tiktoken_model.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "text/split/base64.h"
#include "text/split/unicode.h"

namespace baton {

namespace {

constexpr std::string_view kClass = "TikTokenTokenizer";

using Ranked = std::pair<TokenId, std::string>;

/// The rank and the token of a line; nullopt where it is none.
std::optional<Ranked> ranked_token(std::string_view line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  std::optional<std::string> token = characters_of_base64(line.substr(0, space));
  const std::string_view number = line.substr(std::min(space + 1, line.size()));
  TokenId rank = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  if (!token || token->empty() || error != std::errc() || end != number.data() + number.size() || rank < 0) return std::nullopt;
  return Ranked(rank, std::move(*token));
}

/// The first byte without a token of its own; nullopt if each has one.
std::optional<int> missing_byte(const std::vector<std::string>& tokens) {
  const std::unordered_set<std::string_view> known(tokens.begin(), tokens.end());
  for (int byte = 0; byte < 256; ++byte)
    if (!known.contains(unicode::to_utf8(unicode::character_of_byte(static_cast<unsigned char>(byte))))) return byte;
  return std::nullopt;
}

}  // namespace

bool TiktokenModel::is_begin(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return ranked_token(line).has_value();
}

Result<TiktokenModel> TiktokenModel::from_text(std::string_view text, const TokenizerConfig& config) {
  if (!config.tokenizer_class.empty() && config.tokenizer_class != kClass)
    return fail(
        ErrorCode::unsupported,
        fmt::format("tiktoken.model: it does not say where words end, and Baton knows that of {} alone (Kimi, Moonlight), "
                    "not of {}; convert it to a tokenizer.json (Transformers' TikTokenConverter takes the pattern)",
                    kClass, config.tokenizer_class));
  std::vector<Ranked> ranked;
  for (std::size_t n_lines = 1; !text.empty(); ++n_lines) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::optional<Ranked> token = ranked_token(line);
    if (!token)
      return fail(ErrorCode::invalid_data,
                  fmt::format("tiktoken.model: line {} is not a token in base64 and its rank", n_lines));
    ranked.push_back(std::move(*token));
  }
  std::ranges::stable_sort(ranked, {}, &Ranked::first);
  TiktokenModel model;
  for (auto& [rank, token] : ranked) {
    if (rank != static_cast<TokenId>(model.tokens.size()))
      return fail(ErrorCode::invalid_data,
                  fmt::format("tiktoken.model: the rank {} stands where {} is the next one", rank, model.tokens.size()));
    model.tokens.push_back(std::move(token));
  }
  if (model.tokens.empty()) return fail(ErrorCode::invalid_data, "tiktoken.model: there are no tokens");
  if (const std::optional<int> byte = missing_byte(model.tokens))
    return fail(ErrorCode::invalid_data,
                fmt::format("tiktoken.model: byte 0x{:02x} has no token, so that text with it could not be read", *byte));
  const auto n_tokens = static_cast<TokenId>(model.tokens.size());
  for (TokenId id = n_tokens; id < n_tokens + kReserved; ++id)
    if (std::ranges::find(config.added_tokens, id, &AddedToken::id) == config.added_tokens.end())
      model.special.push_back(
          {.content = fmt::format("<|reserved_token_{}|>", id), .id = id, .is_special = true, .is_normalized = false});
  return model;
}

}  // namespace baton
