/// Rendering, registering and handing out prefixes.
#include "server/prefixes.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/log.h"

namespace baton {
namespace {

Error about(std::string_view name, Error error) {
  error.message = fmt::format("prefix {}: {}", name, error.message);
  return error;
}

Result<std::string> render_with(const ServedModel& model, const json::Value& messages, std::string_view user) {
  ChatTemplate::Context context;
  context.messages = messages;
  json::Value& message = context.messages.emplace_back();
  message["role"] = "user";
  message["content"] = std::string(user);
  context.add_generation_prompt = true;
  context.bos_token = model.tokenizer.bos_text();
  context.eos_token = model.tokenizer.eos_text();
  return model.chat_template->render(context);
}

/// The parts of a new entry besides its pins.
Result<std::vector<TokenId>> prepare(const ServedModel& model, Prefixes::Entry& entry) {
  if (entry.definition.tokens.empty()) {
    const Tokenizer& tokenizer = model.tokenizer;
    entry.text = prefix_text(entry.definition.messages);
    entry.text_head = tokenizer.encode_head(entry.text);
    for (const bool with_special : {false, true}) entry.text_ids[with_special] = tokenizer.encode(entry.text, with_special);
  }
  BATON_TRY(PrefixTokens made, prefix_tokens(model, entry.definition));
  entry.chat_head = std::move(made.head);
  return std::move(made.tokens);
}

bool is_folders(PrefixSource source) { return source == PrefixSource::folder; }

Error folders_own(const PrefixDefinition& definition) {
  return {ErrorCode::invalid_request,
          fmt::format("prefix {} is the file {}; it changes and goes with it", definition.name, definition.file), "id"};
}

}  // namespace

Result<PrefixTokens> prefix_tokens(const ServedModel& model, const PrefixDefinition& definition) {
  if (!definition.tokens.empty()) return PrefixTokens{definition.tokens, {}};
  if (!model.chat_template)
    return PrefixTokens{model.tokenizer.encode(prefix_text(definition.messages), /*add_special_tokens=*/true), {}};
  // Two messages without a common character, so that the renderings differ from there on.
  BATON_TRY(const std::string one, render_with(model, definition.messages, "0"));
  BATON_TRY(const std::string other, render_with(model, definition.messages, "Why?"));
  const auto shared = static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
  PrefixTokens made;
  made.head = model.tokenizer.encode_head(std::string_view(one).substr(0, shared));
  made.tokens = model.tokenizer.encode_behind(made.head, one, /*add_special_tokens=*/false);
  const std::vector<TokenId> others = model.tokenizer.encode_behind(made.head, other, /*add_special_tokens=*/false);
  made.tokens.erase(std::ranges::mismatch(made.tokens, others).in1, made.tokens.end());
  return made;
}

/// On the heap, because the object is moved before it is shared.
struct Prefixes::State {
  /// The prefix that `add` is computing.
  struct Fill {
    PrefixDefinition definition;  // without its contents
    std::string engine_name;
    std::string_view given_up = {};  // why it was cancelled; empty: it was not
  };

  std::list<Entry>::iterator at(std::string_view name) {
    return std::ranges::find(entries, name, [](const Entry& entry) { return std::string_view(entry.definition.name); });
  }
  /// Checks whether `definition` may take its name, and returns its name in the engine.
  Result<std::string> engine_name_for(const PrefixDefinition& definition);
  bool give_up(Engine& engine, std::string_view name, PrefixSource by, std::string_view why);
  void retire(Engine& engine, std::list<Entry>::iterator entry);
  Error not_found(std::string_view name, std::string_view param) const;

  std::mutex fill_mutex;  // held while a prefix is computed; taken before `mutex`
  std::mutex mutex;
  // Guarded by mutex.
  std::list<Entry> entries;
  std::list<Entry> retired;  // entries that requests still use
  std::optional<Fill> fill;
  std::int64_t n_removed = 0;
  std::int64_t n_refused_files = 0;
};

Result<std::string> Prefixes::State::engine_name_for(const PrefixDefinition& definition) {
  const auto old = at(definition.name);
  std::string name = definition.version.empty() ? definition.name : definition.name + "@" + definition.version;
  if (old == entries.end()) return name;
  if (is_folders(old->definition.source)) {
    if (!is_folders(definition.source)) return tl::unexpected<Error>(folders_own(old->definition));
  } else if (is_folders(definition.source)) {
    return fail(ErrorCode::invalid_request,
                fmt::format("prefix {} was registered by the {} and is not the folder's", definition.name,
                            old->definition.source == PrefixSource::api ? "API" : "command line"),
                "id");
  } else if (old->definition.version == definition.version) {
    const std::string which = definition.version.empty() ? "" : fmt::format(" with version {}", definition.version);
    return fail(ErrorCode::invalid_request,
                fmt::format("prefix {} is there already{}; another version replaces it", definition.name, which), "version");
  }
  if (old->engine_name == name) name += "@";  // a file with other contents, but the same version
  return name;
}

/// False if that prefix is not being computed, or if `by` may not cancel it.
bool Prefixes::State::give_up(Engine& engine, std::string_view name, PrefixSource by, std::string_view why) {
  if (!fill || fill->definition.name != name || is_folders(fill->definition.source) != is_folders(by)) return false;
  fill->given_up = why;
  // Not found: its tokens are being made, or it is ready since a moment; then `add` reports why.
  (void)engine.remove_prefix(fill->engine_name);
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
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) names.push_back(entry.definition.name);
  const std::string known = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  return {ErrorCode::not_found, fmt::format("the prefix '{}' does not exist; there are: {}", name.substr(0, kShown), known),
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
  const std::scoped_lock lock(state_->mutex);
  if (--entry_->n_uses > 0) return;
  const auto at = std::ranges::find(state_->retired, entry_, [](const Entry& entry) { return &entry; });
  if (at != state_->retired.end()) gone.splice(gone.end(), state_->retired, at);
}

Prefixes::Prefixes() : state_(std::make_unique<State>()) {}
Prefixes::Prefixes(Prefixes&&) noexcept = default;
Prefixes::~Prefixes() = default;

Result<PrefixInfo> Prefixes::add(const ServedModel& model, Engine& engine, PrefixDefinition definition) {
  State& state = *state_;
  const std::scoped_lock one_at_a_time(state.fill_mutex);
  std::list<Entry> fresh(1);
  Entry& entry = fresh.front();
  entry.definition = std::move(definition);
  const std::string name = entry.definition.name;
  const auto is_given_up = [&] {
    const std::scoped_lock lock(state.mutex);
    return !state.fill->given_up.empty();
  };
  {
    const std::scoped_lock lock(state.mutex);
    BATON_TRY(entry.engine_name, state.engine_name_for(entry.definition));
    PrefixDefinition head{name, nullptr, entry.definition.version};
    head.source = entry.definition.source;
    state.fill = State::Fill{std::move(head), entry.engine_name};
  }
  auto filled = prepare(model, entry).and_then([&](std::vector<TokenId> tokens) -> Result<PrefixInfo> {
    if (is_given_up()) return fail(ErrorCode::unavailable, {});
    return engine.register_prefix(entry.engine_name, std::move(tokens));
  });
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(state.mutex);
  const std::string_view given_up = std::exchange(state.fill, std::nullopt)->given_up;
  if (!given_up.empty()) {
    if (filled) (void)engine.remove_prefix(entry.engine_name);
    log::info("event=prefix_given_up name={} reason=\"{}\"", name, given_up);
    return fail(ErrorCode::invalid_request, fmt::format("prefix {} was given up while it was being filled: {}", name, given_up),
                "id");
  }
  if (!filled) return tl::unexpected<Error>(about(name, std::move(filled.error())));
  filled->name = name;
  entry.info = *filled;
  entry.created = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (entry.definition.ttl) entry.expires = now + *entry.definition.ttl;
  const std::string& version = entry.definition.version;
  log::info("event=prefix_filled name={} version={} source={} tokens={} pinned_tokens={} ms={:.0f}", name,
            version.empty() ? "-" : version, to_string(entry.definition.source), filled->n_tokens, filled->n_pinned_tokens,
            filled->prefill_ms);
  const auto old = state.at(name);
  state.entries.splice(old, fresh);
  if (old != state.entries.end()) state.retire(engine, old);
  return std::move(*filled);
}

Result<void> Prefixes::remove(Engine& engine, std::string_view name, PrefixSource by) {
  const std::scoped_lock lock(state_->mutex);
  const bool gave_up = state_->give_up(engine, name, by, "it was removed");
  const auto found = state_->at(name);
  if (found == state_->entries.end()) {
    if (gave_up) return {};
    return tl::unexpected<Error>(state_->not_found(name, "id"));
  }
  if (is_folders(found->definition.source) != is_folders(by)) return tl::unexpected<Error>(folders_own(found->definition));
  log::info("event=prefix_removed name={}", name);
  state_->retire(engine, found);
  return {};
}

void Prefixes::make_way(Engine& engine, const PrefixDefinition& newer) {
  const std::scoped_lock lock(state_->mutex);
  if (!state_->fill || (!is_folders(newer.source) && state_->fill->definition.version == newer.version)) return;
  state_->give_up(engine, newer.name, newer.source, "another version came");
}

void Prefixes::give_up_fills(Engine& engine, PrefixSource source) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->fill) state_->give_up(engine, state_->fill->definition.name, source, "the server ends");
}

std::optional<Prefixes::Clock::time_point> Prefixes::remove_expired(Engine& engine, Clock::time_point now) {
  const std::scoped_lock lock(state_->mutex);
  std::optional<Clock::time_point> next;
  for (auto at = state_->entries.begin(); at != state_->entries.end();) {
    const auto entry = at++;
    if (!entry->expires) continue;
    if (*entry->expires <= now) {
      log::info("event=prefix_expired name={}", entry->definition.name);
      state_->retire(engine, entry);
    } else {
      next = std::min(next.value_or(*entry->expires), *entry->expires);
    }
  }
  return next;
}

void Prefixes::count_hit(std::string_view name) {
  const std::scoped_lock lock(state_->mutex);
  if (const auto found = state_->at(name); found != state_->entries.end()) ++found->n_hits;
}

Prefixes::Use Prefixes::find(std::string_view name) const {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->at(name);
  if (found == state_->entries.end()) return {};
  ++found->n_uses;
  return {*state_, *found};
}

void Prefixes::for_each(const std::function<void(const Entry&)>& visit) const {
  const std::scoped_lock lock(state_->mutex);
  for (const Entry& entry : state_->entries) visit(entry);
}

Error Prefixes::not_found(std::string_view name, std::string_view param) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->not_found(name, param);
}

std::int64_t Prefixes::n_removed() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->n_removed;
}

void Prefixes::set_n_refused_files(std::int64_t n) {
  const std::scoped_lock lock(state_->mutex);
  state_->n_refused_files = n;
}

PrefixCounts Prefixes::counts() const {
  const std::scoped_lock lock(state_->mutex);
  PrefixCounts counts;
  for (const Entry& entry : state_->entries) ++counts.by_source[static_cast<std::size_t>(entry.definition.source)];
  counts.n_refused_files = state_->n_refused_files;
  return counts;
}

}  // namespace baton
