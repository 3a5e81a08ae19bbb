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
///
/// A token is chosen only if the grammar, the sampling parameters and the limits of the answer all allow it: a token
/// outside of allowed_ids, with a bias of -infinity, or the last of a bad word is not chosen, and stop ids are not
/// chosen before min_tokens. If nothing is left, the answer ends with FinishReason::stop, as it does without a grammar.
/// Tokens that end a text of the grammar (TokenTrie::ends) are allowed where the text is complete and only if they are
/// stop ids: with ignore_eos an answer continues as long as the grammar has more. Other stop ids end an answer wherever
/// the grammar allows them as text. If the tokens that may follow cannot be found (Matcher::mask), the answer ends with
/// FinishReason::error and Event::error.
struct Constraint {
  std::shared_ptr<grammar::Matcher> matcher = {};  ///< null: none
  /// Turns text into tokens (grammar::Matcher::Encode), for drafts of text that must follow; empty: no such drafts.
  std::function<std::vector<TokenId>(std::string_view)> encode = {};
  /// The grammar applies after the first of these tokens that is generated; empty: from the first token on.
  SharedList<TokenId> begins_behind = {};
};

}  // namespace baton
