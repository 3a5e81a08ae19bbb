/// What distinguishes one API for conversations from another, as a value: no other room names a dialect.
#pragma once

#include <string_view>

#include "server/http/ticket.h"

namespace baton {

/// A dialect, a constant. Paths below `path` are the dialect's, too.
struct Dialect {
  std::string_view path;             ///< where conversations are posted
  std::string_view count_path = {};  ///< where the tokens of a conversation are counted; empty: nowhere
  std::string_view ids;              ///< how the ids of its answers begin
  ErrorForm errors = kOpenaiErrors;

  /// Whether a request for `path` is one of this dialect.
  constexpr bool has(std::string_view asked) const {
    return asked.starts_with(path) && (asked.size() == path.size() || asked[path.size()] == '/');
  }
};

}  // namespace baton
