/// How a matcher finds masks: walks over the vocabulary's tree that may stop and continue later.
#include <algorithm>
#include <bit>
#include <utility>

#include "core/check.h"
#include "grammar/match/matcher.h"

namespace baton::grammar {

namespace {

/// Findings of LocalTokens that may be begun at once. One more ends another, which begins again if it is needed.
constexpr std::size_t kMostLocalWorks = 256;

void set_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] |= std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32);
}

Configurations::Id step_unless_dead(Configurations& configurations, Configurations::Id id, unsigned char byte) {
  return id == Configurations::kDead ? id : configurations.step(id, byte);
}

void clear_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32));
}

}  // namespace

void Matcher::begin_walk(Walk& walk, std::uint32_t node, Id id) const {
  const TokenTrie::Node& first = vocabulary_->nodes()[node];
  walk.path.resize(static_cast<std::size_t>(kMaxTokenBytes) + 1);
  walk.path[first.depth] = id;
  walk.at = node + 1;
  walk.end = first.end;
}

/// Stops a walk: configurations may be collected until it continues.
void Matcher::hold(Walk& walk) {
  walk.is_stopped = true;
  for (std::size_t depth = 0; depth < vocabulary_->nodes()[walk.at].depth; ++depth)
    for (const std::vector<Id>* path : {&walk.path, &walk.twin_path})
      if (depth < path->size() && (*path)[depth] >= 0) configurations_.retain((*path)[depth]);
}

void Matcher::release(Walk& walk) {
  if (!std::exchange(walk.is_stopped, false)) return;
  for (std::size_t depth = 0; depth < vocabulary_->nodes()[walk.at].depth; ++depth)
    for (const std::vector<Id>* path : {&walk.path, &walk.twin_path})
      if (depth < path->size() && (*path)[depth] >= 0) configurations_.release((*path)[depth]);
}

/// Calls visit(node's number, node, configuration) for the nodes that the grammar allows, at least for one more than before.
template <class Visit>
bool Matcher::go_on(Walk& walk, const Visit& visit) {
  release(walk);
  const std::span<const TokenTrie::Node> nodes = vocabulary_->nodes();
  while (walk.at < walk.end) {
    const TokenTrie::Node& one = nodes[walk.at];
    configurations_.count(1);
    const Id next = configurations_.step(walk.path[one.depth - std::size_t{1}], one.byte);
    if (next == Configurations::kDead) {
      walk.at = one.end;
    } else {
      walk.path[one.depth] = next;
      visit(walk.at, one, next);
      ++walk.at;
    }
    if (is_out_of_steps() && walk.at < walk.end) {
      hold(walk);
      return false;
    }
  }
  return true;
}

bool Matcher::find_all(LocalWork& work) {
  return go_on(work.walk, [&](std::uint32_t at, const TokenTrie::Node& node, Id id) BATON_REQUIRES(mutex_) {
    for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(work.found.words, token);
    if (configurations_.is_complete(id) && node.end > at + 1) work.found.exits.push_back(at);
  });
}

/// Begins with what the twin allows and walks both, as far as they are not in one configuration and as texts are long
/// enough to tell them apart.
bool Matcher::find_differences(LocalWork& work) {
  release(work.walk);
  LocalTokens& local = work.found;
  const std::vector<std::uint32_t>& exits = work.base->exits;
  const std::span<const TokenTrie::Node> nodes = vocabulary_->nodes();
  for (std::uint32_t& at = work.walk.at; at < work.walk.end;) {
    const TokenTrie::Node& node = nodes[at];
    configurations_.count(1);
    const Id own = step_unless_dead(configurations_, work.walk.path[node.depth - std::size_t{1}], node.byte);
    const Id other = step_unless_dead(configurations_, work.walk.twin_path[node.depth - std::size_t{1}], node.byte);
    const bool is_same = node.deepest <= work.twin.n_bytes || configurations_.are_alike(own, other, node.deepest - node.depth);
    for (; work.n_kept < exits.size() && exits[work.n_kept] < (is_same ? node.end : at); ++work.n_kept)
      local.exits.push_back(exits[work.n_kept]);
    if (is_same) {
      at = node.end;
    } else {
      work.walk.path[node.depth] = own;
      work.walk.twin_path[node.depth] = other;
      for (const TokenId token : vocabulary_->tokens_of(node)) {
        if (own == Configurations::kDead)
          clear_bit(local.words, token);
        else
          set_bit(local.words, token);
      }
      if (work.n_kept < exits.size() && exits[work.n_kept] == at) ++work.n_kept;
      if (own != Configurations::kDead && configurations_.is_complete(own) && node.end > at + 1) local.exits.push_back(at);
      ++at;
    }
    if (is_out_of_steps() && at < work.walk.end) {
      hold(work.walk);
      return false;
    }
  }
  return true;
}

Matcher::LocalTokensPointer Matcher::keep(const Place& place, LocalTokens found) {
  std::size_t n_tokens = 0;
  for (const std::uint32_t word : found.words) n_tokens += static_cast<std::size_t>(std::popcount(word));
  if (n_tokens <= vocabulary_->n_words()) {
    found.few.reserve(n_tokens);
    for (std::size_t word = 0; word < found.words.size(); ++word)
      for (std::uint32_t bits = found.words[word]; bits != 0; bits &= bits - 1)
        found.few.push_back(static_cast<TokenId>(word * 32 + static_cast<std::size_t>(std::countr_zero(bits))));
    found.words = {};
  }
  found.exits.shrink_to_fit();
  local_bytes_ += found.n_bytes();
  return local_tokens_.emplace(place, std::make_shared<const LocalTokens>(std::move(found))).first->second;
}

/// The same state with a count far from its bounds; of such a one another state. Itself where there is none.
Matcher::PlaceTwin Matcher::twin(const Place& place) const {
  if (const CountedStates* counted = program_->counted(place.state); counted != nullptr)
    if (const auto other = counted->counter->twin(place.count)) return {{place.state, other->count}, other->n_bytes};
  const Program::Twin other = program_->twin(place.state);
  return {{other.state, place.count}, other.n_bytes};
}

Matcher::LocalTokensPointer Matcher::local_tokens(const Place& place) {
  const PlaceTwin twin = this->twin(place);
  const bool has_twin = twin.place != place;
  if (has_twin && twin.n_bytes >= kMaxTokenBytes) return local_tokens(twin.place);
  if (const auto known = local_tokens_.find(place); known != local_tokens_.end()) return known->second;
  auto at = local_works_.find(place);
  if (at == local_works_.end()) {
    LocalWork begun{.twin = twin, .base = {}, .n_kept = 0, .found = {}, .walk = {}};
    if (has_twin && (begun.base = local_tokens(twin.place)) == nullptr) return nullptr;
    if (has_twin) begun.found.words = begun.base->words;
    begun.found.words.resize(vocabulary_->n_words(), 0);
    if (has_twin)
      for (const TokenId token : begun.base->few) set_bit(begun.found.words, token);
    const Id alone = configurations_.alone(place.state, place.count);
    check(alone != Configurations::kDead, "a state without any text after it");
    begin_walk(begun.walk, 0, alone);
    if (has_twin) {
      begun.walk.twin_path.resize(begun.walk.path.size());
      begun.walk.twin_path[0] = configurations_.alone(twin.place.state, twin.place.count);
    }
    if (local_works_.size() >= kMostLocalWorks) {
      release(local_works_.begin()->second.walk);
      local_works_.erase(local_works_.begin());
    }
    at = local_works_.emplace(place, std::move(begun)).first;
  }
  LocalWork& work = at->second;
  if (!(has_twin ? find_differences(work) : find_all(work))) return nullptr;
  LocalTokens found = std::move(work.found);
  local_works_.erase(at);
  return keep(place, std::move(found));
}

void Matcher::drop_local_works() {
  for (auto& [place, work] : local_works_) release(work.walk);
  local_works_.clear();
}

/// Ends the works of a search that found no memory: their walks hold no configurations.
void Matcher::drop_interrupted_works() {
  if (!searched_) return;
  if (const auto work = mask_works_.find(*searched_); work != mask_works_.end()) drop(work);
  drop_local_works();
  searched_.reset();
}

/// The work on a configuration's mask, which begins if there is none.
Matcher::MaskWork& Matcher::mask_work(Id id) {
  if (const auto known = mask_works_.find(id); known != mask_works_.end()) return known->second;
  drop_unwanted_works();
  constexpr std::size_t kMostParts = 32;
  MaskWork& work = mask_works_[id];
  configurations_.retain(id);
  work.mask.assign(vocabulary_->n_words(), 0);
  if (configurations_.is_complete(id))
    for (const TokenId end : vocabulary_->ends()) set_bit(work.mask, end);
  const std::span<const Configurations::Item> items = configurations_.items(id);
  for (const Configurations::Item& item : items)
    for (const TokenEdge& edge : program_->tokens(item.state))
      set_bit(work.mask, special_tokens_[static_cast<std::size_t>(edge.token)]);
  // One walk of all together costs less than one for each of many.
  work.is_walking = items.size() > kMostParts;
  if (work.is_walking)
    begin_walk(work.walk, 0, id);
  else
    work.items.assign(items.begin(), items.end());
  return work;
}

void Matcher::drop(std::unordered_map<Id, MaskWork>::iterator work) {
  release(work->second.walk);
  configurations_.release(work->first);
  mask_works_.erase(work);
}

/// Ends works on configurations without another holder.
void Matcher::drop_unwanted_works() {
  for (auto at = mask_works_.begin(); at != mask_works_.end();) {
    const auto work = at++;
    release(work->second.walk);
    const bool is_wanted = configurations_.n_users(work->first) > 1;
    if (!is_wanted)
      drop(work);
    else if (work->second.is_walking)
      hold(work->second.walk);
  }
}

std::size_t Matcher::n_work_bytes() const {
  const std::size_t n_path_bytes = 2 * static_cast<std::size_t>(kMaxTokenBytes) * sizeof(Id);
  return (mask_works_.size() + local_works_.size()) * (n_path_bytes + vocabulary_->n_words() * sizeof(std::uint32_t));
}

/// Adds the tokens that leave the rule of the next item, whose own tokens are in the mask.
bool Matcher::add_exits(MaskWork& work, Configurations::StackId stack) {
  const std::vector<std::uint32_t>& exits = work.local->exits;
  if (exits.empty() || stack == 0) return true;
  const Id behind = configurations_.behind(stack);
  if (behind == Configurations::kDead || configurations_.items(behind).empty()) return true;
  while (work.n_exits < exits.size()) {
    if (!work.is_walking) begin_walk(work.walk, exits[work.n_exits], behind);
    work.is_walking = true;
    const bool is_done = go_on(work.walk, [&](std::uint32_t, const TokenTrie::Node& node, Id) {
      for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(work.mask, token);
    });
    if (!is_done) return false;
    work.is_walking = false;
    if (++work.n_exits < exits.size() && is_out_of_steps()) return false;
  }
  return true;
}

bool Matcher::add_items(MaskWork& work) {
  if (work.is_walking && work.items.empty())
    return go_on(work.walk, [&](std::uint32_t, const TokenTrie::Node& node, Id) {
      for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(work.mask, token);
    });
  while (work.n_items < work.items.size()) {
    const Configurations::Item item = work.items[work.n_items];
    if (work.local == nullptr) {
      if ((work.local = local_tokens({item.state, configurations_.count_of(item)})) == nullptr) return false;
      for (std::size_t word = 0; word < work.local->words.size(); ++word) work.mask[word] |= work.local->words[word];
      for (const TokenId token : work.local->few) set_bit(work.mask, token);
    }
    if (!add_exits(work, item.stack)) return false;
    work.local.reset();
    work.n_exits = 0;
    ++work.n_items;
  }
  return true;
}

/// The mask, or nothing if there is more work. If derivations have run out, a mask is worthless.
std::optional<std::vector<std::uint32_t>> Matcher::go_on_with_mask(Id id) {
  MaskWork& work = mask_work(id);
  configurations_.allow(work.n_derivations);
  const bool is_found = add_items(work);
  work.n_derivations = configurations_.n_allowed();
  if (!is_found && !configurations_.is_exhausted()) return std::nullopt;
  std::vector<std::uint32_t> mask = std::move(work.mask);
  drop(mask_works_.find(id));
  return mask;
}

}  // namespace baton::grammar
