/// Renders, registers and looks up prefixes.
#include "server/prefixes/prefixes.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/limits/insist.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/one_line.h"
#include "server/http/error_body.h"
#include "server/prefixes/stored_definition.h"
#include "server/request/stamp.h"
#include "server/served/shape_messages.h"

namespace baton {
namespace {

constexpr std::size_t kEncodings = 3;  // of the text of a prefix
constexpr std::string_view kNoRemoval =
    "event=prefixes_out_of_memory effect=\"the program ends: there is no memory to remove a prefix\"";

Error about(std::string_view name, Error error) {
  error.message = fmt::format("prefix {}: {}", name, error.message);
  return error;
}

/// A conversation behind the prefix, as a request's is rendered (render_chat).
Result<std::string> render_with(const ServedModel& model, const PrefixDefinition& definition, std::string_view user,
                                const std::function<bool()>& is_cancelled) {
  const bool has_tools = !definition.tools.is_null();
  if (has_tools && !model.tool_traits.shows_tools)
    return fail(ErrorCode::invalid_request,
                fmt::format("'tools' is not supported with the chat template of {}, which does not show tools to the model",
                            model.names[0]),
                "tools");
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
    if (!definition.tools.is_null())
      return fail(ErrorCode::invalid_request, fmt::format("'tools' needs a chat template, and {} has none", model.names[0]),
                  "tools");
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

/// Lives on the heap, because a Prefixes is moved before threads share it.
struct Prefixes::State {
  /// The prefix prefill that `add` waits for.
  struct Prefill {
    PrefixDefinition definition;  // without contents
    std::string engine_name;
    std::string_view cancel_reason = {};  // empty: not cancelled
  };

  std::list<Entry>::iterator at(std::string_view name) BATON_REQUIRES(mutex) {
    return std::ranges::find(entries, name, [](const Entry& entry) { return std::string_view(entry.definition.name); });
  }
  /// Checks whether `definition` may take its name, and returns its name in the engine.
  Result<std::string> engine_name_for(const PrefixDefinition& definition) BATON_REQUIRES(mutex);
  Result<void> check_limits(const PrefixLimits& limits, const Entry& added);
  Result<void> check_quota(const PrefixDefinition& definition, std::size_t n_blocks, std::int32_t block_len);
  bool cancel(Engine& engine, std::string_view name, PrefixSource by, std::string_view reason) BATON_REQUIRES(mutex);
  /// A prefix that was added, and what its file will say.
  struct Added {
    PrefixInfo info;
    std::string engine_name;
    std::vector<TokenId> tokens;  // none without a store
    std::string metadata;
    bool is_loaded = false;
  };
  Result<Added> add(const PrefixLimits& limits, const ServedModel& model, Engine& engine, PrefixDefinition definition,
                    const PrefixSteps& steps) BATON_REQUIRES(prefill_mutex);
  class Computing;
  Result<PrefixInfo> fill(Engine& engine, Entry& entry, std::vector<TokenId> tokens);
  void keep(Engine& engine, Added added) BATON_REQUIRES(prefill_mutex);
  Result<void> remove(Engine& engine, std::string_view name, PrefixSource by);
  void retire(Engine& engine, std::list<Entry>::iterator entry) BATON_REQUIRES(mutex);
  Error not_found(std::string_view name, std::string_view param) const BATON_REQUIRES(mutex);

  PrefixStore* store = nullptr;  // null: prefixes are not stored; set before threads share it

  Mutex prefill_mutex BATON_ACQUIRED_BEFORE(mutex);  // held while a prefix is computed and stored
  Mutex mutex;                                       // locked before those of the store and of the engine
  std::list<Entry> entries BATON_GUARDED_BY(mutex);
  std::list<Entry> retired BATON_GUARDED_BY(mutex);  // entries that requests still use
  std::optional<Prefill> prefill BATON_GUARDED_BY(mutex);
  std::int64_t n_removed BATON_GUARDED_BY(mutex) = 0;
  std::int64_t n_refused_files BATON_GUARDED_BY(mutex) = 0;
};

Result<std::string> Prefixes::State::engine_name_for(const PrefixDefinition& definition) {
  const auto old = at(definition.name);
  std::string name = definition.version.empty() ? definition.name : definition.name + "@" + definition.version;
  if (old == entries.end()) return name;
  if (is_folders(old->definition.source)) {
    if (!is_folders(definition.source)) return tl::unexpected<Error>(folders_own(old->definition));
  } else if (is_folders(definition.source)) {
    return fail(ErrorCode::invalid_request,
                fmt::format("prefix {} was registered by the {} and does not belong to the folder", definition.name,
                            old->definition.source == PrefixSource::api ? "API" : "command line"),
                "id");
  } else if (old->definition.version == definition.version) {
    const std::string which = definition.version.empty() ? "" : fmt::format(" with version {}", definition.version);
    return fail(ErrorCode::invalid_request,
                fmt::format("prefix {} is already registered{}; another version would replace it", definition.name, which),
                "version");
  }
  if (old->engine_name == name) name += "@";  // a file with other contents, but the same version
  return name;
}

/// Whether a new prefix of the API stays within the limits of all such prefixes.
Result<void> Prefixes::State::check_limits(const PrefixLimits& limits, const Entry& added) {
  if (added.definition.source != PrefixSource::api) return {};
  const MutexLock lock(mutex);
  std::size_t number = 0;
  std::size_t n_bytes = 0;
  for (const Entry& entry : entries) {
    if (entry.definition.source != PrefixSource::api || entry.definition.name == added.definition.name) continue;
    ++number;
    n_bytes += entry.n_bytes;
  }
  if (number >= limits.max_number)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} prefixes are registered, and --max-prefixes is {}; delete one", number, limits.max_number));
  if (n_bytes + added.n_bytes > limits.max_bytes)
    return fail(ErrorCode::invalid_request,
                fmt::format("its contents take {} bytes, those of the other prefixes {}, and --max-prefix-bytes is {}",
                            added.n_bytes, n_bytes, limits.max_bytes));
  return {};
}

/// Whether the owner of a new prefix may pin `n_blocks` blocks besides those of its other prefixes.
Result<void> Prefixes::State::check_quota(const PrefixDefinition& definition, std::size_t n_blocks, std::int32_t block_len) {
  if (!definition.max_pinned_blocks) return {};
  const MutexLock lock(mutex);
  std::int64_t n_pinned = 0;
  for (const Entry& entry : entries)
    if (entry.definition.owner == definition.owner && entry.definition.name != definition.name)
      n_pinned += entry.info.n_pinned_tokens / block_len;
  if (n_pinned + static_cast<std::int64_t>(n_blocks) <= *definition.max_pinned_blocks) return {};
  return fail(ErrorCode::invalid_request,
              fmt::format("it needs {} blocks of the cache, the key '{}' has pinned {}, and may pin {}", n_blocks,
                          definition.owner, n_pinned, *definition.max_pinned_blocks));
}

/// Cancels the prefill of a prefix. Returns false if it is not being computed, or if `by` may not cancel it.
bool Prefixes::State::cancel(Engine& engine, std::string_view name, PrefixSource by, std::string_view reason) {
  if (!prefill || prefill->definition.name != name || is_folders(prefill->definition.source) != is_folders(by)) return false;
  prefill->cancel_reason = reason;
  // The engine does not find it before its tokens are made or after it is ready. `add` then reports the reason.
  (void)engine.remove_prefix(prefill->engine_name);
  return true;
}

void Prefixes::State::retire(Engine& engine, std::list<Entry>::iterator entry) {
  check(engine.remove_prefix(entry->engine_name).has_value(), "Prefixes: the engine does not have a prefix that is listed");
  ++n_removed;
  if (entry->n_uses == 0)
    entries.erase(entry);
  else
    retired.splice(retired.end(), entries, entry);
}

Error Prefixes::State::not_found(std::string_view name, std::string_view param) const {
  constexpr std::size_t kShown = 100;
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.definition.name);
  return {ErrorCode::not_found,
          fmt::format("the prefix '{}' does not exist; there are: {}", name.substr(0, kShown), short_list(names)),
          std::string(param)};
}

Prefixes::Use::Use(Use&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}

Prefixes::Use& Prefixes::Use::operator=(Use&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(entry_, other.entry_);
  return *this;
}

Prefixes::Use::~Use() {
  if (entry_ == nullptr) return;
  std::list<Entry> gone;  // freed outside the lock
  const MutexLock lock(state_->mutex);
  if (--entry_->n_uses > 0) return;
  const auto at = std::ranges::find(state_->retired, entry_, [](const Entry& entry) { return &entry; });
  if (at != state_->retired.end()) gone.splice(gone.end(), state_->retired, at);
}

Prefixes::Prefixes() : state_(std::make_unique<State>()) {}
Prefixes::Prefixes(Prefixes&&) noexcept = default;
Prefixes::~Prefixes() = default;

Result<PrefixInfo> Prefixes::add(const ServedModel& model, Engine& engine, PrefixDefinition definition) {
  return add_within({}, model, engine, std::move(definition), {[] { return std::string_view(); }});
}

/// Registers the prefix in the engine, from its file if there is one.
Result<PrefixInfo> Prefixes::State::fill(Engine& engine, Entry& entry, std::vector<TokenId> tokens) {
  if (store != nullptr) {
    if (auto loaded = store->load(engine, entry.definition.name, entry.engine_name, tokens)) {
      entry.is_loaded = true;
      return std::move(*loaded);
    }
  }
  return engine.register_prefix(entry.engine_name, std::move(tokens));
}

/// A computation that `cancel` finds until this ends. If an exception ends it, the engine does not keep the prefix.
class Prefixes::State::Computing {
 public:
  Computing(State& state, Engine& engine, const Entry& entry) : state_(state), engine_(engine), entry_(entry) {}
  ~Computing() {
    const MutexLock lock(state_.mutex);
    state_.prefill.reset();
    if (is_in_engine_) insist(kNoRemoval, [&] { (void)engine_.remove_prefix(entry_.engine_name); });
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

  void set_in_engine(bool is_in_engine) { is_in_engine_ = is_in_engine; }

 private:
  State& state_;
  Engine& engine_;
  const Entry& entry_;
  bool is_in_engine_ = false;
};

Result<Prefixes::State::Added> Prefixes::State::add(const PrefixLimits& limits, const ServedModel& model, Engine& engine,
                                                    PrefixDefinition definition, const PrefixSteps& steps) {
  std::list<Entry> fresh(1);
  Entry& entry = fresh.front();
  entry.definition = std::move(definition);
  const std::string name = entry.definition.name;
  const auto is_cancelled = [&] {
    const MutexLock lock(mutex);
    return !prefill->cancel_reason.empty();
  };
  {
    const MutexLock lock(mutex);
    BATON_TRY(entry.engine_name, engine_name_for(entry.definition));
    PrefixDefinition head{name, nullptr, entry.definition.version};
    head.source = entry.definition.source;
    prefill = Prefill{std::move(head), entry.engine_name};
  }
  Computing computing(*this, engine, entry);
  // Whoever cancels it from now on finds it.
  if (const std::string_view reason = steps.begin(); !reason.empty()) return tl::unexpected<Error>(cancelled(name, reason));
  Added added;
  auto info = prepare(model, entry, is_cancelled).and_then([&](std::vector<TokenId> tokens) -> Result<PrefixInfo> {
    if (steps.end_of_texts) steps.end_of_texts();
    if (is_cancelled()) return fail(ErrorCode::unavailable, {});
    BATON_TRY_VOID(check_limits(limits, entry));
    const std::int32_t block_len = engine.info().block_len;
    BATON_TRY_VOID(check_quota(entry.definition, tokens.size() / static_cast<std::size_t>(block_len), block_len));
    entry.pinned = tokens;
    if (store != nullptr) added.tokens = tokens;
    return fill(engine, entry, std::move(tokens));
  });
  computing.set_in_engine(info.has_value());
  const Clock::time_point now = Clock::now();
  const MutexLock lock(mutex);
  if (!prefill->cancel_reason.empty()) return tl::unexpected<Error>(cancelled(name, prefill->cancel_reason));
  if (!info) return tl::unexpected<Error>(about(name, std::move(info.error())));
  info->name = name;
  entry.info = *info;
  entry.pinned.resize(static_cast<std::size_t>(info->n_pinned_tokens));
  const std::int64_t unix_time = unix_seconds();
  entry.created = entry.definition.created.value_or(unix_time);
  if (entry.definition.ttl) entry.expires = now + *entry.definition.ttl - std::chrono::seconds(unix_time - entry.created);
  const std::string& version = entry.definition.version;
  log::info("event={} name={} version={} source={} tokens={} pinned_tokens={} ms={:.0f}",
            entry.is_loaded ? "prefix_loaded" : "prefix_computed", log_value(name), version.empty() ? "-" : log_value(version),
            to_string(entry.definition.source), info->n_tokens, info->n_pinned_tokens, info->prefill_ms);
  added.info = std::move(*info);
  added.engine_name = entry.engine_name;
  added.is_loaded = entry.is_loaded;
  if (store != nullptr) {
    added.metadata = metadata_of(entry.definition, entry.created);
    store->expect(name);  // who removes the prefix from now on prevents its file
  }
  const auto old = at(name);
  const auto place = old == entries.end() ? old : std::next(old);
  if (old != entries.end()) retire(engine, old);
  entries.splice(place, fresh);
  computing.set_in_engine(false);  // it is the entry's
  return added;
}

/// Stores a prefix, unless its file is as it should be.
void Prefixes::State::keep(Engine& engine, Added added) {
  const std::string& name = added.info.name;
  Result<void> stored;
  if (!added.is_loaded || !store->is_stored(name, added.metadata))
    stored = store->store(engine, name, std::move(added.metadata), added.tokens);
  const MutexLock lock(mutex);
  const auto entry = std::ranges::find(entries, added.engine_name, &Entry::engine_name);
  if (entry == entries.end()) return;
  entry->is_stored = stored.has_value();
  if (!stored) entry->store_error = std::move(stored.error().message);
}

void Prefixes::use_store(PrefixStore& store) { state_->store = &store; }

Result<PrefixInfo> Prefixes::add_within(const PrefixLimits& limits, const ServedModel& model, Engine& engine,
                                        PrefixDefinition definition, const PrefixSteps& steps) {
  const MutexLock one_at_a_time(state_->prefill_mutex);
  BATON_TRY(State::Added added, state_->add(limits, model, engine, std::move(definition), steps));
  PrefixInfo info = added.info;
  if (state_->store != nullptr) state_->keep(engine, std::move(added));
  return info;
}

Result<void> Prefixes::remove(Engine& engine, std::string_view name, PrefixSource by) {
  auto removed = state_->remove(engine, name, by);
  if (removed && state_->store != nullptr) state_->store->sync();
  return removed;
}

Result<void> Prefixes::State::remove(Engine& engine, std::string_view name, PrefixSource by) {
  const MutexLock lock(mutex);
  const bool was_cancelled = cancel(engine, name, by, "it was removed");
  const auto found = at(name);
  if (found == entries.end()) {
    if (was_cancelled) return {};
    return tl::unexpected<Error>(not_found(name, "id"));
  }
  if (is_folders(found->definition.source) != is_folders(by)) return tl::unexpected<Error>(folders_own(found->definition));
  log::info("event=prefix_removed name={}", log_value(name));
  if (store != nullptr) store->remove(found->definition.name);
  retire(engine, found);
  return {};
}

void Prefixes::make_way(Engine& engine, const PrefixDefinition& newer) {
  const MutexLock lock(state_->mutex);
  if (!state_->prefill || (!is_folders(newer.source) && state_->prefill->definition.version == newer.version)) return;
  state_->cancel(engine, newer.name, newer.source, "another version replaces it");
}

void Prefixes::cancel(Engine& engine, std::string_view name, std::string_view reason) {
  const MutexLock lock(state_->mutex);
  state_->cancel(engine, name, PrefixSource::api, reason);
}

void Prefixes::cancel_prefill(Engine& engine, PrefixSource source) {
  const MutexLock lock(state_->mutex);
  if (state_->prefill) state_->cancel(engine, state_->prefill->definition.name, source, "the server is shutting down");
}

std::optional<Prefixes::Clock::time_point> Prefixes::remove_expired(Engine& engine, Clock::time_point now) {
  const MutexLock lock(state_->mutex);
  std::optional<Clock::time_point> next;
  for (auto at = state_->entries.begin(); at != state_->entries.end();) {
    const auto entry = at++;
    if (!entry->expires) continue;
    if (*entry->expires <= now) {
      log::info("event=prefix_expired name={}", log_value(entry->definition.name));
      if (state_->store != nullptr) state_->store->remove(entry->definition.name);
      state_->retire(engine, entry);
    } else {
      next = std::min(next.value_or(*entry->expires), *entry->expires);
    }
  }
  return next;
}

std::int32_t Prefixes::n_public(std::span<const TokenId> prompt) const {
  const MutexLock lock(state_->mutex);
  std::ptrdiff_t longest = 0;
  for (const Entry& entry : state_->entries)
    longest = std::max(longest, std::ranges::mismatch(entry.pinned, prompt).in1 - entry.pinned.begin());
  return static_cast<std::int32_t>(longest);
}

void Prefixes::count_hit(std::string_view name) {
  const MutexLock lock(state_->mutex);
  if (const auto found = state_->at(name); found != state_->entries.end()) ++found->n_hits;
}

Prefixes::Use Prefixes::find(std::string_view name) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->at(name);
  if (found == state_->entries.end()) return {};
  ++found->n_uses;
  return {*state_, *found};
}

void Prefixes::for_each(const std::function<void(const Entry&)>& visit) const {
  const MutexLock lock(state_->mutex);
  for (const Entry& entry : state_->entries) visit(entry);
}

Error Prefixes::not_found(std::string_view name, std::string_view param) const {
  const MutexLock lock(state_->mutex);
  return state_->not_found(name, param);
}

std::int64_t Prefixes::n_removed() const {
  const MutexLock lock(state_->mutex);
  return state_->n_removed;
}

void Prefixes::set_n_refused_files(std::int64_t n) {
  const MutexLock lock(state_->mutex);
  state_->n_refused_files = n;
}

PrefixCounts Prefixes::counts() const {
  const MutexLock lock(state_->mutex);
  PrefixCounts counts;
  for (const Entry& entry : state_->entries) ++counts.by_source[static_cast<std::size_t>(entry.definition.source)];
  counts.n_refused_files = state_->n_refused_files;
  if (state_->store != nullptr) counts.store = state_->store->counts();
  return counts;
}

}  // namespace baton
