/// Reading, rendering and registering prefixes.
#include "server/prefixes.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/log.h"
#include "io/file.h"

namespace baton {
namespace {

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

/// What the engine knows it by: two versions of a name are there while one replaces the other.
std::string engine_name(const PrefixDefinition& definition) {
  return definition.version.empty() ? definition.name : definition.name + "@" + definition.version;
}

}  // namespace

json::Value system_messages(std::string text) {
  json::Value messages = json::Value::array();
  messages.push_back(message_of("system", std::move(text)));
  return messages;
}

bool is_prefix_name(std::string_view name) {
  constexpr std::size_t kMaxBytes = 64;
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxBytes && std::ranges::all_of(name, is_allowed);
}

Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file) {
  if (!is_prefix_name(name))
    return fail(ErrorCode::invalid_request, fmt::format("the prefix name '{}' must be {}", name, kPrefixNameRule));
  if (file.extension() == ".json") {
    BATON_TRY(const json::Value list, json::parse_file(file));
    auto messages = parse_messages(list, "messages");
    if (!messages) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", file.string(), messages.error().message));
    return PrefixDefinition{std::string(name), std::move(*messages)};
  }
  BATON_TRY(std::string text, read_file(file));
  if (text.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} is empty; a prefix is a text", file.string()));
  return PrefixDefinition{std::string(name), system_messages(std::move(text))};
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
  const std::optional<Entry> old = find(definition.name);
  if (old && old->definition.version == definition.version) {
    const std::string which = definition.version.empty() ? "" : fmt::format(" with version {}", definition.version);
    return fail(ErrorCode::invalid_request,
                fmt::format("prefix {} is there already{}; another version replaces it", definition.name, which), "version");
  }
  auto tokens = prefix_tokens(model, definition.messages);
  if (!tokens) return tl::unexpected<Error>(about(definition.name, std::move(tokens.error())));
  auto info = engine.register_prefix(engine_name(definition), std::move(*tokens));
  if (!info) return tl::unexpected<Error>(about(definition.name, std::move(info.error())));
  info->name = definition.name;
  const Clock::time_point now = Clock::now();
  Entry entry;
  entry.text = prefix_text(definition.messages);
  entry.info = *info;
  entry.created = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (definition.ttl) entry.expires = now + *definition.ttl;
  entry.definition = std::move(definition);
  log::info("event=prefix_filled name={} version={} tokens={} pinned_tokens={} ms={:.0f}", info->name,
            entry.definition.version.empty() ? "-" : entry.definition.version, info->n_tokens, info->n_pinned_tokens,
            info->fill_ms);
  const std::scoped_lock lock(*mutex_);
  if (!old) {
    entries_.push_back(std::move(entry));
    return *info;
  }
  *at(info->name) = std::move(entry);
  BATON_TRY_VOID(engine.remove_prefix(engine_name(old->definition)));
  return *info;
}

Result<void> Prefixes::remove(Engine& engine, std::string_view name) {
  const std::optional<Entry> found = find(name);
  if (!found) return tl::unexpected<Error>(not_found(name, "id"));
  {
    const std::scoped_lock lock(*mutex_);
    entries_.erase(at(name));
  }
  log::info("event=prefix_removed name={}", name);
  return engine.remove_prefix(engine_name(found->definition));
}

std::optional<Prefixes::Clock::time_point> Prefixes::remove_expired(Engine& engine, Clock::time_point now) {
  std::vector<std::string> expired;
  std::optional<Clock::time_point> next;
  for_each([&](const Entry& entry) {
    if (!entry.expires) return;
    if (*entry.expires <= now)
      expired.push_back(entry.definition.name);
    else
      next = std::min(next.value_or(*entry.expires), *entry.expires);
  });
  for (const std::string& name : expired) {
    log::info("event=prefix_expired name={}", name);
    check(remove(engine, name).has_value(), "Prefixes: an expired prefix is not there");
  }
  return next;
}

void Prefixes::count_hit(std::string_view name) {
  const std::scoped_lock lock(*mutex_);
  if (const auto found = at(name); found != entries_.end()) ++found->n_hits;
}

std::optional<Prefixes::Entry> Prefixes::find(std::string_view name) const {
  std::optional<Entry> found;
  for_each([&](const Entry& entry) {
    if (entry.definition.name == name) found = entry;
  });
  return found;
}

void Prefixes::for_each(const std::function<void(const Entry&)>& visit) const {
  const std::scoped_lock lock(*mutex_);
  for (const Entry& entry : entries_) visit(entry);
}

Error Prefixes::not_found(std::string_view name, std::string_view param) const {
  constexpr std::size_t kShown = 100;
  std::vector<std::string> names;
  for_each([&](const Entry& entry) { names.push_back(entry.definition.name); });
  const std::string known = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  return {ErrorCode::not_found, fmt::format("the prefix '{}' does not exist; there are: {}", name.substr(0, kShown), known),
          std::string(param)};
}

/// Under the lock.
std::vector<Prefixes::Entry>::iterator Prefixes::at(std::string_view name) {
  return std::ranges::find(entries_, name, [](const Entry& entry) { return std::string_view(entry.definition.name); });
}

}  // namespace baton
