/// How much of a prompt the `cache_control` marks of a request cover, in tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "io/json.h"
#include "server/dialects/messages/request.h"
#include "server/prompt/prompts.h"

namespace baton {

/// The first tokens of a prompt, to be kept for some time.
struct MarkedPrefix {
  std::int32_t n_tokens = 0;
  std::chrono::seconds ttl{0};
};

/// For each time of the marks the longest prefix of `prompt` that is marked with it, in whole blocks of `block_len` tokens;
/// the longest is the last. What a mark covers are the tokens that the request has in common with the request cut after
/// the mark, so it does not depend on what follows. A mark without a whole block, or one at which the chat template cannot
/// end, is left out.
std::vector<MarkedPrefix> marked_prefixes(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                                          std::span<const CacheMark> marks, std::span<const TokenId> prompt,
                                          std::int32_t block_len, const IsCancelled& is_cancelled = {});

}  // namespace baton
