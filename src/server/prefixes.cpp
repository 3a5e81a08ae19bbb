/// Reading, rendering and registering prefixes.
#include "server/prefixes.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <fmt/format.h>

#include "core/log.h"
#include "io/file.h"

namespace baton {
namespace {

constexpr std::size_t kMaxNameBytes = 64;

bool is_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_allowed);
}

json::Value message_of(std::string_view role, std::string content) {
  json::Value message;
  message["role"] = std::string(role);
  message["content"] = std::move(content);
  return message;
}

Error about(std::string_view name, Error error) {
  error.message = fmt::format("prefix {}: {}", name, error.message);
  return error;
}

Result<std::vector<TokenId>> render_with(const ServedModel& model, const json::Value& messages, std::string_view user) {
  ChatTemplate::Context context;
  context.messages = messages;
  context.messages.push_back(message_of("user", std::string(user)));
  context.add_generation_prompt = true;
  context.bos_token = model.tokenizer.bos_text();
  context.eos_token = model.tokenizer.eos_text();
  BATON_TRY(const std::string text, model.chat_template->render(context));
  return model.tokenizer.encode(text, /*add_special_tokens=*/false);
}

}  // namespace

Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file) {
  if (!is_name(name))
    return fail(ErrorCode::invalid_request,
                fmt::format("the prefix name '{}' must be 1 to {} letters, digits, '.', '_' or '-'", name, kMaxNameBytes));
  if (file.extension() == ".json") {
    BATON_TRY(const json::Value list, json::parse_file(file));
    auto messages = parse_messages(list, "messages");
    if (!messages) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", file.string(), messages.error().message));
    return PrefixDefinition{std::string(name), std::move(*messages)};
  }
  BATON_TRY(std::string text, read_file(file));
  if (text.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} is empty; a prefix is a text", file.string()));
  json::Value messages = json::Value::array();
  messages.push_back(message_of("system", std::move(text)));
  return PrefixDefinition{std::string(name), std::move(messages)};
}

std::string prefix_text(const json::Value& messages) {
  std::string text;
  for (const json::Value& message : messages) {
    const json::Value* content = json::find(message, "content");
    if (content == nullptr || !content->is_string()) continue;
    if (!text.empty()) text += '\n';
    text += content->get_ref<const std::string&>();
  }
  return text;
}

Result<std::vector<TokenId>> prefix_tokens(const ServedModel& model, const json::Value& messages) {
  if (!model.chat_template) return model.tokenizer.encode(prefix_text(messages), /*add_special_tokens=*/true);
  // Two messages that have no character in common, so that what the renderings share comes before them.
  BATON_TRY(std::vector<TokenId> one, render_with(model, messages, "0"));
  BATON_TRY(const std::vector<TokenId> other, render_with(model, messages, "Why?"));
  one.erase(std::ranges::mismatch(one, other).in1, one.end());
  return one;
}

Result<PrefixInfo> Prefixes::add(const ServedModel& model, Engine& engine, PrefixDefinition definition) {
  if (find(definition.name) != nullptr)
    return fail(ErrorCode::invalid_request, fmt::format("prefix {} is given twice", definition.name));
  auto tokens = prefix_tokens(model, definition.messages);
  if (!tokens) return tl::unexpected<Error>(about(definition.name, std::move(tokens.error())));
  auto info = engine.register_prefix(definition.name, std::move(*tokens));
  if (!info) return tl::unexpected<Error>(about(definition.name, std::move(info.error())));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string text = prefix_text(definition.messages);
  entries_.push_back(
      {std::move(definition), std::move(text), *info, std::chrono::duration_cast<std::chrono::seconds>(now).count()});
  log::info("event=prefix_filled name={} tokens={} pinned_tokens={} ms={:.0f}", info->name, info->n_tokens,
            info->n_pinned_tokens, info->fill_ms);
  return *info;
}

const Prefixes::Entry* Prefixes::find(std::string_view name) const {
  const auto found =
      std::ranges::find(entries_, name, [](const Entry& entry) { return std::string_view(entry.definition.name); });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace baton
