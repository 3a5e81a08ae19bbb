/// Reading and bounding of values.
#include "server/request/json_fields.h"

#include <utility>

#include <fmt/format.h>

namespace baton {

using json::Value;

tl::unexpected<Error> bad(std::string_view field, std::string message) {
  return fail(ErrorCode::invalid_request, std::move(message), std::string(field));
}

Result<void> check_field_count(const Value& body) {
  constexpr std::size_t kMaxFields = 1000;
  if (body.size() <= kMaxFields) return {};
  return bad({}, "the request body has {} fields; this server accepts {}", body.size(), kMaxFields);
}

const Value* find_given(const Value& body, std::string_view key) {
  const Value* value = json::find(body, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::string> string_member(const Value& object, std::string_view name, const std::string& key) {
  auto text = json::get<std::string>(object, name);
  if (!text) return bad_field(fmt::format("{}.{}", key, name), "must be a string");
  return std::move(*text);
}

Result<std::optional<std::int32_t>> integer_field(const Value& body, std::string_view key, std::int32_t least,
                                                  std::int32_t most) {
  const Value* value = find_given(body, key);
  if (value == nullptr) return std::optional<std::int32_t>{};
  BATON_TRY(const std::int64_t number, json::to_int64(*value, key, least, most));
  return std::optional<std::int32_t>(static_cast<std::int32_t>(number));
}

Result<float> number_field(const Value& body, std::string_view key, float least, float most, float otherwise) {
  BATON_TRY(const auto number, json::get_optional<float>(body, key));
  if (!number) return otherwise;
  if (!(*number >= least && *number <= most)) return bad_field(key, "must be from {} to {}, not {}", least, most, *number);
  return *number;
}

Result<bool> flag_field(const Value& body, std::string_view key, bool otherwise) {
  BATON_TRY(const std::optional<bool> flag, json::get_optional<bool>(body, key));
  return flag.value_or(otherwise);
}

Result<std::vector<TokenId>> parse_token_ids(const Value& list, std::string_view key, std::int32_t n_vocab) {
  if (!list.is_array()) return json::wrong_type(key, "a list of token ids", list);
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Value& element : list) {
    const bool is_integer = element.is_number_integer() || element.is_number_unsigned();
    const std::int64_t id = is_integer ? element.get<std::int64_t>() : -1;
    if (!is_integer || id < 0 || id >= n_vocab) {
      const std::string found = is_integer ? fmt::format("{}", id) : std::string(json::describe_type(element));
      return bad_field(key, "must hold token ids from 0 to {}, not {}", n_vocab - 1, found);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace baton
