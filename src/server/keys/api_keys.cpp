/// Look-up of keys, quotas, and reading the file again.
#include "server/keys/api_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "server/http/error_body.h"

namespace baton {
namespace {

using Clock = RateLimit::Clock;

HttpResponse over_quota(std::string_view name, std::string_view quota, std::int64_t limit, std::chrono::duration<double> wait) {
  const auto seconds = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(wait.count())));
  HttpResponse response = error_response(
      429, fmt::format("the key '{}' has reached its limit of {} {}; try again in {} s", name, limit, quota, seconds), {});
  response.headers.emplace_back("Retry-After", fmt::format("{}", seconds));
  return response;
}

}  // namespace

void KeyAccount::set_quotas(const KeyQuotas& quotas, Clock::time_point now) {
  const MutexLock lock(mutex_);
  quotas_ = quotas;
  requests_.set(quotas.requests_per_minute, now);
  tokens_.set(quotas.tokens_per_minute, now);
}

std::optional<HttpResponse> KeyAccount::refuse_locked(Clock::time_point now) {
  std::optional<HttpResponse> refused;
  if (const auto wait = requests_.wait_for(1, now); wait.count() > 0)
    refused = over_quota(name_, "requests per minute", *quotas_.requests_per_minute, wait);
  else if (const auto debt = tokens_.wait_for(1, now); debt.count() > 0)
    refused = over_quota(name_, "tokens per minute", *quotas_.tokens_per_minute, debt);
  else if (quotas_.concurrent_requests && counts_.n_running >= *quotas_.concurrent_requests)
    refused = over_quota(name_, "concurrent requests", *quotas_.concurrent_requests, {});
  if (refused) ++counts_.n_refused;
  return refused;
}

std::optional<HttpResponse> KeyAccount::refuse(Clock::time_point now) {
  const MutexLock lock(mutex_);
  return refuse_locked(now);
}

std::optional<HttpResponse> KeyAccount::begin(Clock::time_point now) {
  const MutexLock lock(mutex_);
  auto refused = refuse_locked(now);
  if (refused) return refused;
  requests_.take(1, now);
  ++counts_.n_running;
  ++counts_.n_requests;
  return std::nullopt;
}

void KeyAccount::end() {
  const MutexLock lock(mutex_);
  --counts_.n_running;
}

void KeyAccount::charge(std::int64_t n_prompt_tokens, std::int64_t n_generated_tokens, Clock::time_point now) {
  const MutexLock lock(mutex_);
  counts_.n_prompt_tokens += n_prompt_tokens;
  counts_.n_generated_tokens += n_generated_tokens;
  tokens_.take(n_prompt_tokens + n_generated_tokens, now);
}

KeyCounts KeyAccount::counts() const {
  const MutexLock lock(mutex_);
  KeyCounts counts = counts_;
  counts.name = name_;
  return counts;
}

void KeyUse::charge(std::int64_t n_prompt_tokens, std::int64_t n_generated_tokens) const {
  if (account_ != nullptr) account_->charge(n_prompt_tokens, n_generated_tokens, Clock::now());
}

std::string cache_salt_of(const Caller& caller, std::string_view requested) {
  if (!caller.salt && requested.empty()) return {};
  const std::string_view own = caller.salt ? std::string_view(*caller.salt) : std::string_view();
  // The length tells where the key's part ends, so that no request can name another key's salt.
  return fmt::format("{}:{}{}", own.size(), own, requested);
}

/// The keys of the flags and of the file. No two are equal.
Result<std::vector<KeyEntry>> ApiKeys::entries() const {
  std::vector<KeyEntry> entries;
  // Names of the file have no brackets.
  const KeyRole role = options_.admin_api_keys.empty() ? KeyRole::admin : KeyRole::user;
  for (std::size_t i = 0; i < options_.api_keys.size(); ++i)
    entries.push_back({fmt::format("api-key[{}]", i), digest_of(options_.api_keys[i]), role});
  for (std::size_t i = 0; i < options_.admin_api_keys.size(); ++i)
    entries.push_back({fmt::format("admin-api-key[{}]", i), digest_of(options_.admin_api_keys[i]), KeyRole::admin});
  if (has_file()) {
    BATON_TRY(std::vector<KeyEntry> read, read_key_file(options_.file));
    for (KeyEntry& entry : read) entries.push_back(std::move(entry));
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (is_same_key(entries[i].digest, entries[j].digest))
        return fail(ErrorCode::invalid_request,
                    fmt::format("the keys {} and {} are the same; a key is given once", entries[j].name, entries[i].name),
                    "api_key");
  return entries;
}

/// Returns the number of keys of the file.
Result<std::size_t> ApiKeys::load() {
  BATON_TRY(std::vector<KeyEntry> read, entries());
  const auto now = Clock::now();
  const MutexLock lock(mutex_);
  std::vector<Key> keys;
  for (KeyEntry& entry : read) {
    auto account = std::ranges::find(accounts_, entry.name, [](const KeyAccount& one) { return one.name(); });
    if (account == accounts_.end()) {
      if (accounts_.size() + 1 >= static_cast<std::size_t>(kMaxTenants))
        return fail(ErrorCode::invalid_data, "the file has brought too many different names since the start");
      accounts_.emplace_back(entry.name, static_cast<std::int32_t>(accounts_.size()) + 1);
      account = std::prev(accounts_.end());
    }
    account->set_quotas(entry.quotas, now);
    keys.push_back({std::move(entry), &*account});
  }
  keys_ = std::move(keys);
  ++version_;
  return keys_.size() - options_.api_keys.size() - options_.admin_api_keys.size();
}

Result<std::unique_ptr<ApiKeys>> ApiKeys::create(ApiKeyOptions options) {
  std::unique_ptr<ApiKeys> keys(new ApiKeys(std::move(options)));
  BATON_TRY_VOID(keys->load());
  return keys;
}

void ApiKeys::reload() {
  if (const auto n_keys = load(); n_keys)
    log::info("event=key_file_read file={} keys={}", options_.file.string(), *n_keys);
  else
    log::warning("event=key_file_refused effect=\"the keys stay as they were\" reason=\"{}\"", n_keys.error().message);
}

bool ApiKeys::needs_key() const { return !options_.api_keys.empty() || has_file(); }

std::optional<Caller> ApiKeys::identify(std::string_view authorization) const {
  ++n_identified_;
  const auto given = bearer_key(authorization);
  const KeyDigest digest = digest_of(given.value_or(std::string_view()));
  const MutexLock lock(mutex_);
  const Key* found = nullptr;
  for (const Key& key : keys_)
    if (is_same_key(key.entry.digest, digest)) found = &key;
  if (given && found != nullptr)
    return Caller{found->account,
                  found->entry.role,
                  {found->account->tenant(), found->entry.weight},
                  found->entry.salt,
                  found->entry.quotas.pinned_blocks,
                  version_};
  if (needs_key()) return std::nullopt;
  Caller anyone;
  anyone.keys_version = version_;
  if (!options_.admin_api_keys.empty()) anyone.role = KeyRole::user;
  return anyone;
}

std::vector<KeyCounts> ApiKeys::counts() const {
  const MutexLock lock(mutex_);
  std::vector<KeyCounts> counts;
  for (const KeyAccount& account : accounts_) {
    KeyCounts one = account.counts();
    if (counts.size() < kMaxCountedKeys) {
      counts.push_back(std::move(one));
      continue;
    }
    if (counts.size() == kMaxCountedKeys) counts.push_back({.name = "other"});
    KeyCounts& others = counts.back();
    others.n_running += one.n_running;
    others.n_requests += one.n_requests;
    others.n_prompt_tokens += one.n_prompt_tokens;
    others.n_generated_tokens += one.n_generated_tokens;
    others.n_refused += one.n_refused;
  }
  return counts;
}

}  // namespace baton
