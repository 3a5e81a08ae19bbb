/// Which callers a server accepts, and what each uses: the keys of flags and of a file, as digests, their quotas and their
/// counts.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "core/result.h"
#include "engine/request/request.h"
#include "server/http/message.h"

namespace baton {

/// SHA-256 of a key. Only digests are kept, so that neither a log nor a core file shows a key.
using KeyDigest = std::array<unsigned char, 32>;

KeyDigest digest_of(std::string_view key);
/// The digest of 64 hexadecimal digits; nullopt for anything else.
std::optional<KeyDigest> digest_of_hex(std::string_view hex);
/// Whether two digests are equal; the time does not depend on where they differ.
bool is_same_key(const KeyDigest& a, const KeyDigest& b);

/// KEY of the Authorization header "Bearer KEY"; nullopt without the scheme or the key.
std::optional<std::string_view> bearer_key(std::string_view authorization);

/// The Authorization header of a request, or its equal of an x-api-key header, with which clients of the Anthropic dialect
/// send their key; empty if there is neither.
std::string authorization_of(const HttpRequest& request);

/// The most entries of a key file: each request is compared with all of them.
inline constexpr std::size_t kMaxKeys = 1000;

enum class KeyRole {
  user,   ///< generates and tokenises
  admin,  ///< also registers, reads and deletes prefixes
};

/// What a key may use; absent: no limit.
struct KeyQuotas {
  std::optional<std::int64_t> requests_per_minute = {};
  std::optional<std::int64_t> tokens_per_minute = {};  ///< of prompts and answers
  std::optional<std::int64_t> concurrent_requests = {};
  std::optional<std::int64_t> pinned_blocks = {};  ///< of the prefixes that it registers
  bool operator==(const KeyQuotas&) const = default;
};

struct KeyEntry {
  std::string name;  ///< in logs and metrics; see kPrefixNameRule
  KeyDigest digest = {};
  KeyRole role = KeyRole::user;
  KeyQuotas quotas = {};
  std::int32_t weight = 1;               ///< see Tenant
  std::optional<std::string> salt = {};  ///< absent: it shares its cache with all keys that have none
};

/// Reads {"keys": [{"name", "key" or "key_sha256", "role", "weight", "cache_salt", and the quotas}, ...]}. An entry
/// without a cache_salt is kept apart by its name. Errors name the file, the entry and the field, never a key:
/// not_found, invalid_data (also for an unknown field, a name or key given twice, no entry, too many).
Result<std::vector<KeyEntry>> read_key_file(const std::filesystem::path& file);

/// At most so many a minute: what was taken comes back evenly, and at most one minute's worth is there. Taking more than
/// there is leaves a debt, which must come back first. Thread: one at a time.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// Changes the limit; what is there is kept, up to one minute's worth. nullopt: no limit.
  void set(std::optional<std::int64_t> per_minute, Clock::time_point now) {
    if (per_minute_ == per_minute) return;
    fill(now);
    const bool is_first = !per_minute_;
    per_minute_ = per_minute;
    as_of_ = now;
    const double most = static_cast<double>(per_minute.value_or(0));
    left_ = is_first ? most : std::min(left_, most);
  }
  /// Time until `n` more may be taken; zero if they are there. `n` counts as one minute's worth at most.
  std::chrono::duration<double> wait_for(std::int64_t n, Clock::time_point now) {
    if (!per_minute_) return {};
    fill(now);
    const double lacking = static_cast<double>(std::min(n, *per_minute_)) - left_;
    return std::chrono::duration<double>(lacking <= 0 ? 0 : lacking * 60 / static_cast<double>(*per_minute_));
  }
  void take(std::int64_t n, Clock::time_point now) {
    if (!per_minute_) return;
    fill(now);
    left_ -= static_cast<double>(n);
  }

 private:
  void fill(Clock::time_point now) {
    if (!per_minute_ || now <= as_of_) return;
    const auto rate = static_cast<double>(*per_minute_) / 60;
    const double seconds = std::chrono::duration<double>(now - as_of_).count();
    left_ = std::min(left_ + rate * seconds, static_cast<double>(*per_minute_));
    as_of_ = now;
  }

  std::optional<std::int64_t> per_minute_;
  double left_ = 0;
  Clock::time_point as_of_ = {};
};

struct ApiKeyOptions {
  std::vector<std::string> api_keys;        ///< of --api-key
  std::vector<std::string> admin_api_keys;  ///< of --admin-api-key
  std::filesystem::path file = {};          ///< of --api-key-file; empty: none
};

/// The counts of one key, for /metrics.
struct KeyCounts {
  std::string name;
  std::int64_t n_running = 0;
  std::int64_t n_requests = 0;
  std::int64_t n_prompt_tokens = 0;
  std::int64_t n_generated_tokens = 0;
  std::int64_t n_refused = 0;
};
/// Keys that /metrics lists by name; the others are counted together.
inline constexpr std::size_t kMaxCountedKeys = 100;

/// What one key has used, under the name of its entry. It outlives changes of the file. Thread: any.
class KeyAccount {
 public:
  KeyAccount(std::string name, std::int32_t tenant) : name_(std::move(name)), tenant_(tenant) {}

  const std::string& name() const { return name_; }
  std::int32_t tenant() const { return tenant_; }
  void set_quotas(const KeyQuotas& quotas, RateLimit::Clock::time_point now);
  /// The answer to a request for which a quota has no room: 429, with the time after which there is some.
  std::optional<HttpResponse> refuse(RateLimit::Clock::time_point now);
  /// The same; if there is room, the request counts from now on.
  std::optional<HttpResponse> begin(RateLimit::Clock::time_point now);
  void end();
  void charge(std::int64_t n_prompt_tokens, std::int64_t n_generated_tokens, RateLimit::Clock::time_point now);
  KeyCounts counts() const;

 private:
  std::optional<HttpResponse> refuse_locked(RateLimit::Clock::time_point now) BATON_REQUIRES(mutex_);

  const std::string name_;
  const std::int32_t tenant_;
  mutable Mutex mutex_;
  KeyQuotas quotas_ BATON_GUARDED_BY(mutex_);
  RateLimit requests_ BATON_GUARDED_BY(mutex_);
  RateLimit tokens_ BATON_GUARDED_BY(mutex_);
  KeyCounts counts_ BATON_GUARDED_BY(mutex_);
};

/// A request that counts against the quotas of its key until this ends. Move-only.
class KeyUse {
 public:
  KeyUse() = default;
  explicit KeyUse(KeyAccount& account) : account_(&account) {}

  /// Counts tokens that were computed for the request.
  void charge(std::int64_t n_prompt_tokens, std::int64_t n_generated_tokens) const;
  /// The name of the key; empty without one.
  std::string_view name() const { return account_ == nullptr ? std::string_view() : account_->name(); }

 private:
  struct End {
    void operator()(KeyAccount* account) const { account->end(); }
  };
  std::unique_ptr<KeyAccount, End> account_;
};

/// The sender of a request, as of the request's arrival.
struct Caller {
  KeyAccount* account = nullptr;  ///< null: a server without keys
  KeyRole role = KeyRole::admin;
  Tenant tenant = {};
  std::optional<std::string> salt = {};                ///< see KeyEntry
  std::optional<std::int64_t> max_pinned_blocks = {};  ///< of all its prefixes
  std::int64_t keys_version = 0;                       ///< see ApiKeys::is_current
};

/// The salt of the cache for a request of `caller` that asks for `requested` itself. Keys with different salts, and
/// keys with and without one, have different salts whatever they ask for. Empty: shared by all.
std::string cache_salt_of(const Caller& caller, std::string_view requested);

/// The keys of a server. A key of --api-key is an administrator's unless --admin-api-key is given. The time of a
/// look-up depends on the number of keys and the length of the header only. Thread: any; accounts live as long as this.
class ApiKeys {
 public:
  /// Errors: those of read_key_file; invalid_request for a key that is given twice.
  static Result<std::unique_ptr<ApiKeys>> create(ApiKeyOptions options);

  /// Whether requests need a key. Without one, an anonymous caller is an administrator if there is no admin key.
  bool needs_key() const;
  /// The sender of a request with this Authorization header; nullopt for an unknown key, or if none is given and one is
  /// needed.
  std::optional<Caller> identify(std::string_view authorization) const;
  /// Whether the keys are the ones that `caller` was identified by: the file was not read again since.
  bool is_current(const Caller& caller) const { return caller.keys_version == version_; }
  /// Calls of `identify`.
  std::int64_t n_identified() const { return n_identified_; }
  /// Reads the file again. If that fails, the keys stay as they are. Tells the log.
  void reload();
  bool has_file() const { return !options_.file.empty(); }
  /// The first kMaxCountedKeys keys by name, and "other".
  std::vector<KeyCounts> counts() const;

 private:
  struct Key {
    KeyEntry entry;
    KeyAccount* account = nullptr;
  };
  explicit ApiKeys(ApiKeyOptions options) : options_(std::move(options)) {}
  Result<std::size_t> load();
  Result<std::vector<KeyEntry>> entries() const;

  const ApiKeyOptions options_;
  std::atomic<std::int64_t> version_ = 0;  ///< of keys_; written under mutex_
  mutable std::atomic<std::int64_t> n_identified_ = 0;
  mutable Mutex mutex_;  // locked before those of the accounts
  std::vector<Key> keys_ BATON_GUARDED_BY(mutex_);
  /// Tenant i + 1 is accounts_[i]; one for each name that there ever was.
  std::deque<KeyAccount> accounts_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
