/// Reads text and token ids from frames.
#include "bench/demo/demo_answer.h"

#include "io/json.h"

namespace baton {

Result<void> DemoAnswer::take(std::string_view data, double seconds) {
  if (data == "[DONE]") {
    is_complete = true;
    return {};
  }
  BATON_TRY(const json::Value frame, json::parse(data, "a frame"));
  BATON_TRY(const auto choices, json::get<std::vector<json::Value>>(frame, "choices"));
  if (choices.empty()) return {};
  BATON_TRY(const auto ids, json::get_optional<std::vector<TokenId>>(choices.front(), "token_ids"));
  if (ids) token_ids.insert(token_ids.end(), ids->begin(), ids->end());
  BATON_TRY(const auto delta, json::get<json::Value>(choices.front(), "delta"));
  BATON_TRY(const auto content, json::get_optional<std::string>(delta, "content"));
  if (!content || content->empty()) return {};
  if (first_token_s < 0) first_token_s = seconds;
  text += *content;
  return {};
}

}  // namespace baton
