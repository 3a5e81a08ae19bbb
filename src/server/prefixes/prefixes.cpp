/// Renders, registers, removes and looks up prefixes.
#include "server/prefixes/prefixes.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "server/http/json_body.h"
#include "server/request/json_fields.h"
#include "server/request/stamp.h"
#include "server/served/shape_messages.h"

namespace baton {
namespace {

constexpr std::size_t kEncodings = 3;  // of the text of a prefix

Error about(std::string_view name, Error error) {
  error.message = fmt::format("prefix {}: {}", name, error.message);
  return error;
}

/// A conversation behind the prefix, as a request's is rendered (render_chat).
Result<std::string> render_with(const ServedModel& model, const PrefixDefinition& definition, std::string_view user,
                                const std::function<bool()>& is_cancelled) {
  const bool has_tools = !definition.tools.is_null();
  if (has_tools && !model.tool_traits.shows_tools)
    return bad_field("tools", "is not supported with the chat template of {}, which does not show tools to the model",
                     model.names[0]);
  json::Value messages = definition.messages;
  json::Value& message = messages.emplace_back();
  message["role"] = "user";
  message["content"] = std::string(user);
  ChatTemplate::Context context;
  context.messages = shape_messages(std::move(messages), model.traits_for(has_tools));
  context.tools = definition.tools;
  context.add_generation_prompt = true;
  context.role_tokens = model.tokenizer.role_tokens();
  context.max_output_bytes = model.max_rendered_bytes();
  context.is_cancelled = is_cancelled;
  return model.template_for(has_tools).render(context);
}

/// Sets the text and ids of a new entry. Returns the tokens to compute.
Result<std::vector<TokenId>> prepare(const ServedModel& model, Prefixes::Entry& entry,
                                     const std::function<bool()>& is_cancelled) {
  if (entry.definition.tokens.empty()) {
    const Tokenizer& tokenizer = model.tokenizer;
    entry.text = prefix_text(entry.definition.messages);
    BATON_TRY_VOID(model.check_prompt_bytes(entry.text.size(), "messages"));
    WorkBudget budget(Tokenizer::limits_for(kEncodings * entry.text.size()), is_cancelled);
    BATON_TRY(entry.text_head, tokenizer.encode_head(entry.text, budget));
    for (const bool with_special : {false, true}) {
      BATON_TRY(entry.text_ids[with_special], tokenizer.encode(entry.text, with_special, budget));
    }
  }
  BATON_TRY(PrefixTokens made, prefix_tokens(model, entry.definition, is_cancelled));
  entry.chat_head = std::move(made.head);
  const std::size_t n_ids = entry.text_ids[0].size() + entry.text_ids[1].size() + made.tokens.size();
  entry.n_bytes = content_bytes(entry.definition) + entry.text.size() + n_ids * sizeof(TokenId);
  return std::move(made.tokens);
}

Error cancelled(std::string_view name, std::string_view reason) {
  log::info("event=prefix_cancelled name={} reason=\"{}\"", name, reason);
  return {ErrorCode::invalid_request, fmt::format("prefix {} was cancelled while it was being computed: {}", name, reason),
          "id"};
}

/// The entry of a name in a list, which may be const.
auto entry_of(auto& entries, std::string_view name) {
  return std::ranges::find(entries, name, [](const auto& entry) { return std::string_view(entry->definition.name); });
}

bool is_folders(PrefixSource source) { return source == PrefixSource::folder; }

Error folders_own(const PrefixDefinition& definition) {
  return {ErrorCode::invalid_request,
          fmt::format("prefix {} belongs to the file {}: change or delete the file", definition.name, definition.file), "id"};
}

}  // namespace

Result<PrefixTokens> prefix_tokens(const ServedModel& model, const PrefixDefinition& definition,
                                   const std::function<bool()>& is_cancelled) {
  if (!definition.tokens.empty()) return PrefixTokens{definition.tokens, {}};
  PrefixTokens made;
  if (!model.chat_template) {
    if (!definition.tools.is_null()) return bad_field("tools", "needs a chat template, and {} has none", model.names[0]);
    const std::string text = prefix_text(definition.messages);
    WorkBudget budget(Tokenizer::limits_for(text.size()), is_cancelled);
    BATON_TRY(made.tokens, model.tokenizer.encode(text, /*add_special_tokens=*/true, budget));
    return made;
  }
  // Two messages without a common character, so that the renderings differ from there on.
  BATON_TRY(const std::string one, render_with(model, definition, "0", is_cancelled));
  BATON_TRY(const std::string other, render_with(model, definition, "Why?", is_cancelled));
  const auto shared = static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
  WorkBudget budget(Tokenizer::limits_for(kEncodings * one.size()), is_cancelled);
  BATON_TRY(made.head, model.tokenizer.encode_head(std::string_view(one).substr(0, shared), budget));
  BATON_TRY(made.tokens, model.tokenizer.encode_behind(made.head, one, /*add_special_tokens=*/false, budget));
  BATON_TRY(const std::vector<TokenId> others,
            model.tokenizer.encode_behind(made.head, other, /*add_special_tokens=*/false, budget));
  made.tokens.erase(std::ranges::mismatch(made.tokens, others).in1, made.tokens.end());
  return made;
}

Prefixes::Prefixes(const ServedModel& model, Engine& engine, PrefixLimits limits, PrefixStore* store)
    : model_(model), engine_(engine), limits_(limits), store_(store) {}

/// Checks whether `definition` may take its name.
Result<void> Prefixes::check_name(const PrefixDefinition& definition) {
  const auto found = entry_of(ready_, definition.name);
  if (found == ready_.end()) return {};
  const PrefixDefinition& old = (*found)->definition;
  if (is_folders(old.source)) {
    if (!is_folders(definition.source)) return tl::unexpected<Error>(folders_own(old));
  } else if (is_folders(definition.source)) {
    return bad("id", "prefix {} was registered by the {} and does not belong to the folder", definition.name,
               old.source == PrefixSource::api ? "API" : "command line");
  } else if (old.version == definition.version) {
    const std::string which = definition.version.empty() ? "" : fmt::format(" with version {}", definition.version);
    return bad("version", "prefix {} is already registered{}; another version would replace it", definition.name, which);
  }
  return {};
}

/// Whether a new prefix of the API stays within the limits of all such prefixes.
Result<void> Prefixes::check_limits(const Entry& added) const {
  if (added.definition.source != PrefixSource::api) return {};
  const MutexLock lock(mutex_);
  std::size_t number = 0;
  std::size_t n_bytes = 0;
  for (const auto& entry : ready_) {
    if (entry->definition.source != PrefixSource::api || entry->definition.name == added.definition.name) continue;
    ++number;
    n_bytes += entry->n_bytes;
  }
  if (number >= limits_.max_number)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} prefixes are registered, and --max-prefixes is {}; delete one", number, limits_.max_number));
  if (n_bytes + added.n_bytes > limits_.max_bytes)
    return fail(ErrorCode::invalid_request,
                fmt::format("its contents take {} bytes, those of the other prefixes {}, and --max-prefix-bytes is {}",
                            added.n_bytes, n_bytes, limits_.max_bytes));
  return {};
}

/// Whether the owner of a new prefix may pin `n_blocks` blocks besides those of its other prefixes.
Result<void> Prefixes::check_quota(const PrefixDefinition& definition, std::size_t n_blocks) const {
  if (!definition.max_pinned_blocks) return {};
  const std::int32_t block_len = engine_.info().block_len;
  const MutexLock lock(mutex_);
  std::int64_t n_pinned = 0;
  for (const auto& entry : ready_)
    if (entry->definition.owner == definition.owner && entry->definition.name != definition.name)
      n_pinned += entry->info.n_pinned_tokens / block_len;
  if (n_pinned + static_cast<std::int64_t>(n_blocks) <= *definition.max_pinned_blocks) return {};
  return fail(ErrorCode::invalid_request,
              fmt::format("it needs {} blocks of the cache, the key '{}' has pinned {}, and may pin {}", n_blocks,
                          definition.owner, n_pinned, *definition.max_pinned_blocks));
}

void Prefixes::retire(Entries& entries, Entries::iterator entry) {
  engine_.unpin((*entry)->info.id);
  if ((*entry)->definition.source != PrefixSource::mark) ++n_removed_;
  entries.erase(entry);
}

/// From now on the prefix has no file, and gets none.
void Prefixes::remove_file(Entry& entry) {
  entry.is_removed = true;
  if (store_ != nullptr) store_->remove(entry.definition.name);
}

/// Pins the prefix, from its file if there is one.
Result<PinInfo> Prefixes::pin(Entry& entry, const Cancel& cancel) {
  if (store_ != nullptr) {
    if (auto loaded = store_->load(entry.definition.name, entry.tokens, cancel.token())) {
      entry.is_loaded = true;
      return std::move(*loaded);
    }
  }
  return engine_.pin(entry.tokens, {}, cancel.token());
}

Result<std::shared_ptr<Prefixes::Entry>> Prefixes::compute(PrefixDefinition definition, const Cancel& cancel) {
  const auto added = std::make_shared<Entry>();
  Entries fresh{added};
  Entry& entry = *added;
  entry.definition = std::move(definition);
  const std::string& name = entry.definition.name;
  {
    const MutexLock lock(mutex_);
    BATON_TRY_VOID(check_name(entry.definition));
  }
  const auto is_cancelled = [&cancel] { return cancel.is_requested(); };
  if (is_cancelled()) return tl::unexpected<Error>(cancelled(name, cancel.reason()));
  const auto text_work = [&] {
    const ThreadWatch::Work work(*place_);  // the engine and the disk do the rest
    return prepare(model_, entry, is_cancelled);
  };
  auto info = text_work().and_then([&](std::vector<TokenId> tokens) -> Result<PinInfo> {
    if (is_cancelled()) return fail(ErrorCode::unavailable, {});
    BATON_TRY_VOID(check_limits(entry));
    const EngineInfo& limits = engine_.info();
    BATON_TRY_VOID(check_quota(entry.definition, tokens.size() / static_cast<std::size_t>(limits.block_len)));
    if (tokens.size() >= static_cast<std::size_t>(limits.max_model_len))
      return bad("prefix", "it has {} tokens, which leaves no room in the maximum context length of {} tokens", tokens.size(),
                 limits.max_model_len);
    entry.tokens = std::move(tokens);
    return pin(entry, cancel);
  });
  const auto unpin = [this](const PinInfo* given) { engine_.unpin(given->id); };
  std::unique_ptr<const PinInfo, decltype(unpin)> pinned(info ? &*info : nullptr, unpin);  // until the entry has it
  const Clock::time_point now = Clock::now();
  const MutexLock lock(mutex_);
  if (is_cancelled()) return tl::unexpected<Error>(cancelled(name, cancel.reason()));
  if (!info) return tl::unexpected<Error>(about(name, std::move(info.error())));
  entry.info = *info;
  const std::int64_t unix_time = unix_seconds();
  entry.created = entry.definition.created.value_or(unix_time);
  if (entry.definition.ttl) entry.expires = now + *entry.definition.ttl - std::chrono::seconds(unix_time - entry.created);
  const std::string& version = entry.definition.version;
  log::info("event={} name={} version={} source={} tokens={} pinned_tokens={} ms={:.0f}",
            entry.is_loaded ? "prefix_loaded" : "prefix_computed", log_value(name), version.empty() ? "-" : log_value(version),
            to_string(entry.definition.source), info->n_tokens, info->n_pinned_tokens, info->prefill_ms);
  const auto old = entry_of(ready_, name);
  const auto place = old == ready_.end() ? old : std::next(old);
  if (old != ready_.end()) retire(ready_, old);
  ready_.splice(place, fresh);
  pinned.release();
  return added;
}

/// Stores a prefix, unless its file is as it should be.
void Prefixes::store(Entry& entry) {
  const std::string& name = entry.definition.name;
  std::string metadata = metadata_of(entry.definition, entry.created);
  Result<void> stored;
  if (!entry.is_loaded || !store_->is_stored(name, metadata))
    stored = store_->store(name, std::move(metadata), entry.tokens, entry.info.id, entry.is_removed);
  const MutexLock lock(mutex_);
  entry.is_stored = stored.has_value();
  if (!stored) entry.store_error = std::move(stored.error().message);
}

Result<PinInfo> Prefixes::add(PrefixDefinition definition, const Cancel& cancel) {
  BATON_TRY(const std::shared_ptr<Entry> added, compute(std::move(definition), cancel));
  if (store_ != nullptr) store(*added);
  return added->info;
}

void Prefixes::restore() {
  constexpr std::chrono::seconds kProgress{5};
  std::vector<PrefixStore::Stored> stored = store_->stored(unix_seconds());
  std::uint64_t n_bytes = 0, n_done_bytes = 0;
  for (const PrefixStore::Stored& one : stored) n_bytes += one.n_bytes;
  const auto mb = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const Clock::time_point begin = Clock::now();
  Clock::time_point shown = begin;
  std::size_t n_done = 0, n_restored = 0;
  for (PrefixStore::Stored& one : stored) {
    const std::string name = one.definition.name;
    if (const auto added = add(std::move(one.definition)))
      ++n_restored;
    else
      log::warning("event=prefix_not_restored name={} reason={}", log_value(name), log_value(added.error().message));
    ++n_done;
    n_done_bytes += one.n_bytes;
    if (Clock::now() - shown < kProgress) continue;
    shown = Clock::now();
    log::info("event=prefix_store_progress done={} of={} mb={:.0f} of_mb={:.0f}", n_done, stored.size(), mb(n_done_bytes),
              mb(n_bytes));
  }
  if (stored.empty()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  log::info("event=prefix_store_ready restored={} of={} mb={:.1f} seconds={:.2f} mb_per_s={:.0f}", n_restored, stored.size(),
            mb(n_done_bytes), seconds, seconds > 0 ? mb(n_done_bytes) / seconds : 0);
}

Result<void> Prefixes::remove(std::string_view name, PrefixSource by) {
  const Error was_removed{ErrorCode::invalid_request, fmt::format("prefix {} was removed before it was computed", name), "id"};
  const auto is_meant = [&](const Desired& one) { return one.asked.name == name && is_folders(one.source) == is_folders(by); };
  Desires removed;  // answered and freed outside the lock
  bool was_running = false;
  {
    const MutexLock lock(desired_mutex_);
    for (auto at = desired_.begin(); at != desired_.end();) {
      const auto one = at++;
      if (is_meant(*one)) removed.splice(removed.end(), desired_, one);
    }
    for (Desired& one : running_) {
      if (!is_meant(one)) continue;
      one.cancel.request("it was removed");
      was_running = true;
    }
  }
  for (const Desired& one : removed)
    if (one.source == PrefixSource::api) answer_(one.asked, &was_removed);
  MutexLock lock(mutex_);
  const auto found = entry_of(ready_, name);
  if (found == ready_.end()) {
    lock.unlock();
    return was_running || !removed.empty() ? Result<void>() : tl::unexpected<Error>(not_found(name, "id"));
  }
  if (is_folders((*found)->definition.source) != is_folders(by))
    return tl::unexpected<Error>(folders_own((*found)->definition));
  log::info("event=prefix_removed name={}", log_value(name));
  remove_file(**found);
  retire(ready_, found);
  lock.unlock();
  if (store_ != nullptr) store_->sync();
  return {};
}

std::optional<Prefixes::Clock::time_point> Prefixes::remove_expired(Clock::time_point now) {
  const MutexLock lock(mutex_);
  std::optional<Clock::time_point> next;
  for (Entries* entries : {&ready_, &marked_}) {
    for (auto at = entries->begin(); at != entries->end();) {
      const auto current = at++;
      Entry& entry = **current;
      if (!entry.expires) continue;
      if (*entry.expires > now) {
        next = std::min(next.value_or(*entry.expires), *entry.expires);
        continue;
      }
      if (entry.definition.source != PrefixSource::mark) {
        log::info("event=prefix_expired name={}", log_value(entry.definition.name));
        remove_file(entry);
      }
      retire(*entries, current);
    }
  }
  return next;
}

std::int32_t Prefixes::n_public(std::span<const TokenId> prompt) const {
  const MutexLock lock(mutex_);
  std::ptrdiff_t longest = 0;
  for (const auto& entry : ready_) {
    const std::span<const TokenId> pinned = entry->pinned();
    longest = std::max(longest, std::ranges::mismatch(pinned, prompt).in1 - pinned.begin());
  }
  return static_cast<std::int32_t>(longest);
}

void Prefixes::count_hit(std::string_view name) {
  const MutexLock lock(mutex_);
  if (const auto found = entry_of(ready_, name); found != ready_.end()) ++(*found)->n_hits;
}

Prefixes::Use Prefixes::find(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto found = entry_of(ready_, name);
  return found == ready_.end() ? nullptr : *found;
}

std::string Prefixes::served_file_version(std::string_view name) const {
  const Use served = find(name);
  return served && is_folders(served->definition.source) ? served->definition.version : "nothing";
}

void Prefixes::for_each(const std::function<void(const Entry&)>& visit) const {
  const MutexLock lock(mutex_);
  for (const auto& entry : ready_) visit(*entry);
}

std::vector<Prefixes::Pending> Prefixes::pending() const {
  std::vector<Pending> all;
  const MutexLock lock(desired_mutex_);
  for (const Desires* desires : {&running_, &desired_})
    for (const Desired& one : *desires) {
      if (one.source == PrefixSource::mark) continue;
      const bool is_refused = desires == &desired_ && one.state == Desired::State::is_refused;
      const std::string_view state = desires == &running_ ? "computing" : is_refused ? "refused" : "waiting";
      all.push_back({one.asked.name, one.source, one.version, state, desires == &running_ ? "" : one.refusal});
    }
  return all;
}

Error Prefixes::not_found(std::string_view name, std::string_view param) const {
  constexpr std::size_t kShown = 100;
  const std::vector<Pending> waiting = pending();
  if (const auto found = std::ranges::find(waiting, name, &Pending::name); found != waiting.end())
    return {ErrorCode::not_found,
            fmt::format("the prefix '{}' does not serve: its state is {}{}{}", name.substr(0, kShown), found->state,
                        found->reason.empty() ? "" : ", ", found->reason),
            std::string(param)};
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const auto& entry : ready_) names.push_back(entry->definition.name);
  return {ErrorCode::not_found,
          fmt::format("the prefix '{}' does not exist; there are: {}", name.substr(0, kShown), short_list(names)),
          std::string(param)};
}

PrefixCounts Prefixes::counts() const {
  PrefixCounts counts;
  for_each([&](const Entry& entry) { ++counts.by_source[static_cast<std::size_t>(entry.definition.source)]; });
  if (store_ != nullptr) counts.store = store_->counts();
  counts.n_refused_files = n_refused_files_;
  const MutexLock lock(desired_mutex_);
  for (const Desires* desires : {&desired_, &running_})
    counts.n_refused_files += std::ranges::count_if(*desires, [](const Desired& one) { return !one.refusal.empty(); });
  return counts;
}

}  // namespace baton
