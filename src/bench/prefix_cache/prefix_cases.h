/// The cases of `baton bench prefix-cache`: their prompts, and what a cache of keys and values alone finds of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/dataset/dataset_tokens.h"
#include "core/ids.h"

namespace baton {

/// shared: requests after one prompt, in turn; registered: the same, after a prompt that is pinned first; identical: one
/// prompt twice; turns: a conversation; reasoning: a conversation whose answers come back without their first half; forks:
/// requests after one prompt, all at once.
inline constexpr auto kPrefixCaseKinds =
    std::to_array<std::string_view>({"shared", "registered", "identical", "turns", "reasoning", "forks"});

/// Tokens at the end of a prompt of a reasoning conversation that the next turn's prompt lacks: the header of the answer.
inline constexpr std::int32_t kAnswerHeaderLen = 4;

struct PrefixCase {
  std::string kind;             ///< one of kPrefixCaseKinds
  std::int32_t shared_len = 0;  ///< tokens of the prompt that requests share
  std::int32_t own_len = 0;     ///< tokens of each request or turn after it
  std::int32_t answer_len = 1;  ///< tokens that each request generates
  std::int32_t n_requests = 0;
  std::int32_t n_unjudged = 0;  ///< first requests that may compute anything: what they share is not known yet

  bool is_conversation() const { return kind == "turns" || kind == "reasoning"; }
  bool is_registered() const { return kind == "registered"; }
  bool is_at_once() const { return kind == "forks"; }
  /// Prompt and answer of the longest request.
  std::int64_t longest_context() const;
};

/// What the flags choose.
struct PrefixCaseChoice {
  std::vector<std::string> kinds{kPrefixCaseKinds.begin(), kPrefixCaseKinds.end()};
  std::vector<std::int32_t> shared{480, 2000, 6476};
  std::vector<std::int32_t> own{40, 376, 1296};
  std::int32_t n_turns = 8;
  std::int32_t n_forks = 16;
  std::int32_t answer_len = 32;  ///< of a turn
};

/// shared and registered for each pair of lengths; the others for each shared length, with the first length of `own`.
std::vector<PrefixCase> prefix_cases(const PrefixCaseChoice& choice);

/// The prompts of a case, one after another.
class CasePrompts {
 public:
  /// Cases of different numbers share nothing.
  CasePrompts(const PrefixCase& of, const DatasetTokens& tokens, std::uint64_t number);

  const std::vector<TokenId>& shared() const { return shared_; }
  /// The next prompt. `answer`: to the prompt before; empty for the first one. Conversations alone read it.
  std::vector<TokenId> next(std::span<const TokenId> answer);

 private:
  const PrefixCase& case_;
  const DatasetTokens& tokens_;
  std::uint64_t number_;
  std::uint64_t n_made_ = 0;
  std::vector<TokenId> shared_;
  std::vector<TokenId> history_;  ///< of a conversation
};

/// The tokens that a model has computed: what an unbounded cache of keys and values knows.
class ComputedTokens {
 public:
  void add(std::vector<TokenId> tokens) { sequences_.push_back(std::move(tokens)); }
  /// Tokens of the longest prefix of `prompt` that were computed before.
  std::int32_t shared_len(std::span<const TokenId> prompt) const;

 private:
  std::vector<std::vector<TokenId>> sequences_;
};

/// Of `shared_len` tokens that were computed before, how many a cache of whole blocks does not compute again. The last token of
/// a prompt is always computed.
constexpr std::int32_t found_in_blocks(std::int32_t shared_len, std::int32_t prompt_len, std::int32_t block_len) {
  const std::int32_t found = shared_len < prompt_len ? shared_len : prompt_len - 1;
  return found / block_len * block_len;
}

}  // namespace baton
