/// Which callers a server accepts, and what each uses: the keys of flags and of a file, their quotas and their counts.
#pragma once

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
#include "server/keys/key_file.h"
#include "server/keys/rate_limit.h"

namespace baton {

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
