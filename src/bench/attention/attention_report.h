/// The report of an attention benchmark: tables in Markdown, and numbers as JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/attention/attention_runner.h"
#include "io/json.h"

namespace baton {

struct AttentionBenchReport {
  std::string device;
  std::string features;
  bool is_asynchronous = false;  ///< a device with its own clock; otherwise a CPU
  double read_bytes_per_us = 0;  ///< plain reads during the run: 256 MiB by CPU threads, 2 GiB by a CUDA kernel
  std::vector<AttentionBenchRun> runs;
  std::vector<PlanningTime> planning;
  std::vector<std::string> left_out;  ///< cases that do not fit memory, one sentence each

  /// The least possible time of a case: its keys, values, queries and outputs at read_bytes_per_us.
  double floor_us(const AttentionBenchRun& run) const;
};

/// The report's tables in Markdown: times of both arms, floors, and on a CUDA device the goals and other programs'
/// times.
std::string attention_tables(const AttentionBenchReport& report);

/// The plans of all cases, for --explain.
std::string attention_plans(const AttentionBenchReport& report);

/// The host's planning times, one line for each shape.
std::string planning_lines(const AttentionBenchReport& report);

json::Value attention_json(const AttentionBenchReport& report, const std::string& command);

}  // namespace baton
