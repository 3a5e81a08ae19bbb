/// Byte-pair encoding: turns a word into tokens by merging pairs of neighbours.
#include "text/models/bpe.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "text/split/component.h"
#include "text/split/unicode.h"

namespace baton {

namespace {

// For shorter words it is faster to look at all pairs again than to keep a heap of them.
constexpr std::size_t kFewSymbols = 32;

constexpr std::size_t kMaxMerges = std::size_t{1} << 24;

tl::unexpected<Error> invalid_bpe(std::string message) {
  return fail(ErrorCode::invalid_data, "tokenizer.json: the BPE model: " + std::move(message));
}

}  // namespace

Result<Bpe> Bpe::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  Bpe bpe;
  BATON_TRY_VOID(bpe.read_options(model));
  BATON_TRY(bpe.vocabulary_, Vocabulary::from_json(model, "BPE"));
  // A vocabulary that has every byte may name an unknown token that only the added tokens contain. It is never needed.
  bpe.unk_id_ = bpe.vocabulary_.id_of(bpe.unk_token_).value_or(-1);
  BATON_TRY_VOID(bpe.read_merges(model, is_special));
  bpe.prepare();
  return bpe;
}

Result<Bpe> Bpe::from_ranks(std::span<const std::string> tokens, TokenId first_id) {
  Bpe bpe;
  bpe.ignore_merges_ = true;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    if (!bpe.vocabulary_.insert(tokens[rank], first_id + static_cast<TokenId>(rank)))
      return fail(ErrorCode::invalid_data, fmt::format("token {} is there twice, or its id is over {}", rank, kMaxTokenId));
  bpe.is_special_.resize(static_cast<std::size_t>(bpe.vocabulary_.n_ids()));
  std::vector<Merge> merges;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (std::size_t cut = unicode::decode_front(token).n_bytes; cut < token.size();
         cut += unicode::decode_front(token.substr(cut)).n_bytes) {
      const std::optional<TokenId> left = bpe.vocabulary_.id_of(token.substr(0, cut));
      const std::optional<TokenId> right = left ? bpe.vocabulary_.id_of(token.substr(cut)) : std::nullopt;
      if (right)
        merges.push_back({pair_of(*left, *right), static_cast<std::uint32_t>(rank), first_id + static_cast<TokenId>(rank)});
    }
  }
  bpe.merges_.assign(std::bit_ceil(2 * merges.size() + 2), Merge{kNoPair, 0, -1});
  for (const Merge& merge : merges) bpe.place_of(merge.pair) = merge;
  bpe.prepare();
  return bpe;
}

/// The tables that follow from the vocabulary.
void Bpe::prepare() {
  for (unsigned byte = 0; byte < 256; ++byte)
    byte_tokens_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  for (std::size_t c = 0; c < characters_.size(); ++c)
    characters_[c] = vocabulary_.id_of(unicode::to_utf8(static_cast<char32_t>(c))).value_or(-1);
}

Result<void> Bpe::read_options(const json::Value& model) {
  constexpr std::string_view kRole = "BPE";
  BATON_TRY(const double dropout, component::get_or<double>(model, kRole, "dropout", 0));
  if (dropout != 0) return component::unsupported("BPE option", "dropout");
  BATON_TRY(prefix_, component::get_or<std::string>(model, kRole, "continuing_subword_prefix", std::string()));
  BATON_TRY(suffix_, component::get_or<std::string>(model, kRole, "end_of_word_suffix", std::string()));
  BATON_TRY(unk_token_, component::get_or<std::string>(model, kRole, "unk_token", std::string()));
  BATON_TRY(fuse_unk_, component::get_or<bool>(model, kRole, "fuse_unk", false));
  BATON_TRY(byte_fallback_, component::get_or<bool>(model, kRole, "byte_fallback", false));
  BATON_TRY(ignore_merges_, component::get_or<bool>(model, kRole, "ignore_merges", false));
  return {};
}

Bpe::Merge& Bpe::place_of(std::uint64_t pair) {
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & mask;
  while (merges_[at].pair != pair && merges_[at].pair != kNoPair) at = (at + 1) & mask;
  return merges_[at];
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & mask;; at = (at + 1) & mask) {
    const Merge& merge = merges_[at];
    if (merge.pair == pair) return &merge;
    if (merge.pair == kNoPair) return nullptr;
  }
}

Result<std::optional<Bpe::Merge>> Bpe::read_merge(const json::Value& value, std::uint32_t rank) const {
  std::string_view left;
  std::string_view right;
  if (value.is_string()) {
    const std::string_view both = value.get_ref<const std::string&>();
    if (both.starts_with("#version")) return std::optional<Merge>();
    const std::size_t space = both.find(' ');
    if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos)
      return invalid_bpe(fmt::format("merge {} '{}' is not two tokens with a space between them", rank, both));
    left = both.substr(0, space);
    right = both.substr(space + 1);
  } else if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    left = value[0].get_ref<const std::string&>();
    right = value[1].get_ref<const std::string&>();
  } else {
    return invalid_bpe(fmt::format("merge {} is neither a string nor a pair of strings", rank));
  }
  const std::optional<TokenId> left_id = vocabulary_.id_of(left);
  const std::optional<TokenId> right_id = vocabulary_.id_of(right);
  if (right.size() < prefix_.size()) return invalid_bpe(fmt::format("merge {}: '{}' is shorter than the prefix", rank, right));
  const std::optional<TokenId> merged = vocabulary_.id_of(std::string(left) + std::string(right.substr(prefix_.size())));
  if (!left_id || !right_id || !merged)
    return invalid_bpe(fmt::format("merge {} ('{}' and '{}') or what it makes is not in the vocabulary", rank, left, right));
  return std::optional<Merge>(Merge{pair_of(*left_id, *right_id), rank, *merged});
}

Result<void> Bpe::read_merges(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  is_special_.resize(static_cast<std::size_t>(vocabulary_.n_ids()));
  for (std::size_t id = 0; id < is_special_.size(); ++id)
    is_special_[id] = is_special(vocabulary_.text_of(static_cast<TokenId>(id)));

  const json::Value* list = json::find(model, "merges");
  if (list == nullptr || !list->is_array()) return invalid_bpe("'merges' must be a list");
  if (list->size() > kMaxMerges) return invalid_bpe(fmt::format("{} merges; at most {} are read", list->size(), kMaxMerges));
  merges_.assign(std::bit_ceil(2 * list->size() + 2), Merge{kNoPair, 0, -1});
  std::uint32_t rank = 0;
  for (const json::Value& value : *list) {
    BATON_TRY(const std::optional<Merge> merge, read_merge(value, rank));
    if (!merge) continue;
    ++rank;
    if (is_special_[static_cast<std::size_t>(merge->merged)]) continue;
    place_of(merge->pair) = *merge;
    if (!ignore_merges_) add_joint(vocabulary_.text_of(left_of(merge->pair)), vocabulary_.text_of(right_of(merge->pair)));
  }
  return {};
}

std::optional<TokenId> Bpe::id_of_character(std::string_view character) const {
  const auto first = static_cast<unsigned char>(character[0]);
  // Up to U+01FF a character is of one or two bytes; with a prefix or suffix it is of more.
  std::size_t code = characters_.size();
  if (character.size() == 1) code = first;
  if (character.size() == 2) code = ((first & 0x1Fu) << 6) | (static_cast<unsigned char>(character[1]) & 0x3Fu);
  if (code >= characters_.size() || !prefix_.empty() || !suffix_.empty()) return vocabulary_.id_of(character);
  return characters_[code] < 0 ? std::nullopt : std::optional(characters_[code]);
}

void Bpe::add_joint(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) return;  // no character becomes such a token
  const std::uint64_t last = unicode::decode_front(unicode::last_character(left)).code_point;
  joints_.insert((last << 32) | unicode::decode_front(right).code_point);
}

std::size_t Bpe::next_cut(std::string_view word, std::size_t from) const {
  // Whole words are looked up first, or a character depends on where in the word it stands.
  if (ignore_merges_ || !prefix_.empty() || !suffix_.empty()) return word.size();
  while (from < word.size() && (static_cast<unsigned char>(word[from]) & 0xC0) == 0x80) ++from;
  if (from >= word.size()) return word.size();
  unicode::Step step = unicode::decode_front(word.substr(from));
  std::string_view before = word.substr(from, step.n_bytes);
  std::uint64_t code_before = step.code_point;
  for (std::size_t at = from + before.size(); at < word.size();) {
    step = unicode::decode_front(word.substr(at));
    const std::string_view character = word.substr(at, step.n_bytes);
    // Characters that are no tokens become bytes or are joined to other unknown ones.
    if (!joints_.contains((code_before << 32) | step.code_point) && id_of_character(before) && id_of_character(character))
      return at;
    before = character;
    code_before = step.code_point;
    at += step.n_bytes;
  }
  return word.size();
}

void Bpe::split_characters(std::string_view word, Scratch& scratch, WorkMeter& meter) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  const auto add = [&](TokenId id) { symbols.push_back({id, 0, 0}); };
  bool is_unk_pending = false;
  const auto flush_unk = [&] {
    if (is_unk_pending) add(unk_id_);
    is_unk_pending = false;
  };
  for (std::size_t at = 0; at < word.size() && meter.spend(1);) {
    std::string_view character = word.substr(at, unicode::decode_front(word.substr(at)).n_bytes);
    const std::size_t begin = at;
    at += character.size();
    const bool has_prefix = begin > 0 && !prefix_.empty();
    const bool has_suffix = at == word.size() && !suffix_.empty();
    if (has_prefix || has_suffix) {
      scratch.character_ = has_prefix ? prefix_ : std::string();
      scratch.character_ += character;
      if (has_suffix) scratch.character_ += suffix_;
      character = scratch.character_;
    }
    if (const std::optional<TokenId> id = id_of_character(character)) {
      flush_unk();
      add(*id);
      continue;
    }
    const auto token_of = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
    if (byte_fallback_ && std::ranges::all_of(character, [&](char byte) { return token_of(byte) >= 0; })) {
      flush_unk();
      for (const char byte : character) add(token_of(byte));
      continue;
    }
    if (unk_id_ < 0) continue;
    if (!fuse_unk_) flush_unk();
    is_unk_pending = true;
  }
  flush_unk();
  if (!meter.is_within()) return;
  const auto n_symbols = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < n_symbols; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < n_symbols ? i + 1 : -1;
  }
}

/// Merges in a list without gaps: symbols_ shrinks.
void Bpe::merge_few(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& merges = scratch.merges_;  // of each symbol with the next
  merges.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) merges.push_back(find_merge(symbols[i].id, symbols[i + 1].id));
  while (true) {
    const Merge* best = nullptr;
    std::size_t place = 0;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      if (merges[i] == nullptr || (best != nullptr && merges[i]->rank >= best->rank)) continue;
      best = merges[i];
      place = i;
    }
    if (best == nullptr) break;
    symbols[place].id = best->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(place));
    if (place > 0) merges[place - 1] = find_merge(symbols[place - 1].id, symbols[place].id);
    if (place < merges.size()) merges[place] = find_merge(symbols[place].id, symbols[place + 1].id);
  }
}

/// Merges in a linked list: symbols that are merged away get kDead.
void Bpe::merge_many(Scratch& scratch, WorkMeter& meter) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  const auto at = [&](std::int32_t position) -> Scratch::Symbol& { return symbols[static_cast<std::size_t>(position)]; };
  const auto merge_at = [&](std::int32_t position) { return find_merge(at(position).id, at(at(position).next).id); };

  heap.clear();
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()) && meter.spend(1); ++i)
    if (const Merge* merge = merge_at(i)) heap.push_back({merge->rank, i, merge->merged});
  std::make_heap(heap.begin(), heap.end());

  const auto push = [&](std::int32_t position) {
    if (const Merge* merge = merge_at(position)) {
      heap.push_back({merge->rank, position, merge->merged});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  while (!heap.empty() && meter.spend(4)) {
    std::pop_heap(heap.begin(), heap.end());
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = at(best.position);
    if (left.next < 0) continue;
    // The neighbours may have changed since the candidate was inserted.
    const Merge* merge = merge_at(best.position);
    if (merge == nullptr || merge->merged != best.merged) continue;
    Scratch::Symbol& right = at(left.next);
    left.id = best.merged;
    left.next = right.next;
    right.next = kDead;
    if (left.next >= 0) at(left.next).previous = best.position;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(best.position);
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out, WorkMeter& meter) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    const std::optional<TokenId> id = vocabulary_.id_of(word);
    if (id && !is_special_[static_cast<std::size_t>(*id)]) {
      out.push_back(*id);
      return;
    }
  }
  split_characters(word, scratch, meter);
  const auto is_few = scratch.symbols_.size() <= kFewSymbols;
  if (is_few)
    merge_few(scratch);
  else
    merge_many(scratch, meter);
  if (!meter.is_within()) return;
  for (const Scratch::Symbol& symbol : scratch.symbols_)
    if (is_few || symbol.next != kDead) out.push_back(symbol.id);
}

}  // namespace baton
