/// Look-up of keys, quotas, and reading the file again.
#include "server/keys/api_keys.h"

#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "core/log.h"
#include "core/utf8.h"
#include "io/file.h"
#include "io/json.h"
#include "server/http/json_body.h"
#include "server/limits/prefix_name.h"

namespace baton {
namespace {

using Clock = RateLimit::Clock;
using json::Value;

HttpResponse over_quota(std::string_view name, std::string_view quota, std::int64_t limit, std::chrono::duration<double> wait) {
  const auto seconds = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(wait.count())));
  HttpResponse response = error_response(
      429, fmt::format("the key '{}' has reached its limit of {} {}; try again in {} s", name, limit, quota, seconds), {});
  response.headers.emplace_back("Retry-After", fmt::format("{}", seconds));
  return response;
}

constexpr std::size_t kMaxKeyBytes = 1024;
constexpr std::size_t kMaxKeySaltBytes = 256;
constexpr std::array<std::string_view, 10> kKeyFields = {"name",
                                                         "key",
                                                         "key_sha256",
                                                         "role",
                                                         "weight",
                                                         "cache_salt",
                                                         "requests_per_minute",
                                                         "tokens_per_minute",
                                                         "concurrent_requests",
                                                         "pinned_blocks"};

Error in_entry(std::size_t index, std::string_view name, Error error) {
  const std::string who = name.empty() ? "" : fmt::format(" ({})", name);
  return {ErrorCode::invalid_data, fmt::format("entry {}{}: {}", index + 1, who, error.message), std::move(error.param)};
}

Result<void> refuse_unknown(const Value& object, std::span<const std::string_view> known) {
  constexpr std::size_t kShown = 64;
  for (const auto& [field, value] : object.get_ref<const Value::object_t&>())
    if (std::ranges::find(known, field) == known.end())
      return fail(ErrorCode::invalid_data,
                  fmt::format("unknown field {}; there are: {}", json::dump(field.substr(0, kShown)), fmt::join(known, ", ")));
  return {};
}

Result<KeyDigest> parse_digest(const Value& entry) {
  BATON_TRY(const auto key, json::get_optional<std::string>(entry, "key"));
  BATON_TRY(const auto hex, json::get_optional<std::string>(entry, "key_sha256"));
  if (key.has_value() == hex.has_value()) return fail(ErrorCode::invalid_data, "it must have either 'key' or 'key_sha256'");
  if (key) {
    const bool is_usable =
        !key->empty() && key->size() <= kMaxKeyBytes && std::ranges::all_of(*key, [](char c) { return c > ' ' && c <= '~'; });
    if (!is_usable)
      return fail(ErrorCode::invalid_data,
                  fmt::format("'key' must be 1 to {} printable ASCII characters without spaces", kMaxKeyBytes));
    return digest_of(*key);
  }
  if (const auto digest = digest_of_hex(*hex)) return *digest;
  return fail(ErrorCode::invalid_data, "'key_sha256' must be 64 hexadecimal digits, as 'printf %s KEY | sha256sum' prints");
}

Result<std::optional<std::int64_t>> parse_quota(const Value& entry, std::string_view field) {
  const Value* const value = json::find(entry, field);
  if (value == nullptr || value->is_null()) return std::optional<std::int64_t>{};
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  BATON_TRY(const std::int64_t quota, json::to_int64(*value, field, field == "pinned_blocks" ? 0 : 1, kMost));
  return std::optional<std::int64_t>(quota);
}

Result<KeyEntry> parse_entry(const Value& given) {
  BATON_TRY_VOID(refuse_unknown(given, kKeyFields));
  KeyEntry entry;
  BATON_TRY(entry.name, json::get<std::string>(given, "name"));
  if (!is_prefix_name(entry.name)) return fail(ErrorCode::invalid_data, fmt::format("'name' must be {}", kPrefixNameRule));
  BATON_TRY(entry.digest, parse_digest(given));
  BATON_TRY(const auto role, json::get_optional<std::string>(given, "role"));
  if (role && *role != "user" && *role != "admin") return fail(ErrorCode::invalid_data, "'role' must be \"user\" or \"admin\"");
  entry.role = role == "admin" ? KeyRole::admin : KeyRole::user;
  if (const Value* weight = json::find(given, "weight"); weight != nullptr && !weight->is_null()) {
    BATON_TRY(const std::int64_t checked, json::to_int64(*weight, "weight", 1, kMaxTenantWeight));
    entry.weight = static_cast<std::int32_t>(checked);
  }
  BATON_TRY(const auto salt, json::get_optional<std::string>(given, "cache_salt"));
  if (salt && (salt->empty() || salt->size() > kMaxKeySaltBytes))
    return fail(ErrorCode::invalid_data, fmt::format("'cache_salt' must have 1 to {} bytes", kMaxKeySaltBytes));
  // The two kinds of salts cannot be equal.
  entry.salt = salt ? "salt:" + *salt : "name:" + entry.name;
  BATON_TRY(entry.quotas.requests_per_minute, parse_quota(given, "requests_per_minute"));
  BATON_TRY(entry.quotas.tokens_per_minute, parse_quota(given, "tokens_per_minute"));
  BATON_TRY(entry.quotas.concurrent_requests, parse_quota(given, "concurrent_requests"));
  BATON_TRY(entry.quotas.pinned_blocks, parse_quota(given, "pinned_blocks"));
  return entry;
}

Result<std::vector<KeyEntry>> parse_entries(const Value& file) {
  constexpr std::array<std::string_view, 1> kFileFields = {"keys"};
  if (!file.is_object())
    return fail(ErrorCode::invalid_data, fmt::format("it must hold an object, not {}", json::describe_type(file)));
  BATON_TRY_VOID(refuse_unknown(file, kFileFields));
  const Value* const list = json::find(file, "keys");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxKeys)
    return fail(ErrorCode::invalid_data, fmt::format("'keys' must be a list of 1 to {} entries", kMaxKeys));
  std::vector<KeyEntry> entries;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Value& given = (*list)[i];
    if (!given.is_object())
      return fail(ErrorCode::invalid_data,
                  fmt::format("entry {}: it must be an object, not {}", i + 1, json::describe_type(given)));
    auto entry = parse_entry(given);
    const Value* const name = json::find(given, "name");
    const bool is_named = name != nullptr && name->is_string() && is_prefix_name(name->get_ref<const std::string&>());
    const std::string_view shown = is_named ? std::string_view(name->get_ref<const std::string&>()) : std::string_view();
    if (!entry) return tl::unexpected<Error>(in_entry(i, shown, std::move(entry.error())));
    for (const KeyEntry& other : entries) {
      if (other.name == entry->name)
        return tl::unexpected<Error>(in_entry(i, shown, {ErrorCode::invalid_data, "another entry has the same 'name'"}));
      if (is_same_key(other.digest, entry->digest))
        return tl::unexpected<Error>(
            in_entry(i, shown, {ErrorCode::invalid_data, fmt::format("the entry {} has the same key", other.name)}));
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

constexpr std::string_view kScheme = "bearer ";

bool has_scheme(std::string_view authorization) {
  return authorization.size() > kScheme.size() && equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme);
}

}  // namespace

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::optional<KeyDigest> digest_of_hex(std::string_view hex) {
  KeyDigest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const int high = ascii::hex_digit(hex[2 * i]);
    const int low = ascii::hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return digest;
}

bool is_same_key(const KeyDigest& a, const KeyDigest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

std::optional<std::string_view> bearer_key(std::string_view authorization) {
  if (!has_scheme(authorization)) return std::nullopt;
  return authorization.substr(kScheme.size());
}

std::string authorization_of(const HttpRequest& request) {
  const std::string_view given = request.header("authorization");
  const std::string_view key = request.header("x-api-key");
  if (!given.empty() || key.empty()) return std::string(given);
  return std::string(kScheme) + std::string(key);
}

Result<std::vector<KeyEntry>> read_key_file(const std::filesystem::path& file) {
  BATON_TRY(const std::string text, read_file(file));
  auto entries =
      json::parse_unambiguous(text, file.string()).and_then([&](const Value& value) -> Result<std::vector<KeyEntry>> {
        auto parsed = parse_entries(value);
        if (!parsed) parsed.error().message = fmt::format("{}: {}", file.string(), parsed.error().message);
        return parsed;
      });
  if (!entries) {
    entries.error().code = ErrorCode::invalid_data;
    // The JSON library ends its messages with the text that it read last, which may be a key.
    std::string& message = entries.error().message;
    message.resize(std::min(message.size(), message.find("; last read")));
  }
  return entries;
}

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
