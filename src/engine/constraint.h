/// What the tokens of a request's answers must keep to.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/shared_list.h"

namespace baton {

namespace grammar {
class Matcher;
}

/// A grammar over the vocabulary, shared by all requests that bring it, and where in an answer it begins to apply.
struct Constraint {
  std::shared_ptr<grammar::Matcher> matcher = {};  ///< null: none
  /// Turns text into tokens (grammar::Matcher::Encode), for drafts of text that must follow; empty: no such drafts.
  std::function<std::vector<TokenId>(std::string_view)> encode = {};
  /// The grammar applies behind the first of these tokens that is generated; empty: from the first token on.
  SharedList<TokenId> begins_behind = {};
};

}  // namespace baton
