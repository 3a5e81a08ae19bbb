/// `baton bench mmlu`: runs the arms for each number of shots, and their report.
#include "bench/offline/mmlu_bench.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "bench/offline/offline_report.h"
#include "bench/report/machine_report.h"
#include "bench/report/markdown_table.h"
#include "cli/output.h"

namespace baton {
namespace {

std::string mmlu_table(const MmluReport& report) {
  MarkdownTable table({"shots", "arm", "seconds", "over paged", "spread", "questions", "questions/s", "prompt tokens",
                       "prefix hits", "right", "unequal answers"});
  for (const MmluRuns& runs : report.runs) {
    const EqualAnswers equal = compare_arms(runs.arms);
    for (std::size_t i = 0; i < runs.arms.size(); ++i) {
      const ArmRuns& arm = runs.arms[i];
      const OfflineResult& last = arm.runs.back();
      table.add({std::to_string(runs.n_shots), arm.arm, fmt::format("{:.2f}{}", arm.seconds(), arm.is_cut() ? " (cut)" : ""),
                 rate_over_paged(runs.arms, arm), percent_text(arm.spread()), std::to_string(last.n_requests),
                 fmt::format("{:.1f}", arm.requests_per_s()), std::to_string(last.prompt_tokens),
                 percent_text(last.prefix_hit_rate()), fmt::format("{:.1f}%", 100 * runs.accuracy[i].at("").share()),
                 std::to_string(equal.n_compared - equal.n_equal)});
    }
  }
  return table.text();
}

/// Accuracy by subject, by the first arm's answers.
std::string subject_table(const MmluReport& report) {
  std::vector<std::string> titles{"subject", "questions"};
  for (const MmluRuns& runs : report.runs) titles.push_back(fmt::format("right, {}-shot", runs.n_shots));
  MarkdownTable table(titles);
  for (const auto& [subject, first] : report.runs.front().accuracy.front()) {
    std::vector<std::string> cells{subject.empty() ? "all" : subject, std::to_string(first.n_questions)};
    for (const MmluRuns& runs : report.runs) {
      const auto at = runs.accuracy.front().find(subject);
      cells.push_back(at == runs.accuracy.front().end() ? "-" : fmt::format("{:.1f}%", 100 * at->second.share()));
    }
    table.add(cells);
  }
  return table.text();
}

json::Value accuracy_json(const std::map<std::string, Accuracy>& accuracy) {
  json::Value by_subject = json::Value::object();
  for (const auto& [subject, of] : accuracy)
    if (!subject.empty())
      by_subject[subject] = {{"questions", of.n_questions}, {"right", of.n_right}, {"accuracy", of.share()}};
  return by_subject;
}

}  // namespace

MmluBenchOptions::MmluBenchOptions() {
  dataset.name = "mmlu";
  dataset.num_prompts = 0;
}

double Accuracy::share() const {
  return n_questions == 0 ? 0 : static_cast<double>(n_right) / static_cast<double>(n_questions);
}

std::map<std::string, Accuracy> accuracy_of(const Workload& workload, const OfflineResult& run) {
  std::map<std::string, Accuracy> accuracy{{"", {}}};
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const WorkloadRequest& request = workload.requests[i];
    if (!request.right_token || run.answers[i].empty()) continue;
    const std::int64_t n_right = run.answers[i].front() == *request.right_token ? 1 : 0;
    for (const std::string& subject : {std::string(), request.subject}) {
      ++accuracy[subject].n_questions;
      accuracy[subject].n_right += n_right;
      if (request.subject.empty()) break;
    }
  }
  return accuracy;
}

Result<MmluReport> run_mmlu_bench(const MmluBenchOptions& options) {
  std::vector<DatasetOptions> datasets;
  for (const std::int32_t n_shots : options.shots) {
    datasets.push_back(options.dataset);
    datasets.back().num_shots = n_shots;
  }
  BATON_TRY(OfflineBench bench, OfflineBench::prepare(options, datasets));
  MmluReport report;
  report.model = bench.model_name();
  BATON_TRY(report.shortage, bench.load());
  if (report.shortage) return report;
  report.engine = bench.info();
  const std::vector<Workload>& workloads = bench.workloads();
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    print_note("{}-shot: {}\n", options.shots[i], workloads[i].name);
    BATON_TRY(std::vector<ArmRuns> arms, bench.run(workloads[i]));
    MmluRuns runs{options.shots[i], workloads[i].name, std::move(arms), {}};
    for (const ArmRuns& arm : runs.arms) runs.accuracy.push_back(accuracy_of(workloads[i], arm.runs.front()));
    report.runs.push_back(std::move(runs));
  }
  return report;
}

std::string mmlu_text(const MmluReport& report, const MmluBenchOptions& options, const std::string& command) {
  if (report.shortage) return shortage_text(*report.shortage, options.arms, command);
  const EngineInfo& engine = *report.engine;
  std::string text =
      fmt::format("{}\n{}\n\n{}\n{}\n", command, machine_line(engine), mmlu_table(report), subject_table(report));
  text += fmt::format("{}, {} weights, {} KV; at most {} sequences and {} tokens in a step; {}, seed {}.\n", report.model,
                      engine.weight_scheme, to_string(engine.kv_dtype), engine.max_num_seqs, engine.max_num_batched_tokens,
                      report.runs.front().dataset, options.dataset.seed);
  text += fmt::format(
      "An answer is the likeliest of the four letters. Seconds are medians of {} interleaved runs, each with a cold cache;\n"
      "right and unequal answers are of the first run, other numbers of the last. The second table has the arm {}.\n",
      options.n_runs, options.arms.front());
  if (options.model.load_format == "dummy" || !options.shape.empty()) text += "Random weights: what is right is chance.\n";
  return text;
}

json::Value mmlu_json(const MmluReport& report, const MmluBenchOptions& options, const std::string& command) {
  json::Value value = report_head(command, report.model, report.engine);
  value.update({{"seed", options.dataset.seed},
                {"max_num_seqs", options.model.max_num_seqs},
                {"max_num_batched_tokens", options.model.max_num_batched_tokens},
                {"batch_invariant", options.model.batch_invariant},
                {"runs", options.n_runs}});
  if (report.shortage) {
    value["device"] = report.shortage->need.device;
    value["arms"] = shortage_json(*report.shortage, options.arms);
    return value;
  }
  value["shots"] = json::Value::array();
  for (const MmluRuns& runs : report.runs) {
    json::Value arms = arms_json(runs.arms);
    for (std::size_t i = 0; i < runs.arms.size(); ++i) {
      arms[i]["accuracy"] = runs.accuracy[i].at("").share();
      arms[i]["accuracy_by_subject"] = accuracy_json(runs.accuracy[i]);
    }
    const EqualAnswers equal = compare_arms(runs.arms);
    value["shots"].push_back(
        {{"num_shots", runs.n_shots},
         {"dataset", runs.dataset},
         {"arms", arms},
         {"equal_answers", runs.arms.size() > 1 ? json::Value(equal.n_equal == equal.n_compared) : json::Value(nullptr)},
         {"num_unequal_answers", equal.n_compared - equal.n_equal},
         {"num_compared_answers", equal.n_compared}});
  }
  return value;
}

int mmlu_bench_main(const MmluBenchOptions& options, const std::string& command) {
  return run_benchmark("baton bench mmlu", options, command, run_mmlu_bench, mmlu_text, mmlu_json);
}

}  // namespace baton
