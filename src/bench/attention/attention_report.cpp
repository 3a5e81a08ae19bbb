/// Markdown and JSON of the attention benchmark.
#include "bench/attention/attention_report.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "bench/report/markdown_table.h"

namespace baton {
namespace {

constexpr double kPlanningGoalUs = 50;
constexpr std::int64_t kStepGoalBytes = 64 << 10;

constexpr const char* kTitles[][2] = {
    {"W1", "The Flash-Decoding table: 16 query heads, 2 KV heads, d = 128, nothing shared"},
    {"W2", "The RelayAttention figure: Llama-30B attention, 52 heads, d = 128"},
    {"W3", "Llama-3-8B attention: 32 query heads, 8 KV heads, d = 128"},
    {"PAT 32/32", "PAT's trees: 32 query heads, 32 KV heads, d = 128"},
    {"PAT 16/8", "PAT's trees: 16 query heads, 8 KV heads, d = 128"},
    {"PAT 32/8", "PAT's trees: 32 query heads, 8 KV heads, d = 128"},
    {"PAT 64/8", "PAT's trees: 64 query heads, 8 KV heads, d = 128"},
    {"free", "Shapes given by flags"},
};

std::string with_spread(const AttentionArmRun* arm, int digits) {
  return arm == nullptr ? "-" : fmt::format("{:.{}f} ± {:.0f}%", arm->median_us(), digits, 50 * arm->spread());
}

/// The ratio of the paged arm's time to the relay arm's.
std::string paged_over_relay(const AttentionBenchRun& run) {
  const AttentionArmRun* paged = run.arm("paged");
  const AttentionArmRun* relay = run.arm("relay");
  return paged == nullptr || relay == nullptr ? "-" : fmt::format("{:.2f}", paged->median_us() / relay->median_us());
}

std::vector<const AttentionBenchRun*> runs_of(const AttentionBenchReport& report, const std::string& table) {
  std::vector<const AttentionBenchRun*> runs;
  for (const AttentionBenchRun& run : report.runs)
    if (run.of.table == table) runs.push_back(&run);
  return runs;
}

std::string cpu_table(const AttentionBenchReport& report, const std::string& table) {
  MarkdownTable out({"requests", "own", "shared", "paged, us", "relay, us", "paged / relay", "floor, us", "best / floor",
                     "KV GB/s, requested", "as if read by each", "GFLOP/s"});
  for (const AttentionBenchRun* run : runs_of(report, table)) {
    const AttentionArmRun& best = run->best();
    const double us = best.median_us();
    const double floor_us = report.floor_us(*run);
    out.add({std::to_string(run->of.n_requests), std::to_string(run->of.own_len), shared_text(run->of),
             with_spread(run->arm("paged"), 0), with_spread(run->arm("relay"), 0), paged_over_relay(*run),
             fmt::format("{:.0f}", floor_us), fmt::format("{:.2f}", us / floor_us),
             fmt::format("{:.1f}", static_cast<double>(best.kv_bytes) / us / 1e3),
             fmt::format("{:.1f}", static_cast<double>(run->plain_bytes) / us / 1e3),
             fmt::format("{:.0f}", run->flops / us / 1e3)});
  }
  return out.text();
}

/// The goal of a line, and whether it is reached. Other programs' times count for the table's own dtype only.
struct Verdict {
  std::optional<double> goal_us;
  std::optional<AttentionReferences> references;
  std::string text = "-";
};

Verdict judge(const AttentionBenchReport& report, const AttentionBenchRun& run) {
  Verdict verdict;
  if (!report.is_asynchronous || run.of.table == "free" || run.kv_dtype != table_dtype(run.of.table)) return verdict;
  verdict.goal_us = attention_goal_us(run.of, run.read_us, report.floor_us(run));
  verdict.references = attention_references(run.of);
  if (!verdict.goal_us || !verdict.references) return verdict;
  const double us = run.best().median_us();
  const bool reaches = us <= *verdict.goal_us;
  const bool is_first = us < verdict.references->best_peer_us();
  verdict.text = reaches && is_first ? "pass" : reaches ? "FAIL: peer" : is_first ? "FAIL: goal" : "FAIL: both";
  return verdict;
}

void append_references(std::vector<std::string>& cells, const std::string& table, const Verdict& verdict) {
  if (!verdict.references) {
    cells.resize(cells.size() + reference_titles(table).size(), "-");
    return;
  }
  for (const auto& [name, us] : verdict.references->peers) cells.push_back(fmt::format("{:.1f}", us));
  for (const auto& [name, us] : verdict.references->published) cells.push_back(fmt::format("{:.1f}", us));
}

std::string cuda_table(const AttentionBenchReport& report, const std::string& table) {
  std::vector<std::string> titles{
      "requests",  "own",          "shared",   "paged, us", "relay, us", "paged / relay",           "read, us",
      "floor, us", "best / floor", "goal, us", "goal",      "TB/s",      "TB/s as if read by each", "TFLOP/s"};
  const bool has_plain = table == "W2" || table == "W3";
  if (has_plain) titles.push_back("paged / their plain");
  for (const std::string& title : reference_titles(table)) titles.push_back("(" + title + ")");
  MarkdownTable out(titles);
  for (const AttentionBenchRun* run : runs_of(report, table)) {
    const AttentionArmRun* paged = run->arm("paged");
    const AttentionArmRun& best = run->best();
    const double us = best.median_us();
    const double floor_us = report.floor_us(*run);
    const Verdict verdict = judge(report, *run);
    std::vector<std::string> cells{std::to_string(run->of.n_requests),
                                   std::to_string(run->of.own_len),
                                   shared_text(run->of),
                                   with_spread(paged, 2),
                                   with_spread(run->arm("relay"), 2),
                                   paged_over_relay(*run),
                                   run->read_us > 0 ? fmt::format("{:.2f}", run->read_us) : "-",
                                   fmt::format("{:.2f}", floor_us),
                                   fmt::format("{:.2f}", us / floor_us),
                                   verdict.goal_us ? fmt::format("{:.2f}", *verdict.goal_us) : "-",
                                   verdict.text,
                                   fmt::format("{:.2f}", static_cast<double>(best.kv_bytes) / us / 1e6),
                                   fmt::format("{:.2f}", static_cast<double>(run->plain_bytes) / us / 1e6),
                                   fmt::format("{:.0f}", run->flops / us / 1e6)};
    if (has_plain)
      cells.push_back(verdict.references && paged != nullptr
                          ? fmt::format("{:.2f}", paged->median_us() / verdict.references->peers.front().second)
                          : "-");
    append_references(cells, table, verdict);
    out.add(cells);
  }
  return out.text();
}

std::string dtypes_of(const std::vector<const AttentionBenchRun*>& runs) {
  std::string text;
  for (const AttentionBenchRun* run : runs) {
    const std::string name(to_string(run->kv_dtype));
    if (text.find(name) == std::string::npos) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string case_text(const AttentionBenchCase& of) {
  return fmt::format("{}: {} requests, {} shared by {}, {} own, {} heads, {} KV heads, d = {}{}", of.table, of.n_requests,
                     shared_text(of),
                     of.tree.size() > 1 ? "levels"
                     : of.n_groups > 1  ? "each group"
                                        : "all",
                     of.own_len, of.n_heads, of.n_kv_heads, of.head_dim,
                     of.latent_dim > 0 ? fmt::format(", values of {} in the keys", of.latent_dim) : "");
}

json::Value case_json(const AttentionBenchCase& of) {
  json::Value value{{"table", of.table},         {"heads", of.n_heads}, {"kv_heads", of.n_kv_heads}, {"head_dim", of.head_dim},
                    {"requests", of.n_requests}, {"own", of.own_len},   {"shared", of.shared_len},   {"groups", of.n_groups}};
  if (of.latent_dim > 0) value["latent_dim"] = of.latent_dim;
  for (const AttentionLevel& level : of.tree) value["tree"].push_back({{"nodes", level.n_nodes}, {"len", level.len}});
  return value;
}

json::Value run_json(const AttentionBenchReport& report, const AttentionBenchRun& run) {
  json::Value arms = json::Value::array();
  for (const AttentionArmRun& arm : run.arms)
    arms.push_back({{"arm", arm.arm},
                    {"us", arm.us},
                    {"median_us", arm.median_us()},
                    {"spread", arm.spread()},
                    {"kv_bytes_requested", arm.kv_bytes},
                    {"items", arm.n_items},
                    {"partials", arm.n_partials},
                    {"step_bytes", arm.step_bytes}});
  json::Value value = case_json(run.of);
  value["kv_dtype"] = std::string(to_string(run.kv_dtype));
  value["distinct_bytes"] = run.distinct_bytes;
  value["plain_bytes"] = run.plain_bytes;
  value["query_bytes"] = run.query_bytes;
  value["flops"] = run.flops;
  value["layers"] = run.n_layers;
  value["calls"] = run.n_calls;
  value["floor_us"] = report.floor_us(run);
  value["arms"] = std::move(arms);
  if (run.read_us > 0) value["read_us"] = run.read_us;
  const Verdict verdict = judge(report, run);
  if (!verdict.goal_us || !verdict.references) return value;
  value["goal_us"] = *verdict.goal_us;
  value["verdict"] = verdict.text;
  json::Value references = json::Value::object();
  for (const auto& [name, us] : verdict.references->peers) references[name] = us;
  for (const auto& [name, us] : verdict.references->published) references[name] = us;
  value["references"] = std::move(references);
  return value;
}

}  // namespace

double AttentionBenchReport::floor_us(const AttentionBenchRun& run) const {
  return static_cast<double>(run.distinct_bytes + (is_asynchronous ? run.query_bytes : 0)) / read_bytes_per_us;
}

std::string attention_tables(const AttentionBenchReport& report) {
  std::string text;
  for (const auto& [table, title] : kTitles) {
    const auto runs = runs_of(report, table);
    if (runs.empty()) continue;
    text += fmt::format("\n{}: {} ({})\n\n{}", table, title, dtypes_of(runs),
                        report.is_asynchronous ? cuda_table(report, table) : cpu_table(report, table));
  }
  for (const std::string& line : report.left_out) text += fmt::format("\nLeft out: {}\n", line);
  return text;
}

std::string attention_plans(const AttentionBenchReport& report) {
  std::string text;
  for (const AttentionBenchRun& run : report.runs)
    text += fmt::format("\n{}, {}\n{}", case_text(run.of), run.best().arm, run.best().plan);
  return text;
}

std::string planning_lines(const AttentionBenchReport& report) {
  std::string text;
  for (const PlanningTime& time : report.planning)
    text += fmt::format(
        "Planning, {}: plan {:.1f} us + pack {:.1f} us (order of the batch, when it changes: {:.1f} us), {} items, {:.1f} KB "
        "sent; "
        "goal {} us, {} KB: {}\n",
        case_text(time.of), time.plan_us, time.pack_us, time.order_us, time.n_items,
        static_cast<double>(time.step_bytes) / 1024, kPlanningGoalUs, kStepGoalBytes >> 10,
        time.plan_us + time.pack_us < kPlanningGoalUs && time.step_bytes < kStepGoalBytes ? "pass" : "FAIL");
  return text;
}

json::Value attention_json(const AttentionBenchReport& report, const std::string& command) {
  json::Value runs = json::Value::array();
  for (const AttentionBenchRun& run : report.runs) runs.push_back(run_json(report, run));
  json::Value planning = json::Value::array();
  for (const PlanningTime& time : report.planning) {
    json::Value value = case_json(time.of);
    value["order_us"] = time.order_us;
    value["plan_us"] = time.plan_us;
    value["pack_us"] = time.pack_us;
    value["step_bytes"] = time.step_bytes;
    value["items"] = time.n_items;
    planning.push_back(std::move(value));
  }
  return {{"command", command},          {"device", report.device},
          {"features", report.features}, {"read_bytes_per_us", report.read_bytes_per_us},
          {"runs", std::move(runs)},     {"planning", std::move(planning)},
          {"left_out", report.left_out}};
}

}  // namespace baton
