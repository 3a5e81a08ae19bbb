/// The `pre_tokenizer` of a tokenizer.json: how text is cut into the words that merges never cross.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "text/split/pattern.h"

namespace baton {

/// Words as ranges of one text. `begins_input` marks the word, if any, at the first byte of what the user wrote.
struct PieceList {
  struct Piece {
    TextRange range;
    bool begins_input = false;
  };
  std::string text;
  std::vector<Piece> pieces;
};

/// The same words in at most `n_groups` lists of about as many bytes each, in order.
std::vector<PieceList> grouped(PieceList words, std::size_t n_groups);

/// What happens to the matches at which a pattern cuts the text.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// A list of cutting steps: ByteLevel, Split, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit,
/// CharDelimiterSplit and Sequence of these; empty for null. Immutable. Thread: any.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// Errors: unsupported, with the name of the component; invalid_data.
  static Result<PreTokenizer> from_json(const json::Value& value);

  /// Cuts `words` by every step in turn. The text is valid UTF-8 before and after. Never yields empty words. What returns is
  /// of no use where the budget of `meter` is over, here and below.
  PieceList split(PieceList words, WorkMeter& meter) const;

  /// The first half of split for a long text: applies the steps up to the first one that cuts, and groups the words.
  /// finish of each group gives, one after another, what split gives: the later steps look at one word at a time.
  std::vector<PieceList> begin(PieceList words, std::size_t n_groups, const Parallel& parallel, WorkMeter& meter) const;
  PieceList finish(PieceList group, WorkMeter& meter) const;

 private:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
  };
  /// Cuts at the characters of a set.
  struct SplitSet {
    bool (*contains)(char32_t) = nullptr;
    SplitBehavior behavior = SplitBehavior::isolated;
  };
  struct PrefixSpace {};   // a space before words that do not begin with one
  struct ByteAlphabet {};  // every byte becomes the character that stands for it
  struct Metaspace {
    std::string replacement;
    enum class Prepend { always, first, never } prepend = Prepend::always;
  };
  using Step = std::variant<Split, SplitSet, PrefixSpace, ByteAlphabet, Metaspace>;

  Result<void> add(const json::Value& value, int depth);
  Result<void> add_set(std::string_view type, const json::Value& value);
  Result<void> add_byte_level(const json::Value& value);
  Result<void> add_metaspace(const json::Value& value);
  Result<void> add_split(Result<Pattern> pattern, SplitBehavior behavior, bool invert);

  std::size_t n_first_steps() const;
  static void apply(const Split& step, PieceList& words, WorkMeter& meter);
  static void apply(const Split& step, PieceList& words, const Parallel& parallel, WorkMeter& meter);
  static void apply(const SplitSet& step, PieceList& words, WorkMeter& meter);
  static void apply(const PrefixSpace& step, PieceList& words, WorkMeter& meter);
  static void apply(const ByteAlphabet& step, PieceList& words, WorkMeter& meter);
  static void apply(const Metaspace& step, PieceList& words, WorkMeter& meter);

  std::vector<Step> steps_;
};

}  // namespace baton
