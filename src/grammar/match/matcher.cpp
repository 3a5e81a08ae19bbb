/// Masks over a vocabulary from a grammar's configurations.
#include "grammar/match/matcher.h"

#include <algorithm>

#include "core/check.h"

namespace baton::grammar {

namespace {

/// Bytes that are learned between two times of forgetting while work on masks continues.
constexpr std::size_t kLeastKeptBytes = std::size_t{64} << 10;
constexpr std::size_t kMostKeptBytes = std::size_t{4} << 20;

std::vector<TokenId> special_tokens_of(const Program& program, const TokenTrie& vocabulary) {
  std::vector<TokenId> tokens;
  for (const std::string& text : program.token_texts()) {
    const std::optional<TokenId> token = vocabulary.special_token(text);
    check(token.has_value(), "a grammar with a special token that the vocabulary does not have");
    tokens.push_back(*token);
  }
  return tokens;
}

/// The one byte that all items let follow, if there is one and no token.
std::optional<unsigned char> forced_byte(const Program& program, const Configurations& configurations,
                                         std::span<const Configurations::Item> items) {
  std::optional<unsigned char> only;
  for (const Configurations::Item& item : items) {
    if (!program.tokens(item.state).empty()) return std::nullopt;
    for (const ByteEdge& edge : program.bytes(item.state)) {
      if (!configurations.may_follow(item, edge)) continue;
      if (!only) only = edge.first;
      if (edge.first != *only || edge.last != *only) return std::nullopt;
    }
  }
  return only;
}

}  // namespace

MatcherState::MatcherState(const MatcherState& other) : matcher_(other.matcher_), id_(other.id_) {
  if (matcher_ != nullptr) matcher_->retain(id_);
}

MatcherState::~MatcherState() {
  if (matcher_ != nullptr) matcher_->release(id_);
}

Matcher::Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> vocabulary,
                 const MatcherLimits& limits, const std::shared_ptr<SharedBytes>& bytes)
    : program_(std::move(program)),
      vocabulary_(std::move(vocabulary)),
      limits_(limits),
      special_tokens_(special_tokens_of(*program_, *vocabulary_)),
      configurations_(*program_),
      fixed_bytes_(bytes),
      learned_bytes_(bytes) {
  fixed_bytes_.set(program_->n_bytes() + sizeof(*this));
}

void Matcher::retain(Id id) {
  const MutexLock lock(mutex_);
  configurations_.retain(id);
}

void Matcher::release(Id id) {
  const MutexLock lock(mutex_);
  configurations_.release(id);
}

void Matcher::forget_what_is_too_much() {
  configurations_.allow(kMostDerivations);
  learned_bytes_.set(n_learned_bytes());
  const bool are_all_too_large = learned_bytes_.is_too_large();
  const bool is_local_too_large = are_all_too_large || local_bytes_ > limits_.local_bytes;
  const bool are_masks_too_large = are_all_too_large || n_mask_bytes() > limits_.mask_bytes;
  const bool is_table_too_large = are_all_too_large || configurations_.n_bytes() > limits_.table_bytes;
  if (!is_local_too_large && !are_masks_too_large && !is_table_too_large) return;
  // Work that continues would find out again, without an end, what is forgotten at once.
  const std::size_t n_kept = std::clamp(limits_.table_bytes, kLeastKeptBytes, kMostKeptBytes);
  if (!mask_works_.empty() && n_learned_bytes() < n_left_bytes_ + n_kept) return;
  if (is_local_too_large) {
    local_tokens_.clear();
    local_bytes_ = 0;
  }
  if (are_masks_too_large) masks_.clear();
  if (is_table_too_large) {
    for (auto at = masks_.begin(); at != masks_.end();)
      at = configurations_.is_retained(at->first) ? std::next(at) : masks_.erase(at);
    configurations_.collect();
  }
  n_left_bytes_ = n_learned_bytes();
  learned_bytes_.set(n_left_bytes_);
}

MatcherState Matcher::start() {
  const MutexLock lock(mutex_);
  const Id id = configurations_.start();
  check(id != Configurations::kDead, "a program without any text");
  configurations_.retain(id);
  return {this, id};
}

bool Matcher::step_through(Id& id, std::string_view bytes) {
  Id at = id;
  for (const char byte : bytes) {
    at = configurations_.step(at, static_cast<unsigned char>(byte));
    if (at == Configurations::kDead) return false;
  }
  configurations_.retain(at);
  configurations_.release(id);
  id = at;
  return true;
}

void Matcher::begin_work(MatcherWork& work) {
  forget_what_is_too_much();
  stop_at_ = configurations_.n_steps() + work.n_left;
}

void Matcher::end_work(MatcherWork& work) { work.n_left = stop_at_ - configurations_.n_steps(); }

bool Matcher::accept(MatcherState& state, TokenId token) {
  AcceptProgress progress;
  MatcherWork work;
  return accept(state, token, progress, work) == Accepted::yes;
}

/// The configuration after a special token, or kDead.
Configurations::Id Matcher::next_of(Id id, TokenId special) {
  const auto at = std::find(special_tokens_.begin(), special_tokens_.end(), special);
  return configurations_.step_token(id, static_cast<std::int32_t>(at - special_tokens_.begin()));
}

Accepted Matcher::accept(MatcherState& state, TokenId token, AcceptProgress& progress, MatcherWork& work) {
  if (work.is_used_up()) return Accepted::not_yet;
  if (vocabulary_->is_end(token)) return is_complete(state) ? Accepted::yes : Accepted::no;
  const std::string_view bytes = vocabulary_->bytes_of(token);
  const bool is_special = std::find(special_tokens_.begin(), special_tokens_.end(), token) != special_tokens_.end();
  if (bytes.empty() && !is_special) return Accepted::no;
  if (progress.n_bytes == 0) progress.at = state;
  const auto end = [&](Accepted accepted) {
    if (accepted == Accepted::yes) std::swap(state, progress.at);
    progress = {};
    return accepted;
  };
  bool is_refused = false;
  {
    const MutexLock lock(mutex_);
    begin_work(work);
    Id at = progress.at.id_;
    for (bool is_first = true; !is_refused && progress.n_bytes < bytes.size() && (is_first || !is_out_of_steps());) {
      is_first = false;
      configurations_.count(1);
      const Id next = configurations_.step(at, static_cast<unsigned char>(bytes[progress.n_bytes]));
      is_refused = next == Configurations::kDead;
      if (is_refused) continue;
      at = next;
      ++progress.n_bytes;
    }
    if (is_special) is_refused = (at = next_of(at, token)) == Configurations::kDead;
    if (!is_refused) {
      configurations_.retain(at);
      configurations_.release(std::exchange(progress.at.id_, at));
    }
    end_work(work);
  }
  if (is_refused) return end(Accepted::no);
  return is_special || progress.n_bytes == bytes.size() ? end(Accepted::yes) : Accepted::not_yet;
}

bool Matcher::accept(MatcherState& state, std::string_view bytes) {
  const MutexLock lock(mutex_);
  forget_what_is_too_much();
  return step_through(state.id_, bytes);
}

bool Matcher::is_complete(const MatcherState& state) {
  const MutexLock lock(mutex_);
  return configurations_.is_complete(state.id_);
}

bool Matcher::has_overflowed() {
  const MutexLock lock(mutex_);
  return configurations_.has_overflowed();
}

bool Matcher::must_end(const MatcherState& state) {
  const MutexLock lock(mutex_);
  return configurations_.is_complete(state.id_) && configurations_.items(state.id_).empty();
}

bool Matcher::copy_known(Id id, std::span<std::uint32_t> mask) const {
  check(mask.size() == vocabulary_->n_words(), "a token mask of another vocabulary");
  const auto known = masks_.find(id);
  if (known == masks_.end()) return false;
  std::copy(known->second.begin(), known->second.end(), mask.begin());
  return true;
}

bool Matcher::copy_known_mask(const MatcherState& state, std::span<std::uint32_t> mask) {
  const MutexLock lock(mutex_);
  return copy_known(configurations_.representative(state.id_), mask);
}

Result<void> Matcher::mask(const MatcherState& state, std::span<std::uint32_t> mask) {
  MatcherWork work;
  BATON_TRY(const bool is_found, this->mask(state, mask, work));
  check(is_found, "a token mask is more work than there is time");
  return {};
}

Result<bool> Matcher::mask(const MatcherState& state, std::span<std::uint32_t> mask, MatcherWork& work) {
  const MutexLock lock(mutex_);
  const Id id = configurations_.representative(state.id_);  // held with the state
  if (copy_known(id, mask)) return true;
  if (work.is_used_up()) return false;
  drop_interrupted_works();
  begin_work(work);
  searched_ = id;
  std::optional<std::vector<std::uint32_t>> found = go_on_with_mask(id);
  searched_.reset();
  end_work(work);
  if (!found && !configurations_.is_exhausted()) return false;
  if (configurations_.is_exhausted()) {
    drop_local_works();  // what they and the last ones have found may be a part only
    local_tokens_.clear();
    local_bytes_ = 0;
    return fail(ErrorCode::too_large, "the grammar leaves too many derivations open here");
  }
  std::copy(found->begin(), found->end(), mask.begin());
  if (std::all_of(mask.begin(), mask.end(), [](std::uint32_t word) { return word == 0; })) {
    if (configurations_.has_overflowed()) return tl::unexpected<Error>(overflow());
    return fail(ErrorCode::unsupported, "the vocabulary has no token for what the grammar asks for here");
  }
  masks_.emplace(id, std::move(*found));
  return true;
}

/// The bytes that must follow; `id` continues after them.
std::string Matcher::forced_from(Id& id, std::size_t max_bytes) {
  std::string bytes;
  while (bytes.size() < max_bytes && !is_out_of_steps()) {
    configurations_.count(1);
    const std::span<const Configurations::Item> items = configurations_.items(id);
    if (items.empty() || configurations_.is_complete(id) || program_->bytes(items[0].state).empty()) break;
    const std::optional<unsigned char> only = forced_byte(*program_, configurations_, items);
    if (!only) break;
    const unsigned char byte = *only;
    const Id next = configurations_.step(id, byte);
    if (next == Configurations::kDead) break;
    id = next;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

/// The index of the special token that must follow, or -1.
std::int32_t Matcher::forced_token(Id id) const {
  const std::span<const Configurations::Item> items = configurations_.items(id);
  if (items.empty() || configurations_.is_complete(id) || program_->tokens(items[0].state).empty()) return -1;
  const std::int32_t token = program_->tokens(items[0].state)[0].token;
  const bool is_forced = std::all_of(items.begin(), items.end(), [&](const Configurations::Item& item) {
    const std::span<const TokenEdge> edges = program_->tokens(item.state);
    return program_->bytes(item.state).empty() &&
           std::all_of(edges.begin(), edges.end(), [&](const TokenEdge& edge) { return edge.token == token; });
  });
  return is_forced ? token : -1;
}

std::string Matcher::forced_bytes(const MatcherState& state, std::size_t max_bytes) {
  const MutexLock lock(mutex_);
  MatcherWork work;
  begin_work(work);
  Id id = state.id_;
  return forced_from(id, max_bytes);
}

std::vector<TokenId> Matcher::forced_tokens(const MatcherState& state, std::size_t max_tokens, const Encode& encode,
                                            MatcherWork& work) {
  std::vector<TokenId> tokens;
  MatcherState at = state;
  while (tokens.size() < max_tokens && !work.is_used_up()) {
    std::string bytes;
    bool is_cut = false;  // other bytes may follow
    std::int32_t special = -1;
    {
      const MutexLock lock(mutex_);
      begin_work(work);
      Id id = at.id_;
      bytes = forced_from(id, 16 * max_tokens);
      special = is_out_of_steps() ? -1 : forced_token(id);
      end_work(work);
      is_cut = special < 0 && !configurations_.items(id).empty();
      if (special >= 0) {
        const Id next = configurations_.step_token(id, special);
        if (next == Configurations::kDead) return tokens;
        configurations_.retain(next);
        configurations_.release(at.id_);
        at.id_ = next;
      }
    }
    if (!bytes.empty()) {
      std::vector<TokenId> more = encode(bytes);
      std::string spelled;
      for (const TokenId token : more) spelled += vocabulary_->bytes_of(token);
      if (spelled != bytes) break;
      if (is_cut) more.pop_back();
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    if (special < 0) break;
    tokens.push_back(special_tokens_[static_cast<std::size_t>(special)]);
  }
  if (tokens.size() > max_tokens) tokens.resize(max_tokens);
  return tokens;
}

std::size_t Matcher::n_bytes() {
  const MutexLock lock(mutex_);
  return program_->n_bytes() + n_learned_bytes();
}

}  // namespace baton::grammar
