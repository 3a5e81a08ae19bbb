/// The `pre_tokenizer` of a tokenizer.json: how text is cut into the words that merges never cross.
#include "text/split/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "text/split/component.h"
#include "text/split/unicode.h"
#include "text/tables/character_tables.h"

namespace baton {

namespace {

constexpr std::string_view kPreTokenizer = "pre_tokenizer";

// The words of GPT-2's byte-level BPE.
constexpr std::string_view kByteLevelWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Result<SplitBehavior> behavior_of(const json::Value& value, std::string_view component, std::string_view otherwise) {
  BATON_TRY(const std::string name, component::get_or<std::string>(value, component, "behavior", std::string(otherwise)));
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return component::unsupported(kPreTokenizer, std::string(component) + " behavior " + name);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const json::Value& value) {
  PreTokenizer pre_tokenizer;
  if (!value.is_null()) BATON_TRY_VOID(pre_tokenizer.add(value, 0));
  return pre_tokenizer;
}

Result<void> PreTokenizer::add(const json::Value& value, int depth) {
  BATON_TRY(const std::string type, component::type_of(value, kPreTokenizer, depth, steps_.size()));
  if (type == "Sequence") {
    BATON_TRY(const json::Value* members, component::members_of(value, kPreTokenizer, "pretokenizers"));
    for (const json::Value& member : *members) BATON_TRY_VOID(add(member, depth + 1));
    return {};
  }
  if (type == "ByteLevel") return add_byte_level(value);
  if (type == "Metaspace") return add_metaspace(value);
  if (type == "Split") {
    const json::Value* pattern = json::find(value, "pattern");
    if (pattern == nullptr) return fail(ErrorCode::invalid_data, "pre_tokenizer Split: no pattern");
    BATON_TRY(const SplitBehavior behavior, behavior_of(value, "Split", "Isolated"));
    BATON_TRY(const bool invert, component::get_or<bool>(value, "Split", "invert", false));
    return add_split(Pattern::from_json(*pattern, "pre_tokenizer Split"), behavior, invert);
  }
  if (type == "Whitespace") {
    const std::string words_and_others = fmt::format(R"([{0}]+|[^{0}\s]+)", kRustWordClass);
    return add_split(Pattern::regex(words_and_others), SplitBehavior::removed, true);
  }
  if (type == "CharDelimiterSplit") {
    BATON_TRY(std::string delimiter, component::get<std::string>(value, "CharDelimiterSplit", "delimiter"));
    return add_split(Pattern::literal(std::move(delimiter)), SplitBehavior::removed, false);
  }
  return add_set(type, value);
}

/// The steps that cut at single characters.
Result<void> PreTokenizer::add_set(std::string_view type, const json::Value& value) {
  if (type == "Digits") {
    BATON_TRY(const bool individual, component::get_or<bool>(value, "Digits", "individual_digits", false));
    steps_.push_back(SplitSet{unicode::is_numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous});
  } else if (type == "Punctuation") {
    BATON_TRY(const SplitBehavior behavior, behavior_of(value, "Punctuation", "Isolated"));
    steps_.push_back(SplitSet{unicode::is_punctuation, behavior});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(SplitSet{unicode::is_space, SplitBehavior::removed});
  } else {
    return component::unsupported(kPreTokenizer, type);
  }
  return {};
}

Result<void> PreTokenizer::add_split(Result<Pattern> pattern, SplitBehavior behavior, bool invert) {
  BATON_TRY(Pattern compiled, std::move(pattern));
  steps_.push_back(Split{std::move(compiled), behavior, invert});
  return {};
}

Result<void> PreTokenizer::add_byte_level(const json::Value& value) {
  BATON_TRY(const bool add_prefix_space, component::get_or<bool>(value, "ByteLevel", "add_prefix_space", true));
  BATON_TRY(const bool use_regex, component::get_or<bool>(value, "ByteLevel", "use_regex", true));
  if (add_prefix_space) steps_.emplace_back(std::in_place_type<PrefixSpace>);
  if (use_regex) BATON_TRY_VOID(add_split(Pattern::regex(kByteLevelWords), SplitBehavior::isolated, false));
  steps_.emplace_back(std::in_place_type<ByteAlphabet>);
  return {};
}

Result<void> PreTokenizer::add_metaspace(const json::Value& value) {
  BATON_TRY(std::string replacement, component::get<std::string>(value, "Metaspace", "replacement"));
  // Files older than prepend_scheme have add_prefix_space.
  BATON_TRY(const bool add_prefix_space, component::get_or<bool>(value, "Metaspace", "add_prefix_space", true));
  BATON_TRY(const std::string scheme,
            component::get_or<std::string>(value, "Metaspace", "prepend_scheme", add_prefix_space ? "always" : "never"));
  BATON_TRY(const bool is_split, component::get_or<bool>(value, "Metaspace", "split", true));
  Metaspace step;
  step.replacement = replacement;
  if (scheme == "always") {
    step.prepend = Metaspace::Prepend::always;
  } else if (scheme == "first") {
    step.prepend = Metaspace::Prepend::first;
  } else if (scheme == "never") {
    step.prepend = Metaspace::Prepend::never;
  } else {
    return component::unsupported(kPreTokenizer, "Metaspace prepend_scheme " + scheme);
  }
  steps_.push_back(std::move(step));
  if (is_split) return add_split(Pattern::literal(std::move(replacement)), SplitBehavior::merged_with_next, false);
  return {};
}

namespace {

struct Cut {
  TextRange range;
  bool is_match = false;
};

/// The matches and the ranges between them, in order, covering `length` bytes.
std::vector<Cut> cover(const std::vector<TextRange>& matches, std::size_t length, bool invert) {
  std::vector<Cut> cuts;
  cuts.reserve(2 * matches.size() + 1);
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin > done) cuts.push_back({{done, match.begin}, invert});
    cuts.push_back({match, !invert});
    done = match.end;
  }
  if (done < length) cuts.push_back({{done, length}, invert});
  return cuts;
}

/// The ranges that remain of `cuts`, empty ones included.
std::vector<TextRange> join_cuts(const std::vector<Cut>& cuts, SplitBehavior behavior) {
  std::vector<TextRange> ranges;
  ranges.reserve(cuts.size());
  bool previous_is_match = false;
  if (behavior == SplitBehavior::merged_with_next) {
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
      if (cut->is_match && !previous_is_match && !ranges.empty())
        ranges.back().begin = cut->range.begin;
      else
        ranges.push_back(cut->range);
      previous_is_match = cut->is_match;
    }
    std::reverse(ranges.begin(), ranges.end());
    return ranges;
  }
  for (const Cut& cut : cuts) {
    bool joins = false;
    if (behavior == SplitBehavior::merged_with_previous) joins = cut.is_match && !previous_is_match;
    if (behavior == SplitBehavior::contiguous) joins = cut.is_match == previous_is_match;
    if (joins && !ranges.empty())
      ranges.back().end = cut.range.end;
    else if (behavior != SplitBehavior::removed || !cut.is_match)
      ranges.push_back(cut.range);
    previous_is_match = cut.is_match;
  }
  return ranges;
}

/// Counts a look at each character of a word.
bool count_word(WorkMeter& meter, const PieceList::Piece& piece) {
  return meter.spend(1 + static_cast<std::int64_t>((piece.range.end - piece.range.begin) / 4));
}

/// Rewrites every word by `rewrite(word, piece, out)`, which appends the new word to `out`.
template <class Rewrite>
void rewrite_words(PieceList& words, WorkMeter& meter, Rewrite rewrite) {
  std::string text;
  if (!meter.write(words.text.size() + words.pieces.size())) return;
  text.reserve(words.text.size() + words.pieces.size());
  for (PieceList::Piece& piece : words.pieces) {
    if (!count_word(meter, piece)) break;
    const std::size_t begin = text.size();
    rewrite(std::string_view(words.text).substr(piece.range.begin, piece.range.end - piece.range.begin), piece, text);
    piece.range = {begin, text.size()};
  }
  words.text = std::move(text);
}

/// Cuts every word at the ranges that `cut(word)` says, which may be empty.
template <class CutWord>
void cut_words(PieceList& words, WorkMeter& meter, CutWord cut) {
  std::vector<PieceList::Piece> pieces;
  pieces.reserve(words.pieces.size());
  for (const PieceList::Piece& piece : words.pieces) {
    const std::size_t offset = piece.range.begin;
    const std::string_view word = std::string_view(words.text).substr(offset, piece.range.end - offset);
    if (!count_word(meter, piece)) break;
    for (const TextRange& range : cut(word)) {
      if (range.begin == range.end) continue;
      pieces.push_back({{offset + range.begin, offset + range.end}, piece.begins_input && range.begin == 0});
    }
  }
  words.pieces = std::move(pieces);
}

}  // namespace

void PreTokenizer::apply(const Split& step, PieceList& words, WorkMeter& meter) {
  cut_words(words, meter, [&](std::string_view word) {
    return join_cuts(cover(step.pattern.find_all(word, meter), word.size(), step.invert), step.behavior);
  });
}

void PreTokenizer::apply(const Split& step, PieceList& words, const Parallel& parallel, WorkMeter& meter) {
  cut_words(words, meter, [&](std::string_view word) {
    return join_cuts(cover(step.pattern.find_all(word, parallel, meter), word.size(), step.invert), step.behavior);
  });
}

void PreTokenizer::apply(const SplitSet& step, PieceList& words, WorkMeter& meter) {
  cut_words(words, meter, [&](std::string_view word) {
    std::vector<TextRange> matches;
    for (std::size_t at = 0; at < word.size() && meter.spend(1);) {
      const unicode::Step character = unicode::decode_front(word.substr(at));
      if (step.contains(character.code_point)) matches.push_back({at, at + character.n_bytes});
      at += character.n_bytes;
    }
    return join_cuts(cover(matches, word.size(), false), step.behavior);
  });
}

void PreTokenizer::apply(const PrefixSpace&, PieceList& words, WorkMeter& meter) {
  rewrite_words(words, meter, [](std::string_view word, const PieceList::Piece&, std::string& out) {
    if (!word.starts_with(' ')) out += ' ';
    out += word;
  });
}

void PreTokenizer::apply(const ByteAlphabet&, PieceList& words, WorkMeter& meter) {
  rewrite_words(words, meter, [](std::string_view word, const PieceList::Piece&, std::string& out) {
    for (const char byte : word) unicode::append_utf8(out, unicode::character_of_byte(static_cast<unsigned char>(byte)));
  });
}

void PreTokenizer::apply(const Metaspace& step, PieceList& words, WorkMeter& meter) {
  rewrite_words(words, meter, [&](std::string_view word, const PieceList::Piece& piece, std::string& out) {
    const bool may_prepend =
        step.prepend == Metaspace::Prepend::always || (step.prepend == Metaspace::Prepend::first && piece.begins_input);
    if (may_prepend && !word.starts_with(step.replacement) && !word.starts_with(' ')) out += step.replacement;
    for (const char byte : word) {
      if (byte == ' ')
        out += step.replacement;
      else
        out += byte;
    }
  });
}

PieceList PreTokenizer::split(PieceList words, WorkMeter& meter) const {
  for (const Step& step : steps_) std::visit([&](const auto& concrete) { apply(concrete, words, meter); }, step);
  return words;
}

std::vector<PieceList> grouped(PieceList words, std::size_t n_groups) {
  std::vector<PieceList> groups;
  const std::size_t n_bytes = words.text.size() / std::max<std::size_t>(n_groups, 1) + 1;
  for (const PieceList::Piece& piece : words.pieces) {
    if (groups.empty() || groups.back().text.size() >= n_bytes) groups.emplace_back();
    PieceList& group = groups.back();
    const std::size_t begin = group.text.size();
    group.text.append(words.text, piece.range.begin, piece.range.end - piece.range.begin);
    group.pieces.push_back({{begin, group.text.size()}, piece.begins_input});
  }
  return groups;
}

/// The number of steps up to the first one that cuts.
std::size_t PreTokenizer::n_first_steps() const {
  const auto cuts = [](const Step& step) {
    return !std::holds_alternative<PrefixSpace>(step) && !std::holds_alternative<ByteAlphabet>(step) &&
           !std::holds_alternative<Metaspace>(step);
  };
  const auto first = std::ranges::find_if(steps_, cuts);
  return static_cast<std::size_t>(first - steps_.begin()) + (first == steps_.end() ? 0 : 1);
}

std::vector<PieceList> PreTokenizer::begin(PieceList words, std::size_t n_groups, const Parallel& parallel,
                                           WorkMeter& meter) const {
  for (std::size_t i = 0; i < n_first_steps(); ++i) {
    if (const auto* split = std::get_if<Split>(&steps_[i]))
      apply(*split, words, parallel, meter);
    else
      std::visit([&](const auto& concrete) { apply(concrete, words, meter); }, steps_[i]);
  }
  return grouped(std::move(words), n_groups);
}

PieceList PreTokenizer::finish(PieceList group, WorkMeter& meter) const {
  for (std::size_t i = n_first_steps(); i < steps_.size(); ++i)
    std::visit([&](const auto& concrete) { apply(concrete, group, meter); }, steps_[i]);
  return group;
}

}  // namespace baton
