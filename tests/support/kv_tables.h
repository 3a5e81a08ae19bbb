/// Prompts and checks for tests of KvCache.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "engine/cache/kv_cache.h"

namespace baton::testing {

/// The tokens first, first + 1, ...
inline std::vector<TokenId> count_up(TokenId first, std::size_t n) {
  std::vector<TokenId> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

/// Aborts unless the cache's invariants hold with exactly these tables in use.
inline void check_all(const KvCache& cache, std::initializer_list<const BlockTable*> tables) {
  cache.check_invariants(std::vector<const BlockTable*>(tables));
}

}  // namespace baton::testing
