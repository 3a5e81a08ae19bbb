/// A model and its engine inside of another program: what the Python module binds. No Python here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "core/mutex.h"
#include "core/result.h"
#include "engine/engine.h"
#include "engine/request/constraint.h"
#include "grammar/grammar_cache.h"
#include "load/load_text.h"
#include "load/model_files.h"
#include "load/sequence_text.h"
#include "ranks/local_ranks.h"

namespace baton::python {

/// An Error as an exception: the module turns it into one of baton.errors.
class LocalModelError : public std::runtime_error {
 public:
  explicit LocalModelError(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

/// How one prompt is answered, besides its tokens.
struct Question {
  SamplingParams sampling;
  Constraint constraint;               ///< see LocalModel::constrain
  std::int32_t n = 1;                  ///< continuations
  std::vector<std::string> stop;       ///< strings that end the text
  std::vector<std::string> bad_words;  ///< words that the answers do not hold, at the beginning or after a space
  bool include_stop = false;           ///< the stop string is part of the text
  bool skip_special_tokens = true;
  bool detokenize = true;  ///< false: no text, and so no stop strings
  std::string cache_salt;
  std::int32_t priority = 0;
};

/// What is new of one sequence. The last news of a sequence has `finish_reason`.
struct News {
  std::int64_t request = 0;
  std::int32_t index = 0;
  std::string text;                   ///< to be appended
  std::vector<TokenOutput> tokens;    ///< to be appended; the one that ended the sequence included
  std::string finish_reason;          ///< as to_string(FinishReason); empty: it continues
  std::optional<std::string> stop;    ///< the stop string that ended it
  std::optional<TokenId> stop_token;  ///< the stop id that ended it, if it is not the model's end
  SequenceStats stats;
  std::vector<TokenOutput> prompt_scores;  ///< see Event
  std::shared_ptr<const Error> error;      ///< why it ended with "error", if that is known
};

/// Loads a model, takes prompts and gives out news. Failures are thrown as LocalModelError.
///
/// Thread: any, except that one thread at a time calls `wait`.
class LocalModel {
 public:
  /// With several ranks, this process is rank 0 and starts `program`, a `baton`, as the others, which end with this object.
  LocalModel(const EngineArguments& arguments, const std::string& program);
  LocalModel(const LocalModel&) = delete;
  LocalModel& operator=(const LocalModel&) = delete;
  ~LocalModel() = default;

  /// Makes the answers to a question keep to a grammar: vLLM's structured_outputs as JSON. Compiling one may take seconds. The
  /// question is then for this model only.
  void constrain(Question& question, const std::string& structured_outputs);
  /// Returns the request's number. Its news come from `wait`.
  std::int64_t submit(std::vector<TokenId> prompt, const Question& question);
  void cancel(std::int64_t request);
  /// Waits at most so long for news of any request; may be empty.
  std::vector<News> wait(std::chrono::milliseconds timeout);

  std::vector<TokenId> encode(const std::string& text, bool add_special_tokens) const;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const;
  /// The prompt's text of a conversation. `messages`, `tools` and `variables` are JSON; `tools` may be empty.
  std::string render(const std::string& messages, const std::string& tools, const std::string& variables,
                     const std::string& template_source, bool add_generation_prompt, bool continues_last) const;

  /// Computes and keeps the full blocks of a prompt.
  PinInfo pin(std::vector<TokenId> tokens);
  void unpin(std::int64_t id) { engine_->unpin(PinId{id}); }

  EngineInfo info() const { return engine_->info(); }
  const std::string& name() const { return name_; }
  std::int32_t n_vocab() const { return text_.n_vocab; }
  const SamplingDefaults& defaults() const { return text_.defaults; }
  const Tokenizer& tokenizer() const { return text_.tokenizer; }
  /// KV bytes that plans read, and what they would have read more without sharing.
  std::pair<double, double> kv_bytes() const;

 private:
  struct Live {
    std::vector<SequenceText> sequences;
    std::size_t n_unfinished = 0;
  };
  LocalModel(const ModelFiles& files, const EngineArguments& arguments, const std::string& program);
  grammar::GrammarCache& grammars();
  void check(const Question& question) const;
  News news_of(const Event& event, Live& live);

  std::string name_;
  std::int32_t max_logprobs_;
  grammar::JsonSpaces spaces_;
  grammar::GrammarCache::Options grammar_options_;
  TextSide text_;
  std::unique_ptr<LocalRanks> ranks_;  // null: this process is alone
  std::unique_ptr<Engine> engine_;     // after text_, whose tokenizer the decoders use, and after its ranks

  Mutex grammars_mutex_;
  std::unique_ptr<grammar::GrammarCache> grammars_ BATON_GUARDED_BY(grammars_mutex_);  // made for the first grammar

  Mutex mutex_;  // locked before the engine's
  std::map<RequestId, Live> live_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton::python
