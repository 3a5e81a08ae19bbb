/// Characters and classes of regular expressions.
#pragma once

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/expression.h"
#include "grammar/automaton/source_cursor.h"

namespace baton::grammar {

/// Reads what stands for one character. Errors: those of parse_regex.
class RegexCharacters {
 public:
  /// Both must outlive it.
  RegexCharacters(SourceCursor& source, WorkMeter& meter) : source_(source), meter_(meter) {}

  /// What is after a '[', with its ']'.
  Result<CharRanges> char_class();
  /// What is after a backslash.
  Result<CharRanges> escape(bool in_class);

 private:
  Result<CharRanges> class_item();
  Result<CharRanges> property(bool is_negated);
  Result<char32_t> unicode_escape();

  SourceCursor& source_;
  WorkMeter& meter_;
};

}  // namespace baton::grammar
