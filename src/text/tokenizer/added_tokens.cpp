/// Tokens added to a model's vocabulary, and where a text spells them.
#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/split/component.h"
#include "text/split/unicode.h"

namespace baton {

Result<AddedToken> AddedToken::from_json(const json::Value& value, std::optional<TokenId> id) {
  constexpr std::string_view kRole = "added token";
  AddedToken token;
  BATON_TRY(token.content, component::get<std::string>(value, kRole, "content"));
  if (id) {
    token.id = *id;
  } else {
    BATON_TRY(token.id, component::get<TokenId>(value, kRole, "id"));
  }
  BATON_TRY(token.is_special, component::get_or<bool>(value, kRole, "special", false));
  BATON_TRY(token.is_single_word, component::get_or<bool>(value, kRole, "single_word", false));
  BATON_TRY(token.strips_left, component::get_or<bool>(value, kRole, "lstrip", false));
  BATON_TRY(token.strips_right, component::get_or<bool>(value, kRole, "rstrip", false));
  BATON_TRY(token.is_normalized, component::get_or<bool>(value, kRole, "normalized", !token.is_special));
  return token;
}

Result<void> AddedTokens::add(AddedToken token, const Normalizer& normalizer) {
  if (token.content.empty() || vocabulary_.id_of(token.content)) return {};
  if (!vocabulary_.insert(token.content, token.id))
    return fail(ErrorCode::invalid_data, fmt::format("tokenizer.json: the added token '{}' has the id {}; ids are 0 to {}",
                                                     token.content, token.id, kMaxTokenId));
  if (token.is_special) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id >= is_special_.size()) is_special_.resize(id + 1);
    is_special_[id] = true;
  }
  if (token.is_single_word && !word_) {
    BATON_TRY(word_, Pattern::regex(fmt::format("[{}]", kRustWordClass)));
  }
  if (token.is_normalized) {
    const std::string text = normalizer.normalize(token.content, UnlimitedWork().meter());
    // Of two that the normalizer makes equal the last counts.
    if (!text.empty()) normalized_.insert(text, static_cast<std::int32_t>(tokens_.size()));
    if (text != token.content) normalized_texts_[token.id] = text;
  } else {
    raw_.insert(token.content, static_cast<std::int32_t>(tokens_.size()));
  }
  tokens_.push_back(std::move(token));
  return {};
}

std::string_view AddedTokens::text_of(TokenId id) const {
  const auto found = normalized_texts_.find(id);
  return found == normalized_texts_.end() ? vocabulary_.text_of(id) : std::string_view(found->second);
}

bool AddedTokens::is_special(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < is_special_.size() && is_special_[static_cast<std::size_t>(id)];
}

bool AddedTokens::is_whole_word(std::string_view text, TextRange range) const {
  const auto is_word = [&](std::string_view character) { return !word_->find_all(character).empty(); };
  const std::string_view before = unicode::last_character(text.substr(0, range.begin));
  const std::string_view after = text.substr(range.end);
  return (before.empty() || !is_word(before)) &&
         (after.empty() || !is_word(after.substr(0, unicode::decode_front(after).n_bytes)));
}

namespace {

/// The ends of runs of white space. A run is passed over once, although several tokens may begin in it.
class SpaceRun {
 public:
  explicit SpaceRun(std::string_view text) : text_(text) {}

  /// The end of the white space that begins at the byte `from`.
  std::size_t end_from(std::size_t from, WorkMeter& meter) {
    if (from >= begin_ && from <= end_) return end_;
    begin_ = end_ = from;
    while (end_ < text_.size() && meter.spend(1)) {
      const unicode::Step step = unicode::decode_front(text_.substr(end_));
      if (!unicode::is_space(step.code_point)) break;
      end_ += step.n_bytes;
    }
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t begin_ = 1;
  std::size_t end_ = 0;
};

}  // namespace

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, const ByteTrie& spellings, bool with_special,
                                                  std::size_t from, WorkMeter& meter) const {
  constexpr std::int64_t kWordSteps = 16;  // two searches by an expression
  std::vector<Part> parts;
  SpaceRun spaces(text);
  std::size_t done = from;
  if (!meter.pass(text.size() - from)) return parts;
  for (std::size_t at = from; at < text.size();) {
    if (!spellings.may_begin(text[at])) {
      ++at;
      continue;
    }
    const ByteTrie::Match match = spellings.longest(text.substr(at));
    if (!meter.spend(static_cast<std::int64_t>(match.n_visited))) return parts;
    if (match.value == ByteTrie::kNone) {
      ++at;
      continue;
    }
    const AddedToken* token = &tokens_[static_cast<std::size_t>(match.value)];
    TextRange range{at, at + match.length};
    at = range.end;
    if (token->is_special && !with_special) continue;
    if (token->is_single_word && (!meter.spend(kWordSteps) || !is_whole_word(text, range))) continue;
    while (token->strips_left && range.begin > done && meter.spend(1)) {
      const std::string_view before = unicode::last_character(text.substr(0, range.begin));
      if (!unicode::is_space(unicode::decode_front(before).code_point)) break;
      range.begin -= before.size();
    }
    if (token->strips_right) range.end = spaces.end_from(range.end, meter);
    if (done < range.begin) parts.push_back({{done, range.begin}, std::nullopt});
    parts.push_back({range, token->id});
    done = range.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, std::nullopt});
  return parts;
}

/// Whether `text` ends with an incomplete token.
bool AddedTokens::may_grow(std::string_view text, WorkMeter& meter) const {
  for (std::size_t n = 1; n < raw_.longest_key() && n <= text.size(); ++n) {
    std::int32_t node = ByteTrie::kRoot;
    std::int64_t n_visited = 0;
    for (const char byte : text.substr(text.size() - n)) {
      node = raw_.child(node, byte);
      ++n_visited;
      if (node == ByteTrie::kNone) break;
    }
    if (!meter.spend(n_visited) || (node != ByteTrie::kNone && raw_.has_children(node))) return true;
  }
  return false;
}

std::size_t AddedTokens::last_sure_cut(std::string_view text, WorkMeter& meter) const {
  const std::vector<Part> parts = split_raw(text, /*with_special=*/true, 0, meter);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!part->id) continue;
    const std::string_view head = text.substr(0, part->range.end);
    // The spaces at the end may belong to a following token that strips the spaces before it.
    const char last = head.back();
    if (static_cast<unsigned char>(last) >= 0x80 || unicode::is_space(static_cast<char32_t>(last))) continue;
    if (!meter.spend(static_cast<std::int64_t>(tokens_.size()))) return 0;
    const bool is_plain = std::ranges::any_of(tokens_, [&](const AddedToken& token) {
      return token.id == *part->id && !token.is_normalized && !token.strips_right && !token.is_single_word &&
             head.ends_with(token.content);
    });
    if (is_plain && !may_grow(head, meter)) return head.size();
  }
  return 0;
}

}  // namespace baton
