/// Runs text work (parsing, templates, tokenizers, stored answers) on threads of its own, fairly among tenants.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"
#include "engine/request/request.h"
#include "server/limits/budget.h"
#include "server/limits/thread_watch.h"

namespace baton {

/// Shares out a thread pool's time among tenants in proportion to their weights, as FairQueue shares out the engine's.
///
/// A tenant's virtual time is what its jobs have cost, divided by its weight. Of the tenants that wait, the one whose next
/// job would end at the earliest virtual time, by the estimate of its cost, is next: among tenants that have had the same, small
/// jobs do not wait for large ones. The jobs of one tenant are in the order of arrival. A tenant that begins to wait has at least
/// the virtual time at which the job that was served last began, so it has no credit from a time in which it asked for nothing.
/// Source: fair queueing by finish times (Demers, Keshav and Shenker, 1989) with the virtual time of start-time fair queueing
/// (Goyal, Vin and Cheng, 1996).
///
/// Thread: one at a time. Complexity: O(log tenants) for each call. If `push` throws, nothing was added.
class TenantLines {
 public:
  struct Job {
    Tenant tenant = {};
    std::int64_t cost = 1;  ///< an estimate, which `correct` corrects
    std::function<void()> work = {};
    std::function<void(std::string_view why)> refuse = {};  ///< tells its sender that it is not done
    BudgetShare place = {};
  };

  bool is_empty() const { return waiting_.empty(); }
  std::size_t size() const { return n_jobs_; }
  void push(Job job);
  /// Removes the next job, and charges its cost to its tenant. There must be one.
  Job pop();
  /// A job of this tenant, which was popped, has cost so much more than its estimate, or less if negative.
  void correct(const Tenant& tenant, std::int64_t more);
  /// Removes all jobs.
  std::list<Job> take_all();

 private:
  struct Account {
    std::int64_t virtual_time = 0;  ///< cost x kMaxTenantWeight / weight
    std::list<Job> line;
  };
  using Turn = std::pair<std::int64_t, std::int32_t>;  ///< virtual time at which the tenant's next job would end, tenant
  static std::int64_t time_of(std::int64_t cost, std::int32_t weight) { return cost * kMaxTenantWeight / weight; }
  static Turn turn_of(const Account& account, std::int32_t tenant) {
    const Job& next = account.line.front();
    return {account.virtual_time + time_of(next.cost, next.tenant.weight), tenant};
  }

  std::map<std::int32_t, Account> accounts_;  ///< by tenant
  std::set<Turn> waiting_;                    ///< tenants with a line
  std::size_t n_jobs_ = 0;
  std::int64_t virtual_time_ = 0;  ///< of the tenant that was served last, when its job was popped
};

/// Three kinds of work, of which none waits for another one: short work has a pool of threads, as many as the processor's
/// cores allow; long work has one thread, which does short work when there is no long one and all of the pool is busy; pages
/// (what is listed or shown) have one thread.
///
/// Work of each kind waits in a line for each tenant. Tenants are served by weight (see TenantLines); a piece of work costs
/// the processor's time that it takes a thread, however long the thread waits meanwhile. What waits is bounded by a budget, of which long work takes more; a tenant of a key may
/// have at most three times what is left for the others, so that no key fills it alone.
///
/// A connection's requests come one after another, each after the answer to the last. So they keep their order, whichever
/// threads work on them.
///
/// Thread: any for `push`; `stop` and destruction belong to the owner. Lock order: `mutex_` is taken last; no work runs under it.
class TextQueue {
 public:
  /// Work on more text than this is long.
  static constexpr std::size_t kLongBytes = 64 << 10;
  /// Threads for short work on a machine with so many cores. The rest is for the engine, connections and answers.
  static int n_short_threads_for(int n_cores);

  enum class Kind { text, page };
  struct Work {
    Kind kind = Kind::text;
    Tenant tenant = {};
    std::size_t n_bytes = 0;  ///< about so much text is worked on
    std::function<void()> run;
    /// Runs in its place if the queue stops first, and after it if it found no memory, until it finds some itself.
    std::function<void(std::string_view why)> refuse = {};
  };
  static constexpr std::string_view kStopping = "the server is shutting down";
  static constexpr std::string_view kNoMemory = "this server has no memory left for the request";

  /// The processor's time of the calling thread.
  using ThreadTime = std::function<std::chrono::nanoseconds()>;
  /// Budget and watch must outlive it.
  TextQueue(Budget& places, ThreadWatch& watch, int n_short_threads, ThreadTime thread_time);
  ~TextQueue() { stop(); }

  /// Queues work. False if there is no place; it does not run then.
  bool push(Work work);
  /// Drops what has not begun, and waits for what has. Idempotent.
  void stop();
  /// Whether `stop` was called: work that is running ends early then. Takes no lock.
  bool is_stopping() const { return is_stopping_.load(std::memory_order_relaxed); }

 private:
  using Job = TenantLines::Job;
  enum class Role { brief, lengthy, pages };
  void start_thread(Role role, const char* name);
  bool has_place_for(const Tenant& tenant, std::int64_t n_places) const BATON_REQUIRES(mutex_);
  void wake_one(const TenantLines& line) BATON_REQUIRES(mutex_);
  void run(Role role, ThreadWatch::Place& place, MemoryReserve& reserve);
  TenantLines* next_line(Role role) BATON_REQUIRES(mutex_);
  void begin(Job& job) BATON_REQUIRES(mutex_);

  Budget& places_;
  ThreadWatch& watch_;
  const ThreadTime thread_time_;
  std::atomic<bool> is_stopping_ = false;  // changes under the mutex
  Mutex mutex_;
  Condition short_came_, long_came_, page_came_;
  TenantLines short_ BATON_GUARDED_BY(mutex_), long_ BATON_GUARDED_BY(mutex_), pages_ BATON_GUARDED_BY(mutex_);
  int n_idle_ BATON_GUARDED_BY(mutex_) = 0;                                  // threads of the pool that wait
  std::map<std::int32_t, std::int64_t> places_of_ BATON_GUARDED_BY(mutex_);  // what waits, by tenant
  std::vector<std::thread> threads_;                                         // the owner's
};

}  // namespace baton
