/// Which tokens a grammar allows next: the seam between grammars and the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/limits/shared_bytes.h"
#include "core/mutex.h"
#include "core/result.h"
#include "grammar/automaton/configurations.h"
#include "grammar/automaton/program.h"
#include "grammar/match/token_trie.h"

namespace baton::grammar {

class Matcher;

/// Where one sequence stands in a grammar: a number that its matcher knows. Copies are cheap, for n > 1 and for taking
/// drafts back. Must not outlive its matcher. Thread: one at a time; copies are independent.
class MatcherState {
 public:
  MatcherState() = default;
  MatcherState(const MatcherState& other);
  MatcherState(MatcherState&& other) noexcept
      : matcher_(std::exchange(other.matcher_, nullptr)), id_(std::exchange(other.id_, -1)) {}
  MatcherState& operator=(MatcherState other) noexcept {
    std::swap(matcher_, other.matcher_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~MatcherState();

  /// Equal places of one matcher are equal, and have one number while such a state exists.
  bool operator==(const MatcherState&) const = default;
  std::int64_t number() const { return static_cast<std::int64_t>(id_); }

 private:
  friend class Matcher;
  /// `id` was retained for it.
  MatcherState(Matcher* matcher, Configurations::Id id) : matcher_(matcher), id_(id) {}

  Matcher* matcher_ = nullptr;
  Configurations::Id id_ = -1;
};

/// Work that calls of a matcher may still do, in steps: a node of the vocabulary's tree, or a state that is looked at; some
/// 20 to 100 ns each. A call begins only with steps left, passes their number by one step between configurations at most,
/// and stops then.
struct MatcherWork {
  std::int64_t n_left = std::numeric_limits<std::int64_t>::max() / 2;
  bool is_used_up() const { return n_left <= 0; }
};

enum class Accepted { no, yes, not_yet };

/// How far a state has come after a token that it is advancing over.
struct AcceptProgress {
  MatcherState at = {};
  std::size_t n_bytes = 0;
};

/// Bytes that a matcher keeps of what it has found out. Whatever is over the limit is forgotten and found out again.
struct MatcherLimits {
  std::size_t table_bytes = std::size_t{32} << 20;  ///< transitions between configurations
  std::size_t local_bytes = std::size_t{64} << 20;  ///< tokens that stay inside the rule where they begin
  std::size_t mask_bytes = std::size_t{32} << 20;   ///< finished masks
};

/// A grammar over a vocabulary, shared by all its sequences. A token is allowed if the grammar has a text that begins
/// with what was accepted and the token's bytes; the tokens that end a text are allowed exactly where it is complete.
/// Of a state, the tokens that stay inside the rule where they begin are found out once, whatever the stack is; the
/// few that leave it are walked for each stack. Thread: any; one call at a time continues, the others wait.
class Matcher {
 public:
  /// Derivations that one call may look at, beside what is known already: about half a second of work.
  static constexpr std::int64_t kMostDerivations = std::int64_t{1} << 22;

  /// The vocabulary has all special tokens that the program names. With `bytes`, its memory is counted there. While all
  /// that is counted there is too much, it forgets too, unless it has little itself.
  Matcher(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> vocabulary, const MatcherLimits& limits = {},
          const std::shared_ptr<SharedBytes>& bytes = {});
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  MatcherState start();
  /// Continues after `token` and returns true; false if the grammar does not allow it, and the state stays. A token
  /// that ends a text is allowed where it is complete and changes nothing.
  bool accept(MatcherState& state, TokenId token);
  /// The same of bytes.
  bool accept(MatcherState& state, std::string_view bytes);
  /// The same of a token, as far as `work` allows. After not_yet, the next call with the same state, token and progress
  /// continues; otherwise the progress is a new one again.
  Accepted accept(MatcherState& state, TokenId token, AcceptProgress& progress, MatcherWork& work);
  /// Whether the text may end here.
  bool is_complete(const MatcherState& state);
  /// Whether a limit of Configurations has refused a text so far. Masks look at what stays inside of a rule alone, so
  /// that they may have a token that `accept` then refuses for it.
  bool has_overflowed();
  /// The error of such a text.
  static Error overflow() {
    return {ErrorCode::too_large, "the grammar is nested too deep here, or leaves too many derivations open"};
  }
  /// Whether nothing but the end may follow.
  bool must_end(const MatcherState& state);

  /// Sets the bits of the tokens that may follow and clears all others. `mask` has vocabulary().n_words() words.
  /// Errors: too_large where finding the tokens needs more than kMostDerivations, or none may follow because the
  /// limits of Configurations refuse what the grammar has; unsupported where the vocabulary has no token for it.
  Result<void> mask(const MatcherState& state, std::span<std::uint32_t> mask);
  /// The same as far as `work` allows. False: the work is used up and `mask` unchanged. The matcher keeps what it has
  /// found while any caller holds the state, so that the next call for an equal one continues; work on several states
  /// may be begun.
  Result<bool> mask(const MatcherState& state, std::span<std::uint32_t> mask, MatcherWork& work);
  /// The same if the tokens were found before and are kept: about a microsecond. Otherwise returns false.
  bool copy_known_mask(const MatcherState& state, std::span<std::uint32_t> mask);

  /// The bytes that must follow, at most `max_bytes`.
  std::string forced_bytes(const MatcherState& state, std::size_t max_bytes);
  /// Turns text into tokens, as Tokenizer::encode_plain_behind.
  using Encode = std::function<std::vector<TokenId>(std::string_view)>;
  /// Drafts for what must follow, at most `max_tokens`: special tokens, and what `encode` makes of the bytes between
  /// them, without the last token where other bytes may follow it, because a longer token might be chosen there. Other
  /// cuts of the same bytes into tokens are allowed too, so these are drafts, not the only choice. They end where
  /// `encode` changes the bytes, or where `work` is used up.
  std::vector<TokenId> forced_tokens(const MatcherState& state, std::size_t max_tokens, const Encode& encode,
                                     MatcherWork& work);

  const Program& program() const { return *program_; }
  const TokenTrie& vocabulary() const { return *vocabulary_; }
  /// Bytes of memory, about; the vocabulary is not counted.
  std::size_t n_bytes();

 private:
  friend class MatcherState;
  using Id = Configurations::Id;

  /// Of a state, without its stack.
  struct LocalTokens {
    std::vector<std::uint32_t> words;  // a mask, or empty for few tokens
    std::vector<TokenId> few;
    std::vector<std::uint32_t> exits;  // nodes with children of the vocabulary at which the rule may have ended
    std::size_t n_bytes() const { return sizeof(*this) + 4 * (words.size() + few.size() + exits.size()); }
  };
  using LocalTokensPointer = std::shared_ptr<const LocalTokens>;  // works in progress have them too
  /// Where LocalTokens are of: a state, and the count in it that stands for others.
  struct Place {
    StateId state;
    LengthCounter::Count count;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct HashPlace {
    std::size_t operator()(const Place& place) const {
      return std::hash<std::uint64_t>()(static_cast<std::uint64_t>(static_cast<std::uint32_t>(place.state)) << 32 |
                                        static_cast<std::uint32_t>(place.count));
    }
  };
  /// A place that is like another one, and up to how many bytes it is.
  struct PlaceTwin {
    Place place;
    std::int32_t n_bytes;
  };
  /// A walk over a part of the vocabulary's tree. While it is stopped, it holds the configurations of its path.
  struct Walk {
    std::uint32_t at = 0;  // the node that is next
    std::uint32_t end = 0;
    std::vector<Id> path;       // the configuration at each depth
    std::vector<Id> twin_path;  // the same of the twin, if both are walked
    bool is_stopped = false;
  };
  /// The finding of a state's LocalTokens.
  struct LocalWork {
    PlaceTwin twin;
    LocalTokensPointer base;  // the twin's; null without a twin
    std::size_t n_kept = 0;   // exits of the twin that were looked at
    LocalTokens found;
    Walk walk;
  };
  /// The finding of a configuration's mask. It holds the configuration.
  struct MaskWork {
    std::vector<std::uint32_t> mask;
    std::int64_t n_derivations = kMostDerivations;  // that are left
    std::vector<Configurations::Item> items;        // empty: they are walked together
    std::size_t n_items = 0;                        // that are done
    LocalTokensPointer local;                       // of the next item, once they are in the mask
    std::size_t n_exits = 0;                        // of it, that are done
    bool is_walking = false;
    Walk walk;
  };

  void retain(Id id);
  void release(Id id);
  bool copy_known(Id id, std::span<std::uint32_t> mask) const BATON_REQUIRES(mutex_);
  PlaceTwin twin(const Place& place) const BATON_REQUIRES(mutex_);
  void forget_what_is_too_much() BATON_REQUIRES(mutex_);
  std::size_t n_mask_bytes() const BATON_REQUIRES(mutex_) {
    return masks_.size() * vocabulary_->n_words() * sizeof(std::uint32_t);
  }
  std::size_t n_work_bytes() const BATON_REQUIRES(mutex_);
  std::size_t n_learned_bytes() const BATON_REQUIRES(mutex_) {
    return configurations_.n_bytes() + local_bytes_ + n_mask_bytes() + n_work_bytes();
  }
  bool is_out_of_steps() const BATON_REQUIRES(mutex_) { return configurations_.n_steps() >= stop_at_; }
  void begin_work(MatcherWork& work) BATON_REQUIRES(mutex_);
  void end_work(MatcherWork& work) BATON_REQUIRES(mutex_);
  // In matcher_masks.cpp, of representatives. What returns a bool or a pointer returns false or null where it has
  // stopped.
  void begin_walk(Walk& walk, std::uint32_t node, Id id) const;
  void hold(Walk& walk) BATON_REQUIRES(mutex_);
  void release(Walk& walk) BATON_REQUIRES(mutex_);
  template <class Visit>
  bool go_on(Walk& walk, const Visit& visit) BATON_REQUIRES(mutex_);
  bool find_all(LocalWork& work) BATON_REQUIRES(mutex_);
  bool find_differences(LocalWork& work) BATON_REQUIRES(mutex_);
  LocalTokensPointer local_tokens(const Place& place) BATON_REQUIRES(mutex_);
  LocalTokensPointer keep(const Place& place, LocalTokens found) BATON_REQUIRES(mutex_);
  MaskWork& mask_work(Id id) BATON_REQUIRES(mutex_);
  void drop(std::unordered_map<Id, MaskWork>::iterator work) BATON_REQUIRES(mutex_);
  void drop_unwanted_works() BATON_REQUIRES(mutex_);
  void drop_local_works() BATON_REQUIRES(mutex_);
  void drop_interrupted_works() BATON_REQUIRES(mutex_);
  bool add_exits(MaskWork& work, Configurations::StackId stack) BATON_REQUIRES(mutex_);
  bool add_items(MaskWork& work) BATON_REQUIRES(mutex_);
  std::optional<std::vector<std::uint32_t>> go_on_with_mask(Id id) BATON_REQUIRES(mutex_);
  bool step_through(Id& id, std::string_view bytes) BATON_REQUIRES(mutex_);
  std::string forced_from(Id& id, std::size_t max_bytes) BATON_REQUIRES(mutex_);
  Id next_of(Id id, TokenId special) BATON_REQUIRES(mutex_);
  std::int32_t forced_token(Id id) const BATON_REQUIRES(mutex_);

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const TokenTrie> vocabulary_;
  const MatcherLimits limits_;
  const std::vector<TokenId> special_tokens_;  // by the index in the program's edges
  Mutex mutex_;
  Configurations configurations_ BATON_GUARDED_BY(mutex_);
  std::unordered_map<Place, LocalTokensPointer, HashPlace> local_tokens_ BATON_GUARDED_BY(mutex_);
  std::size_t local_bytes_ BATON_GUARDED_BY(mutex_) = 0;
  std::unordered_map<Id, std::vector<std::uint32_t>> masks_ BATON_GUARDED_BY(mutex_);
  std::unordered_map<Place, LocalWork, HashPlace> local_works_ BATON_GUARDED_BY(mutex_);
  std::unordered_map<Id, MaskWork> mask_works_ BATON_GUARDED_BY(mutex_);
  std::optional<Id> searched_ BATON_GUARDED_BY(mutex_);  // the mask that is being found; between calls: std::bad_alloc ended it
  std::size_t n_left_bytes_ BATON_GUARDED_BY(mutex_) = 0;  // of what was learned, when something was forgotten last
  std::int64_t stop_at_ BATON_GUARDED_BY(mutex_) = 0;      // steps of the configurations at which the call stops
  BytesShare fixed_bytes_;
  BytesShare learned_bytes_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton::grammar
