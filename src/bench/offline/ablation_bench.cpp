/// `baton bench ablation`: one engine over an AblationBackend, and the arms in turn.
#include "bench/offline/ablation_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/offline/ablation_backend.h"
#include "bench/offline/offline_report.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "core/mutex.h"
#include "core/thread_name.h"
#include "load/load_engine.h"
#include "text/tokenizer/stream_decoder.h"

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
    if (has_thread)
      thread_ = std::thread([this] {
        name_this_thread("detokenizer");
        work();
      });
  }
  ~Detokenizer() { finish(); }
  Detokenizer(const Detokenizer&) = delete;
  Detokenizer& operator=(const Detokenizer&) = delete;

  void take(std::size_t request, TokenId token) {
    if (!thread_.joinable()) return decode(request, token);
    const MutexLock lock(mutex_);
    waiting_.push_back({request, token});
    if (waiting_.size() == 1) has_more_.notify_one();
  }
  /// Waits for the text of all tokens. Returns its bytes. Idempotent.
  std::size_t finish() {
    if (thread_.joinable()) {
      {
        const MutexLock lock(mutex_);
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
      const MutexLock lock(mutex_);
      while (!is_over_ && waiting_.empty()) has_more_.wait(mutex_);
      taken.swap(waiting_);
      is_over = is_over_;
    }
  }

  std::vector<StreamDecoder> decoders_;
  std::size_t n_bytes_ = 0;  // written by the thread that decodes
  std::thread thread_;
  Mutex mutex_;
  Condition has_more_;
  std::vector<Token> waiting_ BATON_GUARDED_BY(mutex_);
  bool is_over_ BATON_GUARDED_BY(mutex_) = false;
};

struct AblationReport {
  std::string model;
  Workload workload;
  EngineInfo engine;
  bool makes_text = false;
  std::vector<ArmRuns> arms;
};

Result<AblationReport> run_ablation_bench(const AblationBenchOptions& options) {
  Ablation ablation;  // of the arm that runs
  BATON_TRY(OfflineBench bench, OfflineBench::prepare(options, {&options.dataset, 1}));
  const Tokenizer* const tokenizer = bench.tokenizer();
  if (std::ranges::any_of(options.arms, makes_text_on_step) && tokenizer == nullptr)
    return fail(
        ErrorCode::invalid_request,
        fmt::format("the arms {} and all turn tokens into text: name a tokenizer (--tokenizer), or other --arms", kOnStep),
        "tokenizer");
  BATON_TRY(const std::optional<MemoryShortage> shortage, bench.load([&](std::unique_ptr<Backend> device) {
    return std::make_unique<AblationBackend>(std::move(device), ablation);
  }));
  if (shortage) return fail(ErrorCode::out_of_memory, shortage->error);
  AblationReport report{bench.model_name(), bench.workloads().front(), bench.info(), tokenizer != nullptr, {}};
  BATON_TRY(report.arms, bench.run(report.workload, [&](Engine& engine, const Workload& workload, OfflineRunOptions run) {
    const std::string arm = std::exchange(run.arm, "relay");
    ablation = ablation_of(arm);
    std::optional<Detokenizer> text;
    if (tokenizer != nullptr) text.emplace(*tokenizer, workload.requests.size(), !makes_text_on_step(arm));
    if (text) run.on_token = [&](std::size_t request, TokenId token) { text->take(request, token); };
    return run_offline(engine, workload, run);
  }));
  if (report.engine.backend.name != "cpu") set_hidden_busy_time(report.arms);
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
  return run_benchmark("baton bench ablation", options, command, run_ablation_bench, ablation_text, ablation_json);
}

}  // namespace baton
