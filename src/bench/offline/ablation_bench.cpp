/// `baton bench ablation`: one engine over an AblationBackend, and the arms in turn.
#include "bench/offline/ablation_bench.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/offline/ablation_backend.h"
#include "bench/offline/offline_report.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "load/load_engine.h"
#include "text/stream_decoder.h"

namespace baton {
namespace {

constexpr std::string_view kOnStep = "detokenize-on-step";

Ablation ablation_of(const std::string& arm) {
  return {.samples_each = arm == "sample-each" || arm == "all", .copies_each = arm == "copy-each" || arm == "all"};
}
/// Sampling and copying one by one wait for the device inside the engine's calls.
bool waits_in_calls(const Ablation& ablation) { return ablation.samples_each || ablation.copies_each; }

/// Sets the device's time of arms that wait inside calls, where the records of steps do not show it. Their device has
/// arm baton's work to do and small calls of its own, so that arm baton's time is a lower bound. Without that arm it is
/// not a number.
void set_hidden_busy_time(std::vector<ArmRuns>& arms) {
  const ArmRuns* baton = find_arm(arms, "baton");
  for (ArmRuns& arm : arms) {
    if (!waits_in_calls(ablation_of(arm.arm))) continue;
    for (std::size_t i = 0; i < arm.runs.size(); ++i)
      arm.runs[i].device_busy_s =
          baton != nullptr && i < baton->runs.size() ? baton->runs[i].device_busy_s : std::numeric_limits<double>::quiet_NaN();
  }
}

bool makes_text_on_step(const std::string& arm) { return arm == kOnStep || arm == "all"; }

/// Turns the tokens of a run into text: on the thread that gives them, or on a thread of its own.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, std::size_t n_requests, bool has_thread) {
    for (std::size_t i = 0; i < n_requests; ++i)
      decoders_.emplace_back(tokenizer, std::vector<std::string>{}, /*include_stop=*/false, /*skip_special_tokens=*/true);
    if (has_thread) thread_ = std::thread([this] { work(); });
  }
  ~Detokenizer() { finish(); }
  Detokenizer(const Detokenizer&) = delete;
  Detokenizer& operator=(const Detokenizer&) = delete;

  void take(std::size_t request, TokenId token) {
    if (!thread_.joinable()) return decode(request, token);
    const std::lock_guard lock(mutex_);
    waiting_.push_back({request, token});
    if (waiting_.size() == 1) has_more_.notify_one();
  }
  /// Waits for the text of all tokens. Returns its bytes. Idempotent.
  std::size_t finish() {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
      }
      has_more_.notify_one();
      thread_.join();
    }
    return n_bytes_;
  }

 private:
  struct Token {
    std::size_t request;
    TokenId id;
  };

  void decode(std::size_t request, TokenId token) { n_bytes_ += decoders_[request].push(token).text.size(); }
  void work() {
    std::vector<Token> taken;
    for (bool is_over = false; !is_over || !taken.empty();) {
      for (const Token& token : taken) decode(token.request, token.id);
      taken.clear();
      std::unique_lock lock(mutex_);
      has_more_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
      taken.swap(waiting_);
      is_over = is_over_;
    }
  }

  std::vector<StreamDecoder> decoders_;
  std::size_t n_bytes_ = 0;  // written by the thread that decodes
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable has_more_;
  std::vector<Token> waiting_;  // guarded by mutex_, as is_over_
  bool is_over_ = false;
};

struct AblationReport {
  std::string model;
  Workload workload;
  EngineInfo engine;
  bool makes_text = false;
  std::vector<ArmRuns> arms;
};

/// The engine and the habits that it can be given.
class AblationRunner {
 public:
  static Result<std::unique_ptr<AblationRunner>> make(const AblationBenchOptions& options, const BenchModel& model,
                                                      const Workload& workload, const Tokenizer* tokenizer) {
    std::unique_ptr<AblationRunner> made(new AblationRunner(options, workload, tokenizer));
    const ModelOptions chosen = offline_model_options(model, longest_context(workload));
    BATON_TRY(std::unique_ptr<Backend> device, open_device(chosen));
    auto backend = std::make_unique<AblationBackend>(std::move(device), made->ablation_);
    BATON_TRY(made->engine_, load_engine(model.files, chosen, std::move(backend)));
    return made;
  }

  Result<std::vector<ArmRuns>> run() {
    const Workload some = warm_up_of(workload_, static_cast<std::size_t>(engine_->info().max_num_seqs));
    for (const std::string& arm : options_.arms) BATON_TRY_VOID(run_once(some, arm, "warm-up, " + arm + ":"));
    BATON_TRY(std::vector<ArmRuns> arms,
              run_interleaved(options_.arms, options_.n_runs,
                              [&](const auto& arm, const auto& title) { return run_once(workload_, arm, title); }));
    if (engine_->info().backend.name != "cpu") set_hidden_busy_time(arms);
    return arms;
  }
  EngineInfo info() const { return engine_->info(); }

 private:
  AblationRunner(const AblationBenchOptions& options, const Workload& workload, const Tokenizer* tokenizer)
      : options_(options), workload_(workload), tokenizer_(tokenizer) {}

  Result<OfflineResult> run_once(const Workload& workload, const std::string& arm, const std::string& title) {
    ablation_ = ablation_of(arm);
    engine_->drop_cached_blocks();
    std::optional<Detokenizer> text;
    if (tokenizer_ != nullptr) text.emplace(*tokenizer_, workload.requests.size(), !makes_text_on_step(arm));
    OfflineRunOptions run;
    run.arm = "relay";
    run.time_limit_s = options_.time_limit_s;
    run.title = title;
    if (text) run.on_token = [&](std::size_t request, TokenId token) { text->take(request, token); };
    return run_offline(*engine_, workload, run);
  }

  const AblationBenchOptions& options_;
  const Workload& workload_;
  const Tokenizer* tokenizer_;
  Ablation ablation_;
  std::unique_ptr<Engine> engine_;
};

Result<AblationReport> run_ablation_bench(const AblationBenchOptions& options) {
  BATON_TRY(const BenchModel model, find_bench_model(options.model, options.shape));
  BATON_TRY(const std::optional<Tokenizer> tokenizer, bench_tokenizer(options));
  const bool needs_text = std::ranges::any_of(options.arms, makes_text_on_step);
  if (needs_text && !tokenizer)
    return fail(
        ErrorCode::invalid_request,
        fmt::format("the arms {} and all turn tokens into text: name a tokenizer (--tokenizer), or other --arms", kOnStep),
        "tokenizer");
  AblationReport report;
  report.model = model.files.name;
  report.makes_text = tokenizer.has_value();
  const std::int32_t max_len = options.model.max_model_len > 0 ? options.model.max_model_len : model.spec.max_position;
  BATON_TRY(report.workload, make_workload(options.dataset, {.n_vocab = model.spec.n_vocab,
                                                             .tokenizer = tokenizer ? &*tokenizer : nullptr,
                                                             .max_model_len = max_len}));
  BATON_TRY(const std::unique_ptr<AblationRunner> runner,
            AblationRunner::make(options, model, report.workload, tokenizer ? &*tokenizer : nullptr));
  report.engine = runner->info();
  BATON_TRY(report.arms, runner->run());
  return report;
}

std::string ablation_text(const AblationReport& report, const AblationBenchOptions& options, const std::string& command) {
  MarkdownTable table({"arm", "requests/s", "over baton", "spread", "output tokens/s", "ms a step", "device busy"});
  const ArmRuns* baton = find_arm(report.arms, "baton");
  for (const ArmRuns& arm : report.arms) {
    const OfflineResult& last = arm.runs.back();
    table.add({arm.arm, fmt::format("{:.2f}", arm.requests_per_s()),
               baton == nullptr || baton == &arm ? "-" : fmt::format("{:.2f}", arm.requests_per_s() / baton->requests_per_s()),
               fmt::format("{:.0f}%", 100 * arm.spread()), fmt::format("{:.0f}", arm.output_tokens_per_s()),
               fmt::format("{:.2f}", last.steps > 0 ? 1e3 * last.seconds / static_cast<double>(last.steps) : 0),
               std::isnan(last.device_busy_share()) ? "-" : fmt::format("{:.0f}%", 100 * last.device_busy_share())});
  }
  const EqualAnswers equal = compare_arms(report.arms);
  return fmt::format(
      "{}\n{}\n\n{}\n{}, {}, seed {}; at most {} sequences in a step{}.\nEqual answers in all arms: {} of {}. Rates are "
      "medians of "
      "{} interleaved runs with cold caches; other numbers are of the last run.\n",
      command, machine_line(report.engine), table.text(), report.model, report.workload.name, options.dataset.seed,
      report.engine.max_num_seqs, report.makes_text ? "" : "; no arm makes text, for lack of a tokenizer", equal.n_equal,
      equal.n_compared, options.n_runs);
}

json::Value ablation_json(const AblationReport& report, const AblationBenchOptions& options, const std::string& command) {
  json::Value value = report_head(command, report.model, report.engine);
  const EqualAnswers equal = compare_arms(report.arms);
  value.update({{"dataset", report.workload.name},
                {"seed", options.dataset.seed},
                {"max_num_seqs", report.engine.max_num_seqs},
                {"runs", options.n_runs},
                {"makes_text", report.makes_text},
                {"num_equal_answers", equal.n_equal},
                {"num_compared_answers", equal.n_compared},
                {"arms", arms_json(report.arms)}});
  return value;
}

}  // namespace

AblationBenchOptions::AblationBenchOptions() { arms.assign(kAblationArms.begin(), kAblationArms.end()); }

int ablation_bench_main(const AblationBenchOptions& options, const std::string& command) {
  use_log_level(options.model);
  const auto report = run_ablation_bench(options);
  if (!report) return report_failure("baton bench ablation", report.error());
  return write_report("baton bench ablation", ablation_text(*report, options, command),
                      ablation_json(*report, options, command), options.json_file);
}

}  // namespace baton
