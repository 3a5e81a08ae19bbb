/// Responses that clients may ask for again, and continue.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/mutex.h"

namespace baton {

/// What is kept of a response.
struct StoredResponse {
  std::string response;  ///< the whole response, as JSON
  std::string items;     ///< the input items of its conversation, a list as JSON
  std::string salt;      ///< of the cache: a conversation continues under the same one
};

struct ResponseStoreLimits {
  std::size_t owner_entries = 1000;
  std::size_t owner_bytes = std::size_t{16} << 20;
  std::size_t bytes = std::size_t{64} << 20;  ///< of all owners
  std::chrono::seconds lifetime = std::chrono::hours(24);
};

/// The limits where clients may cause the server to take `client_bytes` of memory (--client-memory-bytes): beside it, an
/// eighth of it for all owners, and a quarter of that for one.
ResponseStoreLimits response_store_limits(std::int64_t client_bytes);

/// Keeps responses by owner (a key's name) and id. With too many, those of the same owner go first that were not used for
/// the longest time, then those of all owners. What one owner has stored, no other one sees. Thread: any.
class ResponseStore {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ResponseStore(const ResponseStoreLimits& limits) : limits_(limits) {}

  /// Not kept if it is larger than an owner's share.
  void put(std::string_view owner, std::string_view id, StoredResponse response, Clock::time_point now);
  /// Null if there is none, or its lifetime is over. It counts as used.
  std::shared_ptr<const StoredResponse> find(std::string_view owner, std::string_view id, Clock::time_point now);
  /// The response used last that has an item of this id, in its input or its output; null if there is none.
  std::shared_ptr<const StoredResponse> find_item(std::string_view owner, std::string_view id, Clock::time_point now);
  /// False if there is none.
  bool remove(std::string_view owner, std::string_view id, Clock::time_point now);

  std::size_t n_bytes() const;
  std::size_t size() const;

 private:
  struct Entry {
    std::string owner;
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    std::size_t n_bytes = 0;
    Clock::time_point expires;
  };
  using Entries = std::list<Entry>;
  /// What an owner has.
  struct Share {
    std::size_t n_entries = 0;
    std::size_t n_bytes = 0;
  };

  Entries::iterator at(std::string_view owner, std::string_view id, Clock::time_point now) BATON_REQUIRES(mutex_);
  void drop(Entries::iterator entry, Entries& dropped) BATON_REQUIRES(mutex_);
  void drop_oldest_of(const std::string& owner, Entries& dropped) BATON_REQUIRES(mutex_);

  const ResponseStoreLimits limits_;
  mutable Mutex mutex_;
  Entries entries_ BATON_GUARDED_BY(mutex_);  // the one that was used last is the first
  std::unordered_map<std::string, Entries::iterator> by_id_ BATON_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Share> shares_ BATON_GUARDED_BY(mutex_);
  std::size_t n_bytes_ BATON_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton
