/// Text work that waits, in a line for each tenant, and the service that each tenant has had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "engine/request/request.h"
#include "server/limits/budget.h"

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
  /// Of a tenant with a line.
  static Turn turn_of(const Account& account, std::int32_t tenant) {
    const Job& next = account.line.front();
    return {account.virtual_time + time_of(next.cost, next.tenant.weight), tenant};
  }

  std::map<std::int32_t, Account> accounts_;  ///< by tenant
  std::set<Turn> waiting_;                    ///< tenants with a line
  std::size_t n_jobs_ = 0;
  std::int64_t virtual_time_ = 0;  ///< of the tenant that was served last, when its job was popped
};

}  // namespace baton
