/// Configurations of a grammar's program, and the steps between them.
#include "grammar/automaton/configurations.h"

#include <algorithm>

namespace baton::grammar {

namespace {

std::size_t hash_of(const std::vector<Configurations::Item>& items, std::size_t seed) {
  std::size_t hash = seed + items.size();
  for (const Configurations::Item& item : items) {
    hash = (hash ^ static_cast<std::uint32_t>(item.state)) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ static_cast<std::uint32_t>(item.stack) ^ (hash >> 31)) * 0xBF58476D1CE4E5B9u;
  }
  return hash;
}

}  // namespace

Configurations::Configurations(const Program& program) : program_(program) {
  stacks_.push_back({.callers = {{kRootEnds, -1}}, .is_used = true});
  stack_of_hash_.emplace(hash_of(stacks_[0].callers, 0), 0);
}

void Configurations::begin_closure() {
  found_.clear();
  pending_.clear();
  visited_.clear();
  n_visited_ = 0;
  n_callers_ = 0;
  n_lookups_ = 0;
  root_ended_ = false;
}

Configurations::Id Configurations::start() {
  // A call of the root from the bottom: it does not return before a byte, so that the empty text is looked at here.
  kernel_.clear();
  begin_closure();
  root_ended_ = program_.root_matches_empty();
  visit({program_.start(program_.root()), 0}, false);
  return close();
}

Configurations::Id Configurations::alone(StateId state, LengthCounter::Count count) {
  kernel_.assign(1, {state, with_count(0, count)});
  begin_closure();
  return close();
}

Configurations::Id Configurations::behind(StackId stack) {
  const auto i = static_cast<std::size_t>(stack);
  if (stacks_[i].behind != kUnknown) return stacks_[i].behind;
  begin_closure();
  kernel_.clear();
  for (const Item& caller : stacks_[i].callers) {
    if (caller.state == kRootEnds)
      root_ended_ = true;
    else
      kernel_.push_back(caller);
  }
  const Id id = close();
  return stacks_[i].behind = id;
}

/// `symbol`: a class of bytes, or after these a special token.
Configurations::Id Configurations::make_step(Id id, int symbol) {
  const int n_classes = program_.n_classes();
  if (Configuration& from = configurations_[static_cast<std::size_t>(id)]; from.next.empty()) {
    from.next.assign(static_cast<std::size_t>(n_classes) + program_.token_texts().size(), kUnknown);
    n_bytes_ += from.next.size() * sizeof(Id);
  }
  if (n_allowed_ < 0) {
    is_exhausted_ = true;
    return kDead;
  }
  n_allowed_ -= 1 + static_cast<std::int64_t>(items(id).size());
  n_steps_ += 1 + static_cast<std::int64_t>(items(id).size());
  kernel_.clear();
  for (const Item& item : items(id)) {
    if (symbol >= n_classes) {
      for (const TokenEdge& edge : program_.tokens(item.state))
        if (edge.token == symbol - n_classes) kernel_.push_back({edge.target, item.stack});
      continue;
    }
    const unsigned char byte = program_.byte_of(symbol);
    for (const ByteEdge& edge : program_.bytes(item.state)) {
      if (byte < edge.first || edge.last < byte || !may_follow(item, edge)) continue;
      kernel_.push_back({edge.target, stack_behind(item, edge)});
    }
  }
  Id target = kDead;
  if (!kernel_.empty()) {
    begin_closure();
    target = close();
    n_allowed_ -= static_cast<std::int64_t>(n_visited_);
  }
  configurations_[static_cast<std::size_t>(id)].next[static_cast<std::size_t>(symbol)] = target;
  return target;
}

bool Configurations::may_follow(const Item& item, const ByteEdge& edge) const {
  const CountedStates* counted = program_.counted(item.state);
  if (counted == nullptr) return true;
  const LengthCounter::Count count = count_of(item);
  return counted->counter->allows(static_cast<std::size_t>(edge.target - counted->first),
                                  edge.counts ? counted->counter->next(count) : count);
}

/// The stack of a derivation after an edge.
Configurations::StackId Configurations::stack_behind(const Item& item, const ByteEdge& edge) {
  if (!edge.counts) return item.stack;
  const StackId known = stacks_[static_cast<std::size_t>(item.stack)].longer;
  if (known != kUnknown) return known;
  const StackId longer = with_count(item.stack, program_.counted(item.state)->counter->next(count_of(item)));
  return stacks_[static_cast<std::size_t>(item.stack)].longer = longer;
}

/// The same stack with another count.
Configurations::StackId Configurations::with_count(StackId stack, LengthCounter::Count count) {
  const Stack& one = stacks_[static_cast<std::size_t>(stack)];
  return one.count == count ? stack : intern_stack(std::vector<Item>(one.callers), count);
}

Configurations::Id Configurations::representative(Id id) {
  if (!program_.has_counters()) return id;
  if (at(id).representative != kUnknown) return at(id).representative;
  std::vector<Item> items = at(id).items;
  bool is_other = false;
  for (Item& item : items) {
    const CountedStates* counted = program_.counted(item.state);
    if (counted == nullptr) continue;
    const StackId stack = with_count(item.stack, counted->counter->representative(count_of(item)));
    is_other = is_other || stack != item.stack;
    item.stack = stack;
  }
  Id found = id;
  if (is_other) {
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    found_ = std::move(items);
    found = intern(at(id).is_complete);
  }
  // A holder of this one holds the other from now on.
  const std::int32_t n_users = at(id).n_users;
  configurations_[static_cast<std::size_t>(id)].representative = found;
  if (found != id) configurations_[static_cast<std::size_t>(found)].n_users += n_users;
  configurations_[static_cast<std::size_t>(found)].representative = found;
  return found;
}

bool Configurations::are_alike(Id a, Id b, std::int32_t n_bytes) const {
  if (a == b) return true;
  if (a == kDead || b == kDead || at(a).is_complete != at(b).is_complete || at(a).items.size() != at(b).items.size())
    return false;
  return std::equal(at(a).items.begin(), at(a).items.end(), at(b).items.begin(), [&](const Item& one, const Item& other) {
    if (one == other) return true;
    const CountedStates* counted = program_.counted(one.state);
    return one.state == other.state && counted != nullptr &&
           counted->counter->are_alike(count_of(one), count_of(other), n_bytes) &&
           stacks_[static_cast<std::size_t>(one.stack)].callers == stacks_[static_cast<std::size_t>(other.stack)].callers;
  });
}

void Configurations::add_call(const CallEdge& call, StackId stack) {
  const std::int32_t rank = program_.rank(call.rule);
  auto place =
      std::lower_bound(pending_.begin(), pending_.end(), rank, [](const Call& a, std::int32_t b) { return a.rank > b; });
  if (place == pending_.end() || place->rank != rank) place = pending_.insert(place, {rank, call.rule, {}});
  if (program_.is_tail(call.target)) {  // nothing is left to do there: return to where its own rule returns
    const std::vector<Item>& callers = stacks_[static_cast<std::size_t>(stack)].callers;
    place->callers.insert(place->callers.end(), callers.begin(), callers.end());
    n_callers_ += callers.size();
  } else {
    place->callers.push_back({call.target, stack});
    ++n_callers_;
  }
}

/// Whether this closure finds `state` with that stack for the first time.
bool Configurations::enter(StateId state, StackId stack) {
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 | static_cast<std::uint32_t>(stack);
  return visited_.insert(key).second;
}

void Configurations::visit(Item item, bool may_return) {
  std::vector<Item> work{item};
  while (!work.empty() && !is_too_much()) {
    const Item from = work.back();
    work.pop_back();
    if (!program_.has_short_closure(from.state) && !enter(~from.state, from.stack)) continue;
    const std::span<const StateId> closure = program_.closure(from.state);
    n_steps_ += static_cast<std::int64_t>(closure.size());
    n_lookups_ += static_cast<std::int64_t>(closure.size());
    for (const StateId state : closure) {
      if (state < 0) {
        work.push_back({~state, from.stack});
        continue;
      }
      if (!enter(state, from.stack)) continue;
      ++n_visited_;
      if (is_too_much()) return;  // close() refuses it
      if (!program_.bytes(state).empty() || !program_.tokens(state).empty()) found_.push_back({state, from.stack});
      for (const CallEdge& call : program_.calls(state)) add_call(call, from.stack);
      if (!program_.is_final(state) || !may_return || !enter(kReturned, from.stack)) continue;
      for (const Item& caller : stacks_[static_cast<std::size_t>(from.stack)].callers) {
        if (caller.state == kRootEnds)
          root_ended_ = true;
        else
          work.push_back(caller);
      }
    }
  }
}

Configurations::Id Configurations::close() {
  for (const Item& item : kernel_) visit(item, true);
  // A rule calls at its begin only rules of higher rank, so when the lowest is taken all its callers are known. What
  // is called here cannot return here: empty edges pass by rules that match the empty text.
  while (!pending_.empty() && !is_too_much()) {
    Call call = std::move(pending_.back());
    pending_.pop_back();
    const StackId stack = intern_stack(std::move(call.callers));
    if (stack < 0) continue;
    visit({program_.start(call.rule), stack}, false);
  }
  if (is_too_much()) {
    has_overflowed_ = true;
    return kDead;
  }
  if (found_.empty() && !root_ended_) return kDead;
  std::sort(found_.begin(), found_.end());
  return intern(root_ended_);
}

Configurations::StackId Configurations::intern_stack(std::vector<Item> callers, LengthCounter::Count count) {
  std::sort(callers.begin(), callers.end());
  callers.erase(std::unique(callers.begin(), callers.end()), callers.end());
  const std::size_t hash = hash_of(callers, static_cast<std::size_t>(count));
  const auto [first, last] = stack_of_hash_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const Stack& one = stacks_[static_cast<std::size_t>(known->second)];
    if (one.count == count && one.callers == callers) return known->second;
  }
  std::int32_t depth = 0;
  for (const Item& caller : callers)
    if (caller.state != kRootEnds) depth = std::max(depth, stacks_[static_cast<std::size_t>(caller.stack)].depth + 1);
  if (depth > kMaxDepth) {
    has_overflowed_ = true;
    return -1;
  }
  StackId id = static_cast<StackId>(stacks_.size());
  if (free_stacks_.empty()) {
    stacks_.emplace_back();
  } else {
    id = free_stacks_.back();
    free_stacks_.pop_back();
  }
  n_bytes_ += sizeof(Stack) + callers.size() * sizeof(Item) + 64;
  stacks_[static_cast<std::size_t>(id)] = {
      .callers = std::move(callers), .count = count, .depth = depth, .behind = kUnknown, .longer = kUnknown, .is_used = true};
  stack_of_hash_.emplace(hash, id);
  return id;
}

Configurations::Id Configurations::intern(bool is_complete) {
  const std::size_t hash = hash_of(found_, is_complete ? 1 : 0);
  const auto [first, last] = configuration_of_hash_.equal_range(hash);
  for (auto known = first; known != last; ++known)
    if (at(known->second).items == found_ && at(known->second).is_complete == is_complete) return known->second;
  Id id = static_cast<Id>(configurations_.size());
  if (free_configurations_.empty()) {
    configurations_.emplace_back();
  } else {
    id = free_configurations_.back();
    free_configurations_.pop_back();
  }
  n_bytes_ += sizeof(Configuration) + found_.size() * sizeof(Item) + 64;
  Configuration& made = configurations_[static_cast<std::size_t>(id)];
  made = {.items = found_, .next = {}, .representative = kUnknown, .is_complete = is_complete, .is_used = true, .n_users = 0};
  configuration_of_hash_.emplace(hash, id);
  return id;
}

void Configurations::collect() {
  std::vector<bool> is_reached(stacks_.size(), false);
  is_reached[0] = true;
  std::vector<StackId> work;
  const auto reach = [&](StackId stack) {
    if (stack < 0 || is_reached[static_cast<std::size_t>(stack)]) return;
    is_reached[static_cast<std::size_t>(stack)] = true;
    work.push_back(stack);
  };
  n_bytes_ = 0;
  configuration_of_hash_.clear();
  stack_of_hash_.clear();
  for (std::size_t i = 0; i < configurations_.size(); ++i) {
    Configuration& one = configurations_[i];
    if (!one.is_used) continue;
    one.next = {};
    if (one.n_users == 0) {
      one = {};
      free_configurations_.push_back(static_cast<Id>(i));
      continue;
    }
    n_bytes_ += sizeof(Configuration) + one.items.size() * sizeof(Item) + 64;
    configuration_of_hash_.emplace(hash_of(one.items, one.is_complete ? 1 : 0), static_cast<Id>(i));
    for (const Item& item : one.items) reach(item.stack);
  }
  while (!work.empty()) {
    const StackId stack = work.back();
    work.pop_back();
    for (const Item& caller : stacks_[static_cast<std::size_t>(stack)].callers) reach(caller.stack);
  }
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    Stack& one = stacks_[i];
    if (!one.is_used) continue;
    one.behind = one.longer = kUnknown;
    if (!is_reached[i]) {
      one = {};
      free_stacks_.push_back(static_cast<StackId>(i));
      continue;
    }
    n_bytes_ += sizeof(Stack) + one.callers.size() * sizeof(Item) + 64;
    stack_of_hash_.emplace(hash_of(one.callers, static_cast<std::size_t>(one.count)), static_cast<StackId>(i));
  }
}

}  // namespace baton::grammar
