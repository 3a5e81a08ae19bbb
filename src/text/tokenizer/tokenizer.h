/// The tokenizer: text to token ids and back, by Hugging Face's tokenizer.json, Mistral's tekken.json, SentencePiece's
/// tokenizer.model, Moonshot's tiktoken.model, or vocab.json and merges.txt.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/limits/work_budget.h"
#include "core/mutex.h"
#include "core/parallel.h"
#include "core/result.h"
#include "text/models/bpe.h"
#include "text/models/unigram.h"
#include "text/split/normalizer.h"
#include "text/split/pre_tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/scratch_pool.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/token_decoder.h"
#include "text/tokenizer/tokenizer_config.h"

namespace baton {

/// The beginning of a text and its ids, which are the same whatever comes after it (see Tokenizer::encode_head).
struct EncodedHead {
  std::string text;
  std::vector<TokenId> ids;
};

/// A model's tokenizer: normaliser, pre-tokeniser, model (BPE or Unigram), post-processor and decoder, and the
/// tokens added to the vocabulary. Ids equal those of Hugging Face `tokenizers` for the same files.
///
/// Immutable but for the words it remembers, and move-only; views it returns live as long as it does. Thread: any,
/// several at once.
class Tokenizer {
 public:
  /// Reads tokenizer.json of a folder, where there is none tekken.json, then tokenizer.model, then tiktoken.model, then vocab.json and
  /// merges.txt; and beside it, as far as they exist: tokenizer_config.json, special_tokens_map.json,
  /// the type of the model in config.json, chat_template.jinja, chat_template.json. The class that Transformers 5 takes
  /// for these may replace parts of a tokenizer.json (see rebuild_for_class).
  /// Errors: not_found, invalid_data (a damaged file), unsupported (names the component that Baton does not support).
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  /// The tokenizer of one file, with nothing from the files beside it: a tokenizer.json or tekken.json (their text begins
  /// with "{"), a tiktoken.model (so named) or a SentencePiece model.
  static Result<Tokenizer> load_file(const std::filesystem::path& file);

  /// The same from the files' texts; `tokenizer_config_json` may be empty.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);

  /// Lets so many threads (0: n_available_threads) encode a text together where at least `least_bytes` of it lie between
  /// two added tokens. The ids do not change. One text at a time is encoded so, others meanwhile by their callers alone.
  /// Before the tokenizer is shared.
  void use_threads(int n_threads, std::size_t least_bytes);
  /// Below this, starting threads takes longer than they save.
  static constexpr std::size_t kLongTextBytes = std::size_t{64} << 10;

  /// The ids of `text`. Tokens added to the vocabulary, special ones too, are recognised where the text spells them.
  /// `add_special_tokens` puts the beginning and end around them that the post-processor asks for, or, where the file has
  /// none by its kind, add_bos_token and add_eos_token. Bytes that are not UTF-8 are read as U+FFFD.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;
  /// The same within a budget. Errors: those of WorkBudget.
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens, WorkBudget& budget) const;
  /// What encoding a text of so many bytes may take at most: several times what any known tokenizer needs.
  static WorkLimits limits_for(std::size_t n_bytes);

  /// The longest beginning of `text` that ends with an added token (such as a role token of a chat template) at which
  /// every text with this beginning is cut; empty if there is none.
  EncodedHead encode_head(std::string_view text) const;
  Result<EncodedHead> encode_head(std::string_view text, WorkBudget& budget) const;
  /// The same ids as encode. For a text that begins with `head`, only the rest is encoded.
  std::vector<TokenId> encode_behind(const EncodedHead& head, std::string_view text, bool add_special_tokens) const;
  Result<std::vector<TokenId>> encode_behind(const EncodedHead& head, std::string_view text, bool add_special_tokens,
                                             WorkBudget& budget) const;

  /// The ids of untrusted text: nothing in it becomes a special token of more than one character, and no special token
  /// is added.
  std::vector<TokenId> encode_plain(std::string_view text) const;
  /// The same for text that stands after other text: without the space that some tokenizers put in front of the first
  /// word. Empty where such ids are not found; otherwise token_bytes of them are the text.
  std::vector<TokenId> encode_plain_behind(std::string_view text) const;

  /// The text of `ids`, always valid UTF-8; incomplete characters become U+FFFD and unknown ids nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// The bytes that this token adds when other tokens came before it; not always UTF-8 by themselves. Empty for
  /// unknown ids.
  std::string token_bytes(TokenId id) const;

  /// Whether `id` is a token.
  bool contains(TokenId id) const;
  /// The vocabulary's spelling ("Ġthe", "▁the", "<0x0A>"); empty for unknown ids.
  std::string_view token_text(TokenId id) const;
  std::optional<TokenId> id_of(std::string_view token) const;
  bool is_special(TokenId id) const { return added_tokens_.is_special(id); }
  /// Largest id + 1.
  int n_vocab() const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  /// The tokens with a name, as chat templates see them: bos_token, eos_token, pad_token...
  const std::map<std::string, std::string, std::less<>>& role_tokens() const { return config_.role_tokens; }
  /// The sources of the chat templates by name; empty if there are none.
  const TemplateSources& chat_templates() const { return config_.chat_templates; }

  /// Joins token texts; for StreamDecoder.
  const TokenDecoder& decoder() const { return decoder_; }

 private:
  using Model = std::variant<Bpe, Unigram, SentencePieceModel>;

  Tokenizer(Model model, TokenizerConfig config) : model_(std::move(model)), config_(std::move(config)) {}

  static Result<Tokenizer> from_file(const std::filesystem::path& file, TokenizerConfig config);
  static Result<Tokenizer> from_vocab_and_merges(const std::filesystem::path& folder, TokenizerConfig config);
  static Result<Tokenizer> from_any_json(std::string_view text, std::string_view what, TokenizerConfig config);
  static Result<Tokenizer> from_tokenizer_json(const json::Value& root, TokenizerConfig config);
  static Result<Tokenizer> from_tekken(const json::Value& root, TokenizerConfig config);
  static Result<Tokenizer> from_tiktoken(std::string_view text, TokenizerConfig config);
  /// An encoding of tiktoken: tokens by rank, of which the first has the id `first_id`, and the pattern of words.
  struct Ranks {
    std::string_view file;
    std::span<const std::string> tokens;
    TokenId first_id;
    std::string_view pattern;
  };
  static Result<Tokenizer> from_ranks(const Ranks& ranks, std::vector<AddedToken> special, TokenizerConfig config);
  static Result<Model> read_model(const json::Value& root, const std::vector<AddedToken>& added, const TokenizerConfig& config);
  static Result<Tokenizer> from_sentencepiece(SentencePieceModel model, TokenizerConfig config);

  const Vocabulary& model_vocabulary() const;
  Result<void> add_token(AddedToken token);
  Result<void> add_tokens_of_config();
  Result<void> set_ends();
  Result<std::vector<TokenId>> encode_text(std::string_view text, bool with_special, const EncodedHead& head,
                                           WorkBudget& budget) const;
  // These append ids to what `Encoding` has; the ids are of no use where its budget is over.
  struct Encoding {
    EncodeScratch& scratch;
    WorkMeter& meter;
    std::vector<TokenId>& ids;
  };
  void encode_parts(std::string_view text, bool with_special, std::size_t from, Encoding& out) const;
  void encode_normalized(std::string_view text, bool begins_input, Encoding& out) const;
  void encode_long(std::string_view text, bool begins_input, const Parallel& parallel, Encoding& out) const;
  void encode_words(const PieceList& words, Encoding& out) const;
  void encode_word(std::string_view word, Encoding& out) const;
  void encode_part(std::string_view word, Encoding& out) const;

  /// The threads for one long text.
  struct Team {
    Mutex is_busy;
    Parallel parallel BATON_GUARDED_BY(is_busy);  ///< one text's at a time
    std::size_t least_bytes = 0;
  };

  Model model_;
  TokenizerConfig config_;
  AddedTokens added_tokens_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  PostProcessor post_processor_;
  TokenDecoder decoder_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  std::unique_ptr<Team> team_;
  std::unique_ptr<ScratchPool> scratches_ = std::make_unique<ScratchPool>();
};

}  // namespace baton
