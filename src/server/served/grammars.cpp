/// Compiling, counting, and the vocabulary as a tree.
#include "server/served/grammars.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/check.h"
#include "server/request/json_fields.h"
#include "server/served/served_model.h"
#include "text/tokenizer/vocabulary_bytes.h"

namespace baton {
namespace {

using parsers::Tool;
using Kind = parsers::ToolChoice::Kind;

std::size_t index_of(grammar::GrammarKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  check(index < grammar::kGrammarKinds.size(), "a kind of grammar that kGrammarKinds leaves out");
  return index;
}

/// The options, with no more memory for a compilation than it can ever find.
grammar::GrammarCache::Options within_budget(grammar::GrammarCache::Options options, const Budget* compiling) {
  std::int64_t& bytes = options.grammar.work.bytes;
  if (compiling != nullptr) bytes = std::min(bytes, compiling->most_of_one());
  return options;
}

/// The tools that may be called. Those of `allowed_tools` are strict, because only a grammar keeps out the others.
std::vector<Tool> callable_tools(const ToolFields& fields) {
  if (fields.allowed.empty()) return *fields.tools;
  std::vector<Tool> tools;
  for (const Tool& tool : *fields.tools) {
    if (!fields.allowed.contains(tool.name)) continue;
    tools.push_back(tool);
    tools.back().is_strict = true;
  }
  return tools;
}

}  // namespace

Grammars::Grammars(std::int32_t n_vocab, std::vector<TokenId> ends, const grammar::GrammarCache::Options& options,
                   Budget* compiling)
    : n_vocab_(n_vocab), ends_(std::move(ends)), options_(within_budget(options, compiling)), compiling_(compiling) {}

bool Grammars::has_vocabulary() const {
  const MutexLock lock(mutex_);
  return cache_ != nullptr;
}

grammar::GrammarCache& Grammars::cache(const Tokenizer& tokenizer) {
  const MutexLock building(building_);
  {
    const MutexLock lock(mutex_);
    if (cache_ != nullptr) return *cache_;
  }
  auto vocabulary = std::make_shared<const grammar::TokenTrie>(bytes_of_tokens(tokenizer, n_vocab_), ends_,
                                                               special_tokens_of(tokenizer, n_vocab_));
  auto made = std::make_unique<grammar::GrammarCache>(std::move(vocabulary), options_);
  const MutexLock lock(mutex_);
  cache_ = std::move(made);
  return *cache_;
}

Result<grammar::GrammarCache::Entry> Grammars::compile(const grammar::GrammarSource& source, const Tokenizer& tokenizer,
                                                       std::string_view salt, const std::function<bool()>& is_cancelled) {
  BudgetShare memory = compiling_ == nullptr ? BudgetShare() : compiling_->share();
  return cache(tokenizer).get(source, {std::string(salt), is_cancelled, [&](std::int64_t n) { return memory.grow(n); }});
}

Result<Grammars::Constrained> Grammars::constraint(const StructuredOutput& asked, const Tokenizer& tokenizer,
                                                   std::string_view salt, const std::function<bool()>& is_cancelled) {
  const std::size_t kind = index_of(asked.source.kind);
  auto entry = compile(asked.source, tokenizer, salt, is_cancelled);
  if (!entry && entry.error().code == ErrorCode::unavailable) return tl::unexpected<Error>(std::move(entry.error()));
  requests_[kind].add(1);
  if (!entry) {
    refused_.add(1);
    // A part of the field is named already: the schema of one of the tools.
    if (entry.error().param.starts_with(asked.field + "["))
      return fail(ErrorCode::invalid_request, std::move(entry.error().message), std::move(entry.error().param));
    std::string field = asked.field;
    // Whose mistake it is shows when the content's grammar is compiled alone.
    if (asked.content != nullptr) {
      auto alone = compile(asked.content->source, tokenizer, salt, is_cancelled);
      if (!alone && alone.error().code == ErrorCode::unavailable) return tl::unexpected<Error>(std::move(alone.error()));
      if (!alone) {
        field = asked.content->field;
        entry = std::move(alone);
      }
    }
    return bad(field, "'{}': {}", field, entry.error().message);
  }
  Constrained made;
  made.constraint.matcher = std::move(entry->matcher);
  made.constraint.encode = [&tokenizer](std::string_view text) { return tokenizer.encode_plain_behind(text); };
  if (entry->compile_seconds > 0) {
    compile_seconds_.observe(entry->compile_seconds);
    made.ignored = *entry->ignored;
  }
  return made;
}

GrammarCounts Grammars::counts() const {
  GrammarCounts counts;
  for (std::size_t kind = 0; kind < requests_.size(); ++kind) counts.requests[kind] = requests_[kind].value();
  counts.refused = refused_.value();
  counts.compile_seconds = compile_seconds_.snapshot();
  grammar::GrammarCache* cache = nullptr;
  {
    const MutexLock lock(mutex_);
    cache = cache_.get();
  }
  if (cache != nullptr) counts.cache = cache->counts();
  counts.cache_limit_bytes = options_.max_bytes;
  return counts;
}

Result<void> demand_calls(const ServedModel& model, ChatRequest& request) {
  const ToolFields& fields = request.tools;
  if (!fields.tools || fields.choice.kind == Kind::none) return {};
  std::optional<StructuredOutput>& grammar = request.generation.grammar;
  const bool is_free = fields.choice.kind == Kind::automatic;
  const std::vector<Tool> tools = callable_tools(fields);
  parsers::AnswerDemand demand{.tools = tools,
                               .choice = fields.choice,
                               .is_parallel = fields.is_parallel,
                               .content = std::nullopt,
                               .special_tokens = model.marker_texts};
  std::shared_ptr<const StructuredOutput> content;
  if (is_free && grammar) {
    demand.content = grammar->source;
    content = std::make_shared<const StructuredOutput>(*grammar);
  }
  auto made = model.format.grammar(demand);
  if (!made) {
    Error error = std::move(made.error());
    error.code = ErrorCode::invalid_request;
    if (error.param.empty()) error.param = content != nullptr ? content->field : is_free ? "tools" : "tool_choice";
    return tl::unexpected<Error>(std::move(error));
  }
  if (*made)
    grammar = StructuredOutput{.source = std::move(**made), .field = "tools", .is_answer = true, .content = std::move(content)};
  return {};
}

}  // namespace baton
