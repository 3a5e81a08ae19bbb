/// Masks over a vocabulary from a grammar's configurations.
#include "grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "core/check.h"

namespace baton::grammar {

namespace {

void set_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] |= std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32);
}

void clear_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(std::uint32_t{1} << (static_cast<std::uint32_t>(token) % 32));
}

std::vector<TokenId> special_tokens_of(const Program& program, const TokenTrie& vocabulary) {
  std::vector<TokenId> tokens;
  for (const std::string& text : program.token_texts()) {
    const std::optional<TokenId> token = vocabulary.special_token(text);
    check(token.has_value(), "a grammar with a special token that the vocabulary does not have");
    tokens.push_back(*token);
  }
  return tokens;
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
      path_(static_cast<std::size_t>(kMaxTokenBytes) + 1),
      twin_path_(static_cast<std::size_t>(kMaxTokenBytes) + 1),
      fixed_bytes_(bytes),
      learned_bytes_(bytes) {
  fixed_bytes_.set(program_->n_bytes() + sizeof(*this) + (path_.size() + twin_path_.size()) * sizeof(Id));
}

void Matcher::retain(Id id) {
  const std::lock_guard lock(mutex_);
  configurations_.retain(id);
}

void Matcher::release(Id id) {
  const std::lock_guard lock(mutex_);
  configurations_.release(id);
}

void Matcher::forget_what_is_too_much() {
  configurations_.allow(kMostDerivations);
  learned_bytes_.set(n_learned_bytes());
  const bool are_all_too_large = learned_bytes_.is_too_large();
  if (are_all_too_large || local_bytes_ > limits_.local_bytes) {
    local_tokens_.clear();
    local_bytes_ = 0;
  }
  if (are_all_too_large || n_mask_bytes() > limits_.mask_bytes) masks_.clear();
  if (!are_all_too_large && configurations_.n_bytes() <= limits_.table_bytes) return;
  std::erase_if(masks_, [&](const auto& entry) { return !configurations_.is_retained(entry.first); });
  configurations_.collect();
  learned_bytes_.set(n_learned_bytes());
}

MatcherState Matcher::start() {
  const std::lock_guard lock(mutex_);
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

bool Matcher::accept(MatcherState& state, TokenId token) {
  if (vocabulary_->is_end(token)) return is_complete(state);
  const auto special = std::find(special_tokens_.begin(), special_tokens_.end(), token);
  if (special != special_tokens_.end()) {
    const std::lock_guard lock(mutex_);
    forget_what_is_too_much();
    const auto index = static_cast<std::int32_t>(special - special_tokens_.begin());
    const Id next = configurations_.step_token(state.id_, index);
    if (next == Configurations::kDead) return false;
    configurations_.retain(next);
    configurations_.release(state.id_);
    state.id_ = next;
    return true;
  }
  const std::string_view bytes = vocabulary_->bytes_of(token);
  return !bytes.empty() && accept(state, bytes);
}

bool Matcher::accept(MatcherState& state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  forget_what_is_too_much();
  return step_through(state.id_, bytes);
}

bool Matcher::is_complete(const MatcherState& state) {
  const std::lock_guard lock(mutex_);
  return configurations_.is_complete(state.id_);
}

bool Matcher::must_end(const MatcherState& state) {
  const std::lock_guard lock(mutex_);
  return configurations_.is_complete(state.id_) && configurations_.items(state.id_).empty();
}

template <class Visit>
void Matcher::walk(std::uint32_t node, Id id, const Visit& visit) {
  const std::span<const TokenTrie::Node> nodes = vocabulary_->nodes();
  path_[nodes[node].depth] = id;
  const std::uint32_t end = nodes[node].end;
  for (std::uint32_t at = node + 1; at < end;) {
    const TokenTrie::Node& one = nodes[at];
    const Id next = configurations_.step(path_[one.depth - std::size_t{1}], one.byte);
    if (next == Configurations::kDead) {
      at = one.end;
      continue;
    }
    path_[one.depth] = next;
    visit(at, one, next);
    ++at;
  }
}

void Matcher::find_all(StateId state, LocalTokens& local) {
  const Id alone = configurations_.alone(state);
  check(alone != Configurations::kDead, "a state without any text behind it");
  local.words.assign(vocabulary_->n_words(), 0);
  walk(0, alone, [&](std::uint32_t at, const TokenTrie::Node& node, Id id) {
    for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(local.words, token);
    if (configurations_.is_complete(id) && node.end > at + 1) local.exits.push_back(at);
  });
}

/// Begins with what the twin allows and walks both, as far as they are not in one configuration and as texts are long
/// enough to tell them apart.
void Matcher::find_differences(StateId state, Program::Twin twin, LocalTokens& local) {
  const LocalTokens& base = local_tokens(twin.state);
  local.words = base.words;
  if (local.words.empty()) {
    local.words.assign(vocabulary_->n_words(), 0);
    for (const TokenId token : base.few) set_bit(local.words, token);
  }
  path_[0] = configurations_.alone(state);
  twin_path_[0] = configurations_.alone(twin.state);
  const std::span<const TokenTrie::Node> nodes = vocabulary_->nodes();
  const auto step = [&](Id id, unsigned char byte) {
    return id == Configurations::kDead ? id : configurations_.step(id, byte);
  };
  std::size_t n_kept = 0;  // of the twin's exits
  for (std::uint32_t at = 1; at < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    const Id own = step(path_[node.depth - std::size_t{1}], node.byte);
    const Id other = step(twin_path_[node.depth - std::size_t{1}], node.byte);
    const bool is_same = own == other || node.deepest <= twin.n_bytes;
    for (; n_kept < base.exits.size() && base.exits[n_kept] < (is_same ? node.end : at); ++n_kept)
      local.exits.push_back(base.exits[n_kept]);
    if (is_same) {
      at = node.end;
      continue;
    }
    path_[node.depth] = own;
    twin_path_[node.depth] = other;
    for (const TokenId token : vocabulary_->tokens_of(node)) {
      if (own == Configurations::kDead)
        clear_bit(local.words, token);
      else
        set_bit(local.words, token);
    }
    if (n_kept < base.exits.size() && base.exits[n_kept] == at) ++n_kept;
    if (own != Configurations::kDead && configurations_.is_complete(own) && node.end > at + 1) local.exits.push_back(at);
    ++at;
  }
}

const Matcher::LocalTokens& Matcher::local_tokens(StateId state) {
  const Program::Twin twin = program_->twin(state);
  if (twin.state != state && twin.n_bytes >= kMaxTokenBytes) return local_tokens(twin.state);
  if (const auto known = local_tokens_.find(state); known != local_tokens_.end()) return known->second;
  LocalTokens local;
  if (twin.state == state)
    find_all(state, local);
  else
    find_differences(state, twin, local);
  std::size_t n_tokens = 0;
  for (const std::uint32_t word : local.words) n_tokens += static_cast<std::size_t>(std::popcount(word));
  if (n_tokens <= vocabulary_->n_words()) {
    local.few.reserve(n_tokens);
    for (std::size_t word = 0; word < local.words.size(); ++word)
      for (std::uint32_t bits = local.words[word]; bits != 0; bits &= bits - 1)
        local.few.push_back(static_cast<TokenId>(word * 32 + static_cast<std::size_t>(std::countr_zero(bits))));
    local.words = {};
  }
  local.exits.shrink_to_fit();
  local_bytes_ += local.n_bytes();
  return local_tokens_.emplace(state, std::move(local)).first->second;
}

void Matcher::add_items(Id id, std::span<std::uint32_t> mask) {
  constexpr std::size_t kMostParts = 32;
  const std::span<const Configurations::Item> items = configurations_.items(id);
  for (const Configurations::Item& item : items)
    for (const TokenEdge& edge : program_->tokens(item.state))
      set_bit(mask, special_tokens_[static_cast<std::size_t>(edge.token)]);
  if (items.size() > kMostParts) {  // one walk of all together costs less than one for each
    walk(0, id, [&](std::uint32_t, const TokenTrie::Node& node, Id) {
      for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(mask, token);
    });
    return;
  }
  // The walks below make configurations, which moves the lists of items.
  const std::vector<Configurations::Item> copy(items.begin(), items.end());
  for (const Configurations::Item& item : copy) {
    const LocalTokens& local = local_tokens(item.state);
    for (std::size_t word = 0; word < local.words.size(); ++word) mask[word] |= local.words[word];
    for (const TokenId token : local.few) set_bit(mask, token);
    if (local.exits.empty() || item.stack == 0) continue;
    const Id behind = configurations_.behind(item.stack);
    if (behind == Configurations::kDead || configurations_.items(behind).empty()) continue;
    for (const std::uint32_t exit : local.exits)
      walk(exit, behind, [&](std::uint32_t, const TokenTrie::Node& node, Id) {
        for (const TokenId token : vocabulary_->tokens_of(node)) set_bit(mask, token);
      });
  }
}

bool Matcher::copy_known(Id id, std::span<std::uint32_t> mask) const {
  check(mask.size() == vocabulary_->n_words(), "a token mask of another vocabulary");
  const auto known = masks_.find(id);
  if (known == masks_.end()) return false;
  std::copy(known->second.begin(), known->second.end(), mask.begin());
  return true;
}

bool Matcher::copy_known_mask(const MatcherState& state, std::span<std::uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  return copy_known(state.id_, mask);
}

Result<void> Matcher::mask(const MatcherState& state, std::span<std::uint32_t> mask) {
  const std::lock_guard lock(mutex_);
  if (copy_known(state.id_, mask)) return {};
  forget_what_is_too_much();
  std::fill(mask.begin(), mask.end(), 0);
  if (configurations_.is_complete(state.id_))
    for (const TokenId end : vocabulary_->ends()) set_bit(mask, end);
  add_items(state.id_, mask);
  if (configurations_.is_exhausted()) {
    local_tokens_.clear();  // one of them may be a part only
    local_bytes_ = 0;
    return fail(ErrorCode::too_large, "the grammar leaves too many derivations open here");
  }
  if (std::all_of(mask.begin(), mask.end(), [](std::uint32_t word) { return word == 0; })) {
    if (configurations_.has_overflowed())
      return fail(ErrorCode::too_large, "the grammar is nested too deep here, or leaves too many derivations open");
    return fail(ErrorCode::unsupported, "the vocabulary has no token for what the grammar asks for here");
  }
  masks_.emplace(state.id_, std::vector<std::uint32_t>(mask.begin(), mask.end()));
  return {};
}

/// The bytes that must follow; `id` goes on behind them.
std::string Matcher::forced_from(Id& id, std::size_t max_bytes) {
  std::string bytes;
  while (bytes.size() < max_bytes) {
    const std::span<const Configurations::Item> items = configurations_.items(id);
    if (items.empty() || configurations_.is_complete(id) || program_->bytes(items[0].state).empty()) break;
    const unsigned char byte = program_->bytes(items[0].state)[0].first;
    const bool is_forced = std::all_of(items.begin(), items.end(), [&](const Configurations::Item& item) {
      const std::span<const ByteEdge> edges = program_->bytes(item.state);
      return program_->tokens(item.state).empty() && std::all_of(edges.begin(), edges.end(), [&](const ByteEdge& edge) {
               return edge.first == byte && edge.last == byte;
             });
    });
    if (!is_forced) break;
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
  const std::lock_guard lock(mutex_);
  forget_what_is_too_much();
  Id id = state.id_;
  return forced_from(id, max_bytes);
}

std::vector<TokenId> Matcher::forced_tokens(const MatcherState& state, std::size_t max_tokens, const Encode& encode) {
  std::vector<TokenId> tokens;
  MatcherState at = state;
  while (tokens.size() < max_tokens) {
    std::string bytes;
    bool is_cut = false;  // other bytes may follow
    std::int32_t special = -1;
    {
      const std::lock_guard lock(mutex_);
      forget_what_is_too_much();
      Id id = at.id_;
      bytes = forced_from(id, 16 * max_tokens);
      special = forced_token(id);
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
  const std::lock_guard lock(mutex_);
  return program_->n_bytes() + n_learned_bytes();
}

}  // namespace baton::grammar
