/// Lines, and virtual times of tenants.
#include "server/limits/tenant_lines.h"

#include <algorithm>

#include "core/check.h"

namespace baton {

void TenantLines::push(Job job) {
  const Tenant tenant = job.tenant;
  check(tenant.weight >= 1 && tenant.weight <= kMaxTenantWeight, "TenantLines: a tenant's weight is out of range");
  std::list<Job> added;
  added.push_back(std::move(job));
  Account& account = accounts_[tenant.id];
  if (account.line.empty()) {
    account.virtual_time = std::max(account.virtual_time, virtual_time_);
    waiting_.emplace(account.virtual_time + time_of(added.front().cost, tenant.weight), tenant.id);
  }
  account.line.splice(account.line.end(), added);
  ++n_jobs_;
}

TenantLines::Job TenantLines::pop() {
  check(!waiting_.empty(), "TenantLines: no job waits");
  auto turn = waiting_.extract(waiting_.begin());
  Account& account = accounts_.at(turn.value().second);
  virtual_time_ = std::max(virtual_time_, account.virtual_time);
  Job job = std::move(account.line.front());
  account.line.pop_front();
  --n_jobs_;
  account.virtual_time += time_of(job.cost, job.tenant.weight);
  if (account.line.empty()) return job;
  turn.value() = turn_of(account, job.tenant.id);
  waiting_.insert(std::move(turn));
  return job;
}

void TenantLines::correct(const Tenant& tenant, std::int64_t more) {
  Account& account = accounts_.at(tenant.id);
  auto turn = account.line.empty() ? decltype(waiting_)::node_type() : waiting_.extract(turn_of(account, tenant.id));
  account.virtual_time += time_of(more, tenant.weight);
  if (turn.empty()) return;
  turn.value() = turn_of(account, tenant.id);
  waiting_.insert(std::move(turn));
}

std::list<TenantLines::Job> TenantLines::take_all() {
  std::list<Job> all;
  for (auto& [id, account] : accounts_) all.splice(all.end(), account.line);
  waiting_.clear();
  n_jobs_ = 0;
  return all;
}

}  // namespace baton
