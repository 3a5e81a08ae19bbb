/// The traits of its templates, and how many bytes a prompt can have.
#include "server/served/served_model.h"
#include "server/request/json_fields.h"

#include <algorithm>
#include <utility>

namespace baton {

void ServedModel::set_context(std::int32_t max_len) {
  max_model_len = max_len;
  std::size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id)
    longest = std::max({longest, tokenizer.token_bytes(id).size(), tokenizer.token_text(id).size()});
  max_prompt_bytes = static_cast<std::size_t>(max_len) * longest;
}

void ServedModel::look_at_templates() {
  if (chat_template) {
    traits = probe_template(*chat_template, tokenizer.role_tokens());
    tool_traits = tool_template ? probe_template(*tool_template, tokenizer.role_tokens()) : traits;
  }
  std::vector<TokenId> special;
  marker_texts.clear();
  for (const std::string& marker : format.markers()) {
    const auto id = tokenizer.id_of(marker);
    if (!id || !tokenizer.is_special(*id) || std::ranges::find(special, *id) != special.end()) continue;
    special.push_back(*id);
    marker_texts.push_back(marker);
  }
  markers = std::move(special);
}

Result<void> ServedModel::check_prompt_bytes(std::size_t n_bytes, std::string_view param) const {
  if (max_prompt_bytes == 0 || n_bytes <= max_prompt_bytes) return {};
  return bad(param,
             "This model's maximum context length is {} tokens, which hold at most {} bytes. However, the prompt has "
             "{} bytes. Please shorten the prompt.",
             max_model_len, max_prompt_bytes, n_bytes);
}

std::int64_t ServedModel::least_tokens(std::size_t n_bytes) const {
  if (max_prompt_bytes == 0) return 0;
  const std::size_t longest = max_prompt_bytes / static_cast<std::size_t>(max_model_len);
  return static_cast<std::int64_t>((n_bytes + longest - 1) / longest);
}

std::size_t ServedModel::max_rendered_bytes() const {
  constexpr std::size_t kMore = std::size_t{64} << 10;
  return max_prompt_bytes == 0 ? 0 : 2 * max_prompt_bytes + kMore;
}

}  // namespace baton
