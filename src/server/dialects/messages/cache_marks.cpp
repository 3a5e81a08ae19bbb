/// Renders a request as it is cut at its marks.
#include "server/dialects/messages/cache_marks.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

/// The tokens that a prompt has in common with its request cut at a mark; 0 if that cannot be rendered.
std::int32_t n_marked_tokens(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                             const CacheMark& mark, std::span<const TokenId> prompt, const IsCancelled& is_cancelled) {
  auto cut = read_messages_request(cut_at_mark(body, mark), /*needs_max_tokens=*/false);
  if (!cut) return 0;
  cut->chat["add_generation_prompt"] = false;
  const auto chat = parse_chat_request(cut->chat, model.defaults, {model.n_vocab, 0});
  if (!chat) return 0;
  const auto rendered = tokenize_chat(model, prefix, *chat, is_cancelled);
  if (!rendered) return 0;
  return static_cast<std::int32_t>(std::ranges::mismatch(prompt, rendered->tokens).in1 - prompt.begin());
}

}  // namespace

std::vector<MarkedPrefix> marked_prefixes(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                                          std::span<const CacheMark> marks, std::span<const TokenId> prompt,
                                          std::int32_t block_len, const IsCancelled& is_cancelled) {
  std::vector<MarkedPrefix> found;
  for (std::size_t i = marks.size(); i-- > 0;) {
    if (std::ranges::find(found, marks[i].ttl, &MarkedPrefix::ttl) != found.end()) continue;
    const std::int32_t n_tokens = n_marked_tokens(model, prefix, body, marks[i], prompt, is_cancelled);
    if (n_tokens >= block_len) found.push_back({n_tokens - n_tokens % block_len, marks[i].ttl});
  }
  std::ranges::sort(found, {}, &MarkedPrefix::n_tokens);
  return found;
}

}  // namespace baton
