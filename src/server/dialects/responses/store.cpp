/// A list in the order of use.
#include "server/dialects/responses/store.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "io/json.h"

namespace baton {
namespace {

/// An entry, its places in tables, and the allocator's share.
constexpr std::size_t kStoredEntryBytes = 512;

}  // namespace

ResponseStoreLimits response_store_limits(std::int64_t client_bytes) {
  ResponseStoreLimits limits;
  limits.bytes = static_cast<std::size_t>(client_bytes) / 8;
  limits.owner_bytes = limits.bytes / 4;
  return limits;
}

/// The entry of an owner, or the end. One whose lifetime is over is none.
ResponseStore::Entries::iterator ResponseStore::at(std::string_view owner, std::string_view id, Clock::time_point now) {
  const auto found = by_id_.find(std::string(id));
  if (found == by_id_.end() || found->second->owner != owner || found->second->expires <= now) return entries_.end();
  return found->second;
}

/// Takes an entry out. What was dropped is freed without the lock.
void ResponseStore::drop(Entries::iterator entry, Entries& dropped) {
  const auto share = shares_.find(entry->owner);
  share->second.n_bytes -= entry->n_bytes;
  if (--share->second.n_entries == 0) shares_.erase(share);
  n_bytes_ -= entry->n_bytes;
  by_id_.erase(entry->id);
  dropped.splice(dropped.end(), entries_, entry);
}

void ResponseStore::drop_oldest_of(const std::string& owner, Entries& dropped) {
  const auto oldest =
      std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) { return entry.owner == owner; });
  if (oldest != entries_.rend()) drop(std::prev(oldest.base()), dropped);
}

void ResponseStore::put(std::string_view owner, std::string_view id, StoredResponse response, Clock::time_point now) {
  Entries added(1);
  Entry& entry = added.front();
  entry.owner = owner;
  entry.id = id;
  entry.n_bytes = kStoredEntryBytes + response.response.size() + response.items.size() + response.salt.size();
  entry.response = std::make_shared<const StoredResponse>(std::move(response));
  entry.expires = now + limits_.lifetime;
  if (entry.n_bytes > std::min(limits_.owner_bytes, limits_.bytes)) return;
  Entries dropped;
  const MutexLock lock(mutex_);
  if (const auto same = by_id_.find(entry.id); same != by_id_.end()) drop(same->second, dropped);
  const auto is_over = [&](const std::string& name) BATON_REQUIRES(mutex_) {
    const auto share = shares_.find(name);
    return share != shares_.end() &&
           (share->second.n_entries + 1 > limits_.owner_entries || share->second.n_bytes + entry.n_bytes > limits_.owner_bytes);
  };
  while (is_over(entry.owner)) drop_oldest_of(entry.owner, dropped);
  while (!entries_.empty() && (n_bytes_ + entry.n_bytes > limits_.bytes || entries_.back().expires <= now))
    drop(std::prev(entries_.end()), dropped);
  Share& share = shares_[entry.owner];
  by_id_.emplace(entry.id, added.begin());
  // Nothing below throws.
  ++share.n_entries;
  share.n_bytes += entry.n_bytes;
  n_bytes_ += entry.n_bytes;
  entries_.splice(entries_.begin(), added);
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view owner, std::string_view id, Clock::time_point now) {
  const MutexLock lock(mutex_);
  const auto found = at(owner, id, now);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->response;
}

std::shared_ptr<const StoredResponse> ResponseStore::find_item(std::string_view owner, std::string_view id,
                                                               Clock::time_point now) {
  std::vector<std::shared_ptr<const StoredResponse>> own;
  {
    const MutexLock lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.owner == owner && entry.expires > now) own.push_back(entry.response);
  }
  // Their texts are searched without the lock.
  const std::string member = "\"id\":" + json::dump(json::Value(std::string(id)));
  for (auto& response : own)
    if (response->items.find(member) != std::string::npos || response->response.find(member) != std::string::npos)
      return std::move(response);
  return nullptr;
}

bool ResponseStore::remove(std::string_view owner, std::string_view id, Clock::time_point now) {
  Entries dropped;
  const MutexLock lock(mutex_);
  const auto found = at(owner, id, now);
  if (found == entries_.end()) return false;
  drop(found, dropped);
  return true;
}

std::size_t ResponseStore::n_bytes() const {
  const MutexLock lock(mutex_);
  return n_bytes_;
}

std::size_t ResponseStore::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace baton
