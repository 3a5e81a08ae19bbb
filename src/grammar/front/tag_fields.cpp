/// Typed access to the fields of formats, with errors that say the path.
#include "grammar/front/tag_fields.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace baton::grammar {

tl::unexpected<Error> tag_error(ErrorCode code, const std::string& path, std::string_view text) {
  return fail(code, fmt::format("the structural tag: {} {}", path, text));
}

Result<const json::Value*> field(const json::Value& value, std::string_view key, const std::string& path) {
  const json::Value* found = json::find(value, key);
  if (found == nullptr) return tag_error(ErrorCode::invalid_request, path, fmt::format("has no '{}'", key));
  return found;
}

Result<std::string_view> text_of(const json::Value& value, std::string_view key, const std::string& path) {
  BATON_TRY(const json::Value* found, field(value, key, path));
  if (!found->is_string()) return tag_error(ErrorCode::invalid_request, path + "/" + std::string(key), "must be a string");
  return std::string_view(found->get_ref<const std::string&>());
}

Result<bool> flag_of(const json::Value& value, std::string_view key, const std::string& path) {
  const json::Value* found = json::find(value, key);
  if (found == nullptr || found->is_null()) return false;
  if (!found->is_boolean())
    return tag_error(ErrorCode::invalid_request, path + "/" + std::string(key), "must be true or false");
  return found->get<bool>();
}

Result<const json::Value*> list_of(const json::Value& value, std::string_view key, const std::string& path) {
  BATON_TRY(const json::Value* found, field(value, key, path));
  if (!found->is_array() || found->empty())
    return tag_error(ErrorCode::invalid_request, path + "/" + std::string(key), "must be a list that is not empty");
  return found;
}

Result<Ends> texts_of(const json::Value& value, std::string_view key, const std::string& path) {
  Ends texts;
  const json::Value* list = json::find(value, key);
  if (list == nullptr || list->is_null()) return texts;
  const auto add = [&](const json::Value& one) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty()) return false;
    texts.emplace_back(one.get_ref<const std::string&>());
    return true;
  };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), add))
    return tag_error(ErrorCode::invalid_request, path + "/" + std::string(key), "must be a list of texts that are not empty");
  if (texts.size() > kMaxTexts)
    return tag_error(ErrorCode::too_large, path + "/" + std::string(key),
                     fmt::format("has {} texts; at most {} are accepted", texts.size(), kMaxTexts));
  std::set<std::string_view> seen;
  std::erase_if(texts, [&](std::string_view text) { return !seen.insert(text).second; });
  return texts;
}

Result<Ends> ends_of(const json::Value& value, const std::string& path) {
  BATON_TRY(const json::Value* end, field(value, "end", path));
  if (end->is_array()) return texts_of(value, "end", path);
  BATON_TRY(const std::string_view text, text_of(value, "end", path));
  return text.empty() ? Ends{} : Ends{text};
}

}  // namespace baton::grammar
