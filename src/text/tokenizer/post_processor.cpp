/// The `post_processor` of a tokenizer.json: the special tokens around a text.
#include "text/tokenizer/post_processor.h"

#include <string>

#include <fmt/format.h>

#include "text/models/vocabulary.h"
#include "text/split/component.h"

namespace baton {

namespace {

constexpr std::string_view kPostProcessor = "post_processor";
constexpr std::size_t kMaxTokens = 64;

tl::unexpected<Error> invalid_template(std::string_view message) {
  return fail(ErrorCode::invalid_data, fmt::format("tokenizer.json: TemplateProcessing: {}", message));
}

/// The ids that a template calls `name`.
Result<std::vector<TokenId>> ids_of(const json::Value& processor, const std::string& name) {
  const json::Value* tokens = json::find(processor, "special_tokens");
  const json::Value* entry = tokens == nullptr ? nullptr : json::find(*tokens, name);
  if (entry == nullptr) return invalid_template(fmt::format("'{}' is not among its special_tokens", name));
  return component::get<std::vector<TokenId>>(*entry, kPostProcessor, "ids");
}

/// Puts the ids of the template around the processor's ids so far.
Result<void> add_template(const json::Value& value, PostProcessor& processor) {
  const json::Value* single = json::find(value, "single");
  if (single == nullptr || !single->is_array()) return invalid_template("'single' must be a list");
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  bool is_after = false;
  for (const json::Value& item : *single) {
    if (const json::Value* sequence = json::find(item, "Sequence")) {
      const json::Value* id = json::find(*sequence, "id");
      if (is_after || id == nullptr || *id != "A") return invalid_template("'single' must hold the sequence A once");
      is_after = true;
      continue;
    }
    const json::Value* special = json::find(item, "SpecialToken");
    if (special == nullptr) return invalid_template("an item of 'single' is neither Sequence nor SpecialToken");
    BATON_TRY(const std::string name, component::get<std::string>(*special, kPostProcessor, "id"));
    BATON_TRY(const std::vector<TokenId> ids, ids_of(value, name));
    std::vector<TokenId>& side = is_after ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
    if (side.size() > kMaxTokens) return invalid_template(fmt::format("more than {} tokens on one side", kMaxTokens));
  }
  if (!is_after) return invalid_template("'single' must hold the sequence A once");
  processor.before.insert(processor.before.begin(), before.begin(), before.end());
  processor.after.insert(processor.after.end(), after.begin(), after.end());
  if (processor.before.size() > kMaxTokens || processor.after.size() > kMaxTokens)
    return invalid_template(fmt::format("more than {} tokens on one side", kMaxTokens));
  return {};
}

/// `cls` before the text and `sep` after it: ["token", id].
Result<void> add_ends(const json::Value& value, std::string_view type, PostProcessor& processor) {
  const auto id_of = [&](std::string_view key) -> Result<TokenId> {
    const json::Value* pair = json::find(value, key);
    const auto id = pair != nullptr && pair->is_array() && pair->size() == 2 ? json::to_int64((*pair)[1], key, 0, kMaxTokenId)
                                                                             : Result<std::int64_t>(json::missing(key));
    if (!id)
      return fail(ErrorCode::invalid_data, fmt::format("tokenizer.json: {}: '{}' must be a token and its id", type, key));
    return static_cast<TokenId>(*id);
  };
  BATON_TRY(const TokenId cls, id_of("cls"));
  BATON_TRY(const TokenId sep, id_of("sep"));
  processor.before.insert(processor.before.begin(), cls);
  processor.after.push_back(sep);
  return {};
}

Result<void> add(const json::Value& value, int depth, PostProcessor& processor) {
  BATON_TRY(const std::string type, component::type_of(value, kPostProcessor, depth, 0));
  if (type == "Sequence") {
    BATON_TRY(const json::Value* members, component::members_of(value, kPostProcessor, "processors"));
    for (const json::Value& member : *members) BATON_TRY_VOID(add(member, depth + 1, processor));
    return {};
  }
  if (type == "TemplateProcessing") return add_template(value, processor);
  if (type == "BertProcessing" || type == "RobertaProcessing") return add_ends(value, type, processor);
  if (type == "ByteLevel") return {};
  return component::unsupported(kPostProcessor, type);
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const json::Value& value) {
  PostProcessor processor;
  if (!value.is_null()) BATON_TRY_VOID(add(value, 0, processor));
  return processor;
}

}  // namespace baton
