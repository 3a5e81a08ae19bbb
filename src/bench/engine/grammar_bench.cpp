/// `baton bench grammar`: one engine, stepped on this thread, and the arms in turn.
#include "bench/engine/grammar_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <span>

#include <fmt/format.h>

#include "bench/engine/bench_model.h"
#include "bench/engine/engine_steps.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "bench/report/statistics.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "io/json.h"
#include "load/load_engine.h"
#include "load/load_text.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

/// A list that no answer of the benchmark comes to the end of.
constexpr std::string_view kSchema = R"({
  "type": "array", "minItems": 1000,
  "items": {"type": "object", "additionalProperties": false,
    "required": ["product_name", "quantity", "availability", "warehouse_location"],
    "properties": {
      "product_name": {"type": "string", "minLength": 2, "maxLength": 12},
      "quantity": {"type": "integer", "minimum": 0, "maximum": 9999},
      "availability": {"enum": ["in_stock", "on_order", "discontinued"]},
      "warehouse_location": {"type": "object", "additionalProperties": false, "required": ["building", "is_cooled"],
        "properties": {"building": {"type": "string", "minLength": 1, "maxLength": 6}, "is_cooled": {"type": "boolean"}}}}}})";
/// What every item of such a list has in common.
constexpr std::string_view kStructure =
    R"([{"product_name":"ab","quantity":1,"availability":"in_stock","warehouse_location":{"building":"ab","is_cooled":true}},)"
    R"({"product_name":"ab","quantity":1,"availability":"in_stock","warehouse_location":{"building":"ab","is_cooled":true}}])";

bool has_grammar(std::string_view arm) { return arm != "free"; }
bool is_canonical(std::string_view arm) { return arm == "canonical" || arm == "drafts"; }

std::shared_ptr<const grammar::TokenTrie> vocabulary_of(const Tokenizer& tokenizer, const ModelSpec& spec) {
  std::vector<std::string> bytes(static_cast<std::size_t>(spec.n_vocab));
  for (TokenId id = 0; id < std::min(spec.n_vocab, tokenizer.n_vocab()); ++id)
    if (!tokenizer.is_special(id)) bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), spec.eos_token_ids);
}

/// The longer a token of the structure's text, the more it is preferred.
std::vector<TokenBias> canonical_biases(const Tokenizer& tokenizer) {
  std::vector<TokenBias> biases;
  const std::vector<TokenId> tokens = tokenizer.encode_plain(kStructure);
  for (const TokenId id : std::set<TokenId>(tokens.begin(), tokens.end()))
    biases.push_back({id, std::min(kMaxBias, 10.0F * static_cast<float>(tokenizer.token_bytes(id).size()))});
  return biases;
}

class GrammarRunner {
 public:
  GrammarRunner(std::unique_ptr<Engine> engine, const ModelSpec& spec, const Tokenizer& tokenizer,
                const GrammarBenchOptions& options)
      : engine_(std::move(engine)),
        tokenizer_(tokenizer),
        options_(options),
        n_vocab_(spec.n_vocab),
        vocabulary_(vocabulary_of(tokenizer, spec)),
        biases_(canonical_biases(tokenizer)) {}

  /// Compiles the schema. Returns the milliseconds.
  Result<double> compile() {
    const auto begin = Clock::now();
    BATON_TRY(compiled_, grammar::compile_grammar({.kind = grammar::GrammarKind::json_schema,
                                                   .text = std::string(kSchema),
                                                   .spaces = grammar::JsonSpaces::none},
                                                  {}, {}));
    const double ms = 1e3 * std::chrono::duration<double>(Clock::now() - begin).count();
    matcher_ = std::make_shared<grammar::Matcher>(compiled_.program, vocabulary_);
    return ms;
  }

  Result<void> run(GrammarRun& result) {
    if (result.arm == "first-use") matcher_of_run_ = std::make_shared<grammar::Matcher>(compiled_.program, vocabulary_);
    std::map<RequestId, std::int32_t> n_tokens;
    for (std::int32_t i = 0; i < options_.requests; ++i) {
      BATON_TRY(const RequestId id, engine_->submit(request_of(result.arm, i)));
      n_tokens[id] = 0;
    }
    std::size_t n_without_token = n_tokens.size();
    bool is_over = false;
    Clock::time_point begin;
    Counts before;
    const auto after_step = [&](std::span<const Event> events) -> Result<void> {
      std::int64_t n_timed = 0;
      for (const Event& event : events) {
        if (event.finished && event.finished != FinishReason::length)
          return fail(ErrorCode::internal, fmt::format("an answer ended ({}) before its length: {}", to_string(*event.finished),
                                                       event.error != nullptr ? event.error->message : "nothing may follow"));
        is_over |= event.finished.has_value();
        std::int32_t& count = n_tokens[event.request];
        if (count == 0 && !event.tokens.empty()) --n_without_token;
        count += static_cast<std::int32_t>(event.tokens.size());
        n_timed += static_cast<std::int64_t>(event.tokens.size());
      }
      if (n_without_token > 0) return {};
      if (begin == Clock::time_point{}) {
        begin = Clock::now();
        before = counts();
        result.n_tokens = 0;
      } else if (!is_over && n_timed > 0) {
        result.n_tokens += n_timed;
        seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
        note(result, before);
      }
      return {};
    };
    BATON_TRY_VOID(step_to_end(*engine_, after_step));
    result.tokens_per_s.push_back(static_cast<double>(result.n_tokens) / seconds_);
    return {};
  }

  const Engine& engine() const { return *engine_; }

 private:
  struct Counts {
    std::int64_t n_steps = 0, n_masks = 0, n_drafts = 0, n_accepted = 0;
    Histogram::Snapshot mask_seconds = {};
  };

  Counts counts() const {
    const EngineMetrics& metrics = engine_->metrics();
    return {metrics.steps.value(), metrics.grammar_masks.value(), metrics.spec_decode_num_draft_tokens.value(),
            metrics.spec_decode_num_accepted_tokens.value(), metrics.grammar_mask_seconds.snapshot()};
  }

  void note(GrammarRun& result, const Counts& before) const {
    const Counts now = counts();
    result.n_steps = now.n_steps - before.n_steps;
    result.n_masks = now.n_masks - before.n_masks;
    result.n_drafts = now.n_drafts - before.n_drafts;
    result.n_accepted = now.n_accepted - before.n_accepted;
    result.mask_ms = 1e3 * (now.mask_seconds.sum - before.mask_seconds.sum);
    result.most_mask_ms = 0;
    for (std::size_t i = 0; i < now.mask_seconds.counts.size(); ++i)
      if (now.mask_seconds.counts[i] > before.mask_seconds.counts[i])
        result.most_mask_ms = 1e3 * now.mask_seconds.bounds[std::min(i, now.mask_seconds.bounds.size() - 1)];
  }

  Request request_of(const std::string& arm, std::int32_t index) const {
    Request request;
    std::vector<TokenId> prompt;
    for (std::int32_t i = 0; i < options_.own; ++i)
      prompt.push_back(
          static_cast<TokenId>((7919u * static_cast<std::uint32_t>(index) + 104729u * static_cast<std::uint32_t>(i)) %
                               static_cast<std::uint32_t>(n_vocab_)));
    request.prompt = std::move(prompt);
    request.sampling.temperature = 1;
    request.sampling.seed = static_cast<std::uint64_t>(index);
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = options_.n_new;
    if (is_canonical(arm)) request.sampling.logit_bias = biases_;
    if (has_grammar(arm)) request.constraint.matcher = arm == "first-use" ? matcher_of_run_ : matcher_;
    if (arm == "drafts")
      request.constraint.encode = [this](std::string_view text) { return tokenizer_.encode_plain_behind(text); };
    return request;
  }

  std::unique_ptr<Engine> engine_;
  const Tokenizer& tokenizer_;
  const GrammarBenchOptions& options_;
  std::int32_t n_vocab_;
  std::shared_ptr<const grammar::TokenTrie> vocabulary_;
  SharedList<TokenBias> biases_;
  grammar::CompiledGrammar compiled_;
  std::shared_ptr<grammar::Matcher> matcher_;
  std::shared_ptr<grammar::Matcher> matcher_of_run_;
  double seconds_ = 1;  ///< timed in the last run
};

std::string over_free(const GrammarBenchReport& report, const GrammarRun& run, std::string_view base) {
  const auto found = std::ranges::find(report.runs, base, &GrammarRun::arm);
  if (found == report.runs.end() || run.arm == base) return "-";
  // Runs stand side by side, so each is compared with the one of its round.
  std::vector<double> ratios;
  for (std::size_t i = 0; i < run.tokens_per_s.size(); ++i) ratios.push_back(run.tokens_per_s[i] / found->tokens_per_s[i]);
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", median_of(ratios), std::ranges::min(ratios), std::ranges::max(ratios));
}

std::string grammar_text(const GrammarBenchReport& report, const GrammarBenchOptions& options, const std::string& command) {
  MarkdownTable table({"arm", "tokens/s", "spread", "over free", "over canonical", "tokens a step", "masks a step",
                       "masks, ms a step", "most, ms", "accepted drafts"});
  for (const GrammarRun& run : report.runs) {
    const auto n_steps = static_cast<double>(std::max<std::int64_t>(run.n_steps, 1));
    table.add({run.arm, fmt::format("{:.1f}", run.median()), fmt::format("{:.1f}%", 100 * run.spread()),
               over_free(report, run, "free"), is_canonical(run.arm) ? over_free(report, run, "canonical") : "-",
               fmt::format("{:.1f}", static_cast<double>(run.n_tokens) / n_steps),
               fmt::format("{:.1f}", static_cast<double>(run.n_masks) / n_steps), fmt::format("{:.3f}", run.mask_ms / n_steps),
               run.n_masks > 0 ? fmt::format("< {:g}", run.most_mask_ms) : "-",
               run.n_drafts > 0 ? fmt::format("{} of {}", run.n_accepted, run.n_drafts) : "-"});
  }
  return fmt::format(
      "{}\n{}\n\n{}\n{}, {} weights, {} KV; {} requests, {} tokens of prompt, {} new, temperature 1. The schema was compiled "
      "in {:.1f} ms.\nTokens/s are medians of {} interleaved runs, the spread is (largest - smallest) / median; ratios are "
      "medians (and ranges) over the rounds.\nOther numbers are of the last run.\n",
      command, machine_line(report.engine), table.text(), report.model, report.engine.weight_scheme,
      to_string(report.engine.kv_dtype), options.requests, options.own, options.n_new, report.compile_ms, options.n_runs);
}

json::Value grammar_json(const GrammarBenchReport& report, const GrammarBenchOptions& options, const std::string& command) {
  json::Value runs = json::Value::array();
  for (const GrammarRun& run : report.runs)
    runs.push_back({{"arm", run.arm},
                    {"tokens_per_s", run.tokens_per_s},
                    {"median_tokens_per_s", run.median()},
                    {"spread", run.spread()},
                    {"tokens", run.n_tokens},
                    {"steps", run.n_steps},
                    {"masks", run.n_masks},
                    {"mask_ms", run.mask_ms},
                    {"drafts", run.n_drafts},
                    {"accepted", run.n_accepted}});
  json::Value value = report_head(command, report.model, report.engine);
  value.update({{"requests", options.requests},
                {"own", options.own},
                {"new", options.n_new},
                {"compile_ms", report.compile_ms},
                {"runs", runs}});
  return value;
}

}  // namespace

double GrammarRun::median() const { return median_of(tokens_per_s); }

double GrammarRun::spread() const { return spread_of(tokens_per_s); }

Result<GrammarBenchReport> run_grammar_bench(const GrammarBenchOptions& options) {
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  ModelOptions named = options.model;
  if (options.tokenizer.empty() && !options.shape.empty())
    return fail(ErrorCode::invalid_request, "a shape has no tokenizer: name one (--tokenizer)", "tokenizer");
  if (!options.tokenizer.empty()) named.model = options.tokenizer;
  BATON_TRY(const Tokenizer tokenizer, load_tokenizer(named, download_bar()));
  if (tokenizer.n_vocab() > model.spec.n_vocab)
    return fail(ErrorCode::invalid_request,
                fmt::format("the tokenizer has {} tokens, the model {}", tokenizer.n_vocab(), model.spec.n_vocab), "tokenizer");
  ModelOptions chosen = model.options;
  chosen.max_num_seqs = options.requests;
  if (chosen.max_model_len == 0) chosen.max_model_len = options.own + options.n_new;
  BATON_TRY(std::unique_ptr<Engine> engine, load_engine(model.files, chosen));
  GrammarRunner runner(std::move(engine), model.spec, tokenizer, options);
  GrammarBenchReport report;
  report.model = model.files.name;
  report.engine = runner.engine().info();
  BATON_TRY(report.compile_ms, runner.compile());
  for (const std::string& arm : options.arms) {
    GrammarRun warm_up{.arm = arm};
    BATON_TRY_VOID(runner.run(warm_up));
    report.runs.push_back({.arm = arm});
  }
  for (std::int32_t round = 0; round < options.n_runs; ++round) {
    for (GrammarRun& run : report.runs) {
      BATON_TRY_VOID(runner.run(run));
      print_note("{}, run {} of {}: {:.1f} tokens/s\n", run.arm, round + 1, options.n_runs, run.tokens_per_s.back());
    }
  }
  return report;
}

int grammar_bench_main(const GrammarBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench grammar", options, command, run_grammar_bench, grammar_text, grammar_json);
}

}  // namespace baton
