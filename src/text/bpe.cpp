/// Byte-pair encoding: turns a word into tokens by merging pairs of neighbours.
#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "text/component.h"
#include "text/unicode.h"

namespace baton {

namespace {

// Words of ordinary text repeat, but long ones do not; leaving them out keeps the table small.
constexpr std::size_t kMaxCachedWordBytes = 64;
constexpr std::size_t kMaxCachedWords = 16384;

constexpr std::size_t kMaxMerges = std::size_t{1} << 24;

tl::unexpected<Error> invalid_bpe(std::string message) {
  return fail(ErrorCode::invalid_data, "tokenizer.json: the BPE model: " + std::move(message));
}

}  // namespace

Result<Bpe> Bpe::from_json(const json::Value& model, const std::function<bool(std::string_view)>& is_special) {
  Bpe bpe;
  BATON_TRY_VOID(bpe.read_options(model));
  BATON_TRY_VOID(bpe.read_vocabulary(model));
  BATON_TRY_VOID(bpe.read_merges(model, is_special));
  return bpe;
}

Result<void> Bpe::read_options(const json::Value& model) {
  constexpr std::string_view kRole = "BPE";
  BATON_TRY(const double dropout, component::get_or<double>(model, kRole, "dropout", 0));
  if (dropout != 0) return component::unsupported("BPE option", "dropout");
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    BATON_TRY(const std::string text, component::get_or<std::string>(model, kRole, affix, std::string()));
    if (!text.empty()) return component::unsupported("BPE option", affix);
  }
  BATON_TRY(unk_token_, component::get_or<std::string>(model, kRole, "unk_token", std::string()));
  BATON_TRY(fuse_unk_, component::get_or<bool>(model, kRole, "fuse_unk", false));
  BATON_TRY(byte_fallback_, component::get_or<bool>(model, kRole, "byte_fallback", false));
  BATON_TRY(ignore_merges_, component::get_or<bool>(model, kRole, "ignore_merges", false));
  return {};
}

Result<void> Bpe::read_vocabulary(const json::Value& model) {
  const json::Value* vocab = json::find(model, "vocab");
  if (vocab == nullptr || !vocab->is_object()) return invalid_bpe("'vocab' must be an object");
  for (auto entry = vocab->begin(); entry != vocab->end(); ++entry) {
    auto id = json::to_int64(entry.value(), entry.key(), 0, kMaxTokenId);
    if (!id) return invalid_bpe("'vocab': " + id.error().message);
    vocabulary_.insert(entry.key(), static_cast<TokenId>(*id));
  }
  // A vocabulary that has every byte may name an unknown token that only the added tokens contain. It is never needed.
  unk_id_ = vocabulary_.id_of(unk_token_).value_or(-1);
  for (unsigned byte = 0; byte < 256; ++byte)
    byte_tokens_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
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
  const std::optional<TokenId> merged = vocabulary_.id_of(std::string(left) + std::string(right));
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
    if (!is_special_[static_cast<std::size_t>(merge->merged)]) place_of(merge->pair) = *merge;
  }
  return {};
}

void Bpe::split_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  const auto add = [&](TokenId id) { symbols.push_back({id, 0, 0}); };
  bool is_unk_pending = false;
  const auto flush_unk = [&] {
    if (is_unk_pending) add(unk_id_);
    is_unk_pending = false;
  };
  while (!word.empty()) {
    const std::string_view character = word.substr(0, unicode::decode_front(word).n_bytes);
    word.remove_prefix(character.size());
    if (const std::optional<TokenId> id = vocabulary_.id_of(character)) {
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
  const auto n_symbols = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < n_symbols; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < n_symbols ? i + 1 : -1;
  }
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  const auto at = [&](std::int32_t position) -> Scratch::Symbol& { return symbols[static_cast<std::size_t>(position)]; };
  const auto merge_at = [&](std::int32_t position) { return find_merge(at(position).id, at(at(position).next).id); };

  heap.clear();
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i)
    if (const Merge* merge = merge_at(i)) heap.push_back({merge->rank, i, merge->merged});
  std::make_heap(heap.begin(), heap.end());

  const auto push = [&](std::int32_t position) {
    if (const Merge* merge = merge_at(position)) {
      heap.push_back({merge->rank, position, merge->merged});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  while (!heap.empty()) {
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

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    const std::optional<TokenId> id = vocabulary_.id_of(word);
    if (id && !is_special_[static_cast<std::size_t>(*id)]) {
      out.push_back(*id);
      return;
    }
  }
  const bool is_cacheable = word.size() <= kMaxCachedWordBytes;
  std::string key;
  if (is_cacheable) {
    key = word;
    if (const auto found = scratch.words_.find(key); found != scratch.words_.end()) {
      out.insert(out.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  split_characters(word, scratch.symbols_);
  merge_all(scratch);
  const std::size_t first_new = out.size();
  for (const Scratch::Symbol& symbol : scratch.symbols_)
    if (symbol.next != kDead) out.push_back(symbol.id);
  if (is_cacheable && scratch.words_.size() < kMaxCachedWords)
    scratch.words_.emplace(std::move(key),
                           std::vector<TokenId>(out.begin() + static_cast<std::ptrdiff_t>(first_new), out.end()));
}

}  // namespace baton
