/// The tokenizer: text to token ids and back.
#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "io/file.h"
#include "io/json.h"
#include "text/split/component.h"
#include "text/split/unicode.h"
#include "text/tokenizer/tekken.h"
#include "text/tokenizer/tiktoken_model.h"
#include "text/tokenizer/tokenizer_class.h"

namespace baton {

namespace {

constexpr std::size_t kMaxKeptTextBytes = std::size_t{1} << 20;
constexpr const char* kEncoding = "the tokenization of a text";
constexpr const char* kTiktokenModel = "tiktoken.model";

tl::unexpected<Error> damaged(std::string message) {
  return fail(ErrorCode::invalid_data, "tokenizer.json: " + std::move(message));
}

const json::Value& field_or_null(const json::Value& object, std::string_view key) {
  static const json::Value kNull;
  const json::Value* value = json::find(object, key);
  return value == nullptr ? kNull : *value;
}

Result<std::vector<AddedToken>> added_tokens_of(const json::Value& root) {
  std::vector<AddedToken> tokens;
  const json::Value& list = field_or_null(root, "added_tokens");
  if (list.is_null()) return tokens;
  if (!list.is_array()) return damaged("'added_tokens' must be a list");
  for (const json::Value& value : list) {
    BATON_TRY(AddedToken token, AddedToken::from_json(value, std::nullopt));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// BPE files of the first releases give no type; those with merges are BPE, a list of pieces is Unigram's.
std::string type_without_name(const json::Value& model) {
  const json::Value* vocab = json::find(model, "vocab");
  if (json::find(model, "merges") != nullptr) return "BPE";
  return vocab != nullptr && vocab->is_array() ? "Unigram" : "without type";
}

}  // namespace

Result<Tokenizer::Model> Tokenizer::read_model(const json::Value& root, const std::vector<AddedToken>& added,
                                               const TokenizerConfig& config) {
  const json::Value& model = field_or_null(root, "model");
  if (!model.is_object()) return damaged("there is no 'model'");
  BATON_TRY(const std::string type, component::get_or<std::string>(model, "model", "type", type_without_name(model)));
  std::set<std::string, std::less<>> special(config.special_tokens.begin(), config.special_tokens.end());
  for (const auto* tokens : {&added, &config.added_tokens})
    for (const AddedToken& token : *tokens)
      if (token.is_special) special.insert(token.content);
  const auto is_special = [&](std::string_view text) { return special.contains(text); };
  if (type == "BPE") return Bpe::from_json(model, is_special);
  if (type == "Unigram") return Unigram::from_json(model, is_special);
  return component::unsupported("model", type);
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  std::error_code error;
  BATON_TRY(TokenizerConfig config, TokenizerConfig::load(folder));
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model", kTiktokenModel})
    if (std::filesystem::exists(folder / name, error)) return from_file(folder / name, std::move(config));
  if (std::filesystem::exists(folder / "vocab.json", error) && std::filesystem::exists(folder / "merges.txt", error))
    return from_vocab_and_merges(folder, std::move(config));
  return fail(
      ErrorCode::not_found,
      fmt::format("{}: neither tokenizer.json nor tekken.json nor tokenizer.model nor tiktoken.model nor vocab.json and "
                  "merges.txt is there",
                  folder.string()));
}

Result<Tokenizer> Tokenizer::from_vocab_and_merges(const std::filesystem::path& folder, TokenizerConfig config) {
  BATON_TRY(json::Value vocab, json::parse_file(folder / "vocab.json"));
  BATON_TRY(const std::string merges, read_file(folder / "merges.txt"));
  json::Value added;
  if (std::error_code error; std::filesystem::exists(folder / "added_tokens.json", error)) {
    BATON_TRY(added, json::parse_file(folder / "added_tokens.json"));
  }
  BATON_TRY(const json::Value root, root_for_class(std::move(vocab), merges, added, config));
  return from_tokenizer_json(root, std::move(config));
}

Result<Tokenizer> Tokenizer::from_file(const std::filesystem::path& file, TokenizerConfig config) {
  BATON_TRY(const std::string bytes, read_file(file));
  if (file.filename() == kTiktokenModel) return from_tiktoken(bytes, std::move(config));
  // A SentencePiece model begins with the tag of its first field, which no JSON does.
  const std::size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && bytes[begin] == '{') return from_any_json(bytes, file.string(), std::move(config));
  if (TiktokenModel::is_begin(bytes))
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: a vocabulary of tiktoken, which does not say where words end, and Baton knows that of {} alone "
                    "(Kimi, Moonlight); convert it to a tokenizer.json (Transformers' TikTokenConverter takes the pattern)",
                    file.string(), kTiktokenModel));
  BATON_TRY(SentencePieceModel model, SentencePieceModel::from_bytes(bytes, file.string(), config.sentencepiece));
  return from_sentencepiece(std::move(model), std::move(config));
}

Result<Tokenizer> Tokenizer::load_file(const std::filesystem::path& file) { return from_file(file, {}); }

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  BATON_TRY(TokenizerConfig config, TokenizerConfig::from_json(tokenizer_config_json));
  return from_any_json(tokenizer_json, "tokenizer.json", std::move(config));
}

Result<Tokenizer> Tokenizer::from_any_json(std::string_view text, std::string_view what, TokenizerConfig config) {
  auto root = json::parse(text, what);
  if (!root) return fail(ErrorCode::invalid_data, root.error().message);
  if (!root->is_object()) return damaged("must be an object");
  const bool is_tekken = json::find(*root, "model") == nullptr && json::find(*root, "config") != nullptr;
  if (is_tekken) return from_tekken(*root, std::move(config));
  config.add_bos_token.reset();
  config.add_eos_token.reset();
  rebuild_for_class(*root, config);
  return from_tokenizer_json(*root, std::move(config));
}

Result<Tokenizer> Tokenizer::from_tokenizer_json(const json::Value& root, TokenizerConfig config) {
  BATON_TRY(std::vector<AddedToken> added, added_tokens_of(root));
  BATON_TRY(Model model, read_model(root, added, config));

  Tokenizer tokenizer(std::move(model), std::move(config));
  BATON_TRY(tokenizer.normalizer_, Normalizer::from_json(field_or_null(root, "normalizer")));
  BATON_TRY(tokenizer.pre_tokenizer_, PreTokenizer::from_json(field_or_null(root, "pre_tokenizer")));
  BATON_TRY(tokenizer.post_processor_, PostProcessor::from_json(field_or_null(root, "post_processor")));
  BATON_TRY(tokenizer.decoder_, TokenDecoder::from_json(field_or_null(root, "decoder")));
  // Transformers heeds the option for words that were cut at spaces and punctuation, not for BPE.
  if (tokenizer.config_.clean_up_tokenization_spaces && !std::holds_alternative<Bpe>(tokenizer.model_))
    tokenizer.decoder_.clean_up_spaces();
  for (AddedToken& token : added) BATON_TRY_VOID(tokenizer.add_token(std::move(token)));
  BATON_TRY_VOID(tokenizer.add_tokens_of_config());
  BATON_TRY_VOID(tokenizer.set_ends());
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_tekken(const json::Value& root, TokenizerConfig config) {
  BATON_TRY(const Tekken tekken, Tekken::from_json(root));
  const auto name = [&](std::string& token, const char* otherwise) {
    if (token.empty() && std::ranges::find(tekken.special_tokens, otherwise) != tekken.special_tokens.end()) token = otherwise;
  };
  name(config.bos_token, "<s>");
  name(config.eos_token, "</s>");
  std::vector<AddedToken> special;
  for (const std::string& token : tekken.special_tokens)
    special.push_back(
        {.content = token, .id = static_cast<TokenId>(special.size()), .is_special = true, .is_normalized = false});
  const Ranks ranks{"tekken.json: vocab", tekken.tokens, static_cast<TokenId>(special.size()), tekken.pattern};
  return from_ranks(ranks, std::move(special), std::move(config));
}

Result<Tokenizer> Tokenizer::from_tiktoken(std::string_view text, TokenizerConfig config) {
  BATON_TRY(TiktokenModel file, TiktokenModel::from_text(text, config));
  // The class puts nothing around texts.
  config.add_bos_token.reset();
  config.add_eos_token.reset();
  return from_ranks({"tiktoken.model", file.tokens, 0, TiktokenModel::kPattern}, std::move(file.special), std::move(config));
}

Result<Tokenizer> Tokenizer::from_ranks(const Ranks& ranks, std::vector<AddedToken> special, TokenizerConfig config) {
  auto model = Bpe::from_ranks(ranks.tokens, ranks.first_id);
  if (!model) return fail(model.error().code, fmt::format("{}: {}", ranks.file, model.error().message));
  Tokenizer tokenizer(std::move(*model), std::move(config));
  const json::Value byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json::Value split = {{"type", "Split"}, {"pattern", {{"Regex", ranks.pattern}}}, {"behavior", "Isolated"}};
  BATON_TRY(tokenizer.pre_tokenizer_,
            PreTokenizer::from_json({{"type", "Sequence"}, {"pretokenizers", json::Value::array({split, byte_level})}}));
  BATON_TRY(tokenizer.decoder_, TokenDecoder::from_json(byte_level));
  for (AddedToken& token : special) BATON_TRY_VOID(tokenizer.added_tokens_.add(std::move(token), tokenizer.normalizer_));
  BATON_TRY_VOID(tokenizer.add_tokens_of_config());
  BATON_TRY_VOID(tokenizer.set_ends());
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_sentencepiece(SentencePieceModel model, TokenizerConfig config) {
  // The defaults of Transformers.
  config.add_bos_token = config.add_bos_token.value_or(model.bos() >= 0);
  config.add_eos_token = config.add_eos_token.value_or(false);
  const auto name = [&](std::string& token, TokenId id) {
    if (token.empty() && id >= 0) token = model.vocabulary().text_of(id);
  };
  name(config.bos_token, model.bos());
  name(config.eos_token, model.eos());

  std::vector<AddedToken> special;
  for (TokenId id = 0; id < model.vocabulary().n_ids(); ++id)
    if (model.is_special(id))
      special.push_back(
          {.content = std::string(model.vocabulary().text_of(id)), .id = id, .is_special = true, .is_normalized = false});

  const bool adds_space = model.adds_space();
  Tokenizer tokenizer(std::move(model), std::move(config));
  tokenizer.decoder_ = TokenDecoder::for_sentencepiece(adds_space);
  for (AddedToken& token : special) BATON_TRY_VOID(tokenizer.add_token(std::move(token)));
  BATON_TRY_VOID(tokenizer.add_tokens_of_config());
  BATON_TRY_VOID(tokenizer.set_ends());
  return tokenizer;
}

const Vocabulary& Tokenizer::model_vocabulary() const {
  return std::visit([](const auto& model) -> const Vocabulary& { return model.vocabulary(); }, model_);
}

Result<void> Tokenizer::add_token(AddedToken token) {
  // A token that the model also has keeps the model's id.
  if (const std::optional<TokenId> id = model_vocabulary().id_of(token.content)) token.id = *id;
  return added_tokens_.add(std::move(token), normalizer_);
}

Result<void> Tokenizer::add_tokens_of_config() {
  for (const AddedToken& token : config_.added_tokens) {
    const TokenId id = token.id;
    const std::string_view owner =
        added_tokens_.contains(id) ? added_tokens_.vocabulary().text_of(id) : model_vocabulary().text_of(id);
    if (!owner.empty() && owner != token.content && !id_of(token.content))
      return fail(ErrorCode::invalid_data,
                  fmt::format("tokenizer_config.json: the token '{}' has the id {}, which is that of '{}'", token.content,
                              token.id, owner));
    BATON_TRY_VOID(add_token(token));
  }
  for (const std::string& text : config_.special_tokens)
    if (const std::optional<TokenId> id = id_of(text))
      BATON_TRY_VOID(add_token({.content = text, .id = *id, .is_special = true, .is_normalized = false}));
  return {};
}

Result<void> Tokenizer::set_ends() {
  bos_ = id_of(config_.bos_token);
  eos_ = id_of(config_.eos_token);
  if (!config_.bos_token.empty()) config_.role_tokens.emplace("bos_token", config_.bos_token);
  if (!config_.eos_token.empty()) config_.role_tokens.emplace("eos_token", config_.eos_token);
  if (config_.add_bos_token || config_.add_eos_token) {
    if (config_.add_bos_token.value_or(false)) {
      if (!bos_) return fail(ErrorCode::invalid_data, "tokenizer_config.json: add_bos_token without a known bos_token");
      post_processor_.before = {*bos_};
    }
    if (config_.add_eos_token.value_or(false)) {
      if (!eos_) return fail(ErrorCode::invalid_data, "tokenizer_config.json: add_eos_token without a known eos_token");
      post_processor_.after = {*eos_};
    }
  }
  for (const auto* side : {&post_processor_.before, &post_processor_.after})
    for (const TokenId id : *side)
      if (id < 0 || id > kMaxTokenId) return damaged(fmt::format("the post_processor puts the id {} around texts", id));
  return {};
}

void Tokenizer::encode_word(std::string_view word, Encoding& out) const {
  const auto* const bpe = std::get_if<Bpe>(&model_);
  while (bpe != nullptr && word.size() > WordCache::kMaxWordBytes) {
    const std::size_t length = bpe->next_cut(word, 0);
    if (length == word.size() || !out.meter.spend(1 + static_cast<std::int64_t>(length / 4))) break;
    encode_part(word.substr(0, length), out);
    word.remove_prefix(length);
  }
  encode_part(word, out);
}

void Tokenizer::encode_part(std::string_view word, Encoding& out) const {
  EncodeScratch& scratch = out.scratch;
  if (!out.meter.spend(2 + static_cast<std::int64_t>(word.size() / 16))) return;
  if (const auto known = scratch.words.find(word)) {
    out.ids.insert(out.ids.end(), known->begin(), known->end());
    return;
  }
  const std::size_t n_before = out.ids.size();
  if (const auto* bpe = std::get_if<Bpe>(&model_))
    bpe->encode(word, scratch.bpe, out.ids, out.meter);
  else
    std::get<Unigram>(model_).encode(word, scratch.unigram, out.ids, out.meter);
  // Later calls use the words too, so that they must be whole.
  if (out.meter.is_within()) scratch.words.insert(word, std::span(out.ids).subspan(n_before));
}

void Tokenizer::encode_words(const PieceList& words, Encoding& out) const {
  for (const PieceList::Piece& piece : words.pieces) {
    if (!out.meter.is_within()) return;
    encode_word(std::string_view(words.text).substr(piece.range.begin, piece.range.end - piece.range.begin), out);
  }
}

void Tokenizer::encode_normalized(std::string_view text, bool begins_input, Encoding& out) const {
  if (const auto* model = std::get_if<SentencePieceModel>(&model_)) {
    // The library's work on a text cannot be interrupted.
    if (out.meter.spend(1 + 4 * static_cast<std::int64_t>(text.size()))) model->encode(text, begins_input, out.ids);
    return;
  }
  if (team_ != nullptr && text.size() >= team_->least_bytes && team_->is_busy.try_lock()) {
    const MutexLock lock(team_->is_busy, std::adopt_lock);
    return encode_long(text, begins_input, team_->parallel, out);
  }
  encode_words(pre_tokenizer_.split({std::string(text), {{{0, text.size()}, begins_input}}}, out.meter), out);
}

namespace {

/// The words cut where no merge reaches, so that none has many more than `n_bytes`.
PieceList cut_long_words(const Bpe& bpe, PieceList words, std::size_t n_bytes) {
  std::vector<PieceList::Piece> pieces;
  for (PieceList::Piece piece : words.pieces) {
    while (piece.range.end - piece.range.begin > n_bytes) {
      const std::string_view word = std::string_view(words.text).substr(piece.range.begin, piece.range.end - piece.range.begin);
      const std::size_t cut = piece.range.begin + bpe.next_cut(word, n_bytes);
      pieces.push_back({{piece.range.begin, cut}, piece.begins_input});
      piece = {{cut, piece.range.end}, false};
    }
    if (piece.range.begin < piece.range.end) pieces.push_back(piece);
  }
  words.pieces = std::move(pieces);
  return words;
}

}  // namespace

/// By the threads of `parallel`, which have no other work meanwhile.
void Tokenizer::encode_long(std::string_view text, bool begins_input, const Parallel& parallel, Encoding& out) const {
  constexpr std::size_t kGroupsForThread = 4;
  const auto n_threads = static_cast<std::size_t>(parallel.n_threads());
  const std::size_t n_groups = kGroupsForThread * n_threads;
  PieceList words{std::string(text), {{{0, text.size()}, begins_input}}};
  std::vector<PieceList> groups = pre_tokenizer_.begin(std::move(words), n_groups, parallel, out.meter);
  const bool is_whole = groups.size() == 1;
  if (is_whole) {
    // Nothing cuts the text into words, but a BPE still falls into parts.
    PieceList finished = pre_tokenizer_.finish(std::move(groups[0]), out.meter);
    if (const auto* bpe = std::get_if<Bpe>(&model_))
      finished = cut_long_words(*bpe, std::move(finished), finished.text.size() / n_groups + 1);
    groups = grouped(std::move(finished), n_groups);
  }

  std::vector<std::unique_ptr<EncodeScratch>> scratches(n_threads);
  std::vector<std::vector<TokenId>> ids(groups.size());
  parallel.for_parts(static_cast<std::int64_t>(groups.size()), [&](std::int64_t part, int thread) {
    const auto i = static_cast<std::size_t>(part);
    auto& scratch = scratches[static_cast<std::size_t>(thread)];
    if (scratch == nullptr) scratch = scratches_->take();
    WorkMeter meter(out.meter.budget());
    Encoding own{*scratch, meter, ids[i]};
    encode_words(is_whole ? groups[i] : pre_tokenizer_.finish(std::move(groups[i]), meter), own);
  });
  for (const std::vector<TokenId>& some : ids) out.ids.insert(out.ids.end(), some.begin(), some.end());
  for (std::unique_ptr<EncodeScratch>& scratch : scratches)
    if (scratch != nullptr && text.size() <= kMaxKeptTextBytes) scratches_->give_back(std::move(scratch));
}

void Tokenizer::use_threads(int n_threads, std::size_t least_bytes) {
  if (n_threads == 0) n_threads = n_available_threads();
  team_.reset(n_threads <= 1 ? nullptr : new Team{.is_busy = {}, .parallel = Parallel(n_threads), .least_bytes = least_bytes});
}

/// Appends the ids of `text`, which is valid UTF-8, from the byte `from` on.
void Tokenizer::encode_parts(std::string_view text, bool with_special, std::size_t from, Encoding& out) const {
  const auto* const sentencepiece = std::get_if<SentencePieceModel>(&model_);
  for (const AddedTokens::Part& part : added_tokens_.split_raw(text, with_special, from, out.meter)) {
    if (!out.meter.spend(1)) return;
    if (part.id) {
      if (part.range.begin == 0 && sentencepiece != nullptr) sentencepiece->encode({}, /*begins_input=*/true, out.ids);
      out.ids.push_back(*part.id);
      continue;
    }
    const std::string_view segment = text.substr(part.range.begin, part.range.end - part.range.begin);
    const std::string normalized = normalizer_.normalize(segment, out.meter);
    for (const AddedTokens::Part& inner : added_tokens_.split_normalized(normalized, with_special, out.meter)) {
      if (!out.meter.spend(1)) return;
      if (inner.id) {
        out.ids.push_back(*inner.id);
        continue;
      }
      const TextRange range = inner.range;
      encode_normalized(std::string_view(normalized).substr(range.begin, range.end - range.begin),
                        part.range.begin == 0 && range.begin == 0, out);
    }
  }
  auto& ids = out.ids;
  if (sentencepiece != nullptr && ids.size() > 1 && ids[0] == sentencepiece->dropped_space() && is_special(ids[1]))
    ids.erase(ids.begin());
}

/// `head` is empty or at the beginning of `text`.
Result<std::vector<TokenId>> Tokenizer::encode_text(std::string_view text, bool with_special, const EncodedHead& head,
                                                    WorkBudget& budget) const {
  WorkMeter meter(budget);
  std::string repaired;
  meter.pass(text.size());
  if (!unicode::is_valid_utf8(text)) {
    if (meter.write(3 * text.size())) repaired = unicode::to_valid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids = head.ids;
  std::unique_ptr<EncodeScratch> scratch = scratches_->take();
  Encoding out{*scratch, meter, ids};
  encode_parts(text, with_special, head.text.size(), out);
  // Long texts make memory grow that short ones do not need.
  if (text.size() <= kMaxKeptTextBytes) scratches_->give_back(std::move(scratch));
  if (budget.is_over()) return tl::unexpected<Error>(budget.error(kEncoding));
  return ids;
}

WorkLimits Tokenizer::limits_for(std::size_t n_bytes) {
  // Known tokenizers need up to about 10 steps a byte, and write it up to 5 times.
  return {.steps = 50'000'000 + 256 * static_cast<std::int64_t>(n_bytes),
          .bytes = (std::int64_t{256} << 20) + 64 * static_cast<std::int64_t>(n_bytes)};
}

Result<EncodedHead> Tokenizer::encode_head(std::string_view text, WorkBudget& budget) const {
  if (!unicode::is_valid_utf8(text)) return EncodedHead();
  std::size_t n_bytes = 0;
  {
    WorkMeter meter(budget);
    n_bytes = added_tokens_.last_sure_cut(text, meter);
  }
  if (budget.is_over()) return tl::unexpected<Error>(budget.error(kEncoding));
  const std::string_view head = text.substr(0, n_bytes);
  BATON_TRY(std::vector<TokenId> ids, encode_text(head, true, {}, budget));
  return EncodedHead{std::string(head), std::move(ids)};
}

EncodedHead Tokenizer::encode_head(std::string_view text) const { return *encode_head(text, UnlimitedWork().budget()); }

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, bool add_special_tokens, WorkBudget& budget) const {
  return encode_behind({}, text, add_special_tokens, budget);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return encode_behind({}, text, add_special_tokens);
}

Result<std::vector<TokenId>> Tokenizer::encode_behind(const EncodedHead& head, std::string_view text, bool add_special_tokens,
                                                      WorkBudget& budget) const {
  BATON_TRY(std::vector<TokenId> ids, encode_text(text, true, text.starts_with(head.text) ? head : EncodedHead(), budget));
  if (add_special_tokens) {
    ids.insert(ids.begin(), post_processor_.before.begin(), post_processor_.before.end());
    ids.insert(ids.end(), post_processor_.after.begin(), post_processor_.after.end());
  }
  return ids;
}

std::vector<TokenId> Tokenizer::encode_behind(const EncodedHead& head, std::string_view text, bool add_special_tokens) const {
  return *encode_behind(head, text, add_special_tokens, UnlimitedWork().budget());
}

std::vector<TokenId> Tokenizer::encode_plain(std::string_view text) const {
  return *encode_text(text, false, {}, UnlimitedWork().budget());
}

std::vector<TokenId> Tokenizer::encode_plain_behind(std::string_view text) const {
  // A line end in front takes the space, and stays a token of its own unless the text begins with one.
  for (const std::string_view in_front : {"", "\n"}) {
    std::vector<TokenId> ids = encode_plain(std::string(in_front) + std::string(text));
    std::string bytes;
    auto begin = ids.rbegin();  // of the tokens that are the text
    for (auto id = ids.rbegin(); id != ids.rend() && bytes.size() < text.size(); ++id) {
      bytes = token_bytes(*id) + bytes;
      begin = id + 1;
    }
    if (bytes != text) continue;
    ids.erase(ids.begin(), begin.base());
    return ids;
  }
  return {};
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  TokenDecoder::Stream stream(decoder_);
  for (const TokenId id : ids)
    if (contains(id) && !(skip_special_tokens && is_special(id))) stream.push(token_text(id), text);
  stream.finish(text);
  return text;
}

bool Tokenizer::contains(TokenId id) const { return added_tokens_.contains(id) || model_vocabulary().contains(id); }

std::string Tokenizer::token_bytes(TokenId id) const {
  return contains(id) ? decoder_.bytes_of(token_text(id)) : std::string();
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return added_tokens_.contains(id) ? added_tokens_.text_of(id) : model_vocabulary().text_of(id);
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  const std::optional<TokenId> added = added_tokens_.vocabulary().id_of(token);
  return added ? added : model_vocabulary().id_of(token);
}

int Tokenizer::n_vocab() const { return std::max(added_tokens_.vocabulary().n_ids(), model_vocabulary().n_ids()); }

}  // namespace baton
