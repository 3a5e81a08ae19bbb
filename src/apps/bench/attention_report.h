/// What a run of the attention benchmark says: its tables for a reader, its numbers as JSON.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/attention_runner.h"
#include "io/json.h"

namespace baton {

struct AttentionBenchReport {
  std::string device;
  std::string features;
  bool is_asynchronous = false;  ///< a device, with a clock of its own; else a CPU
  double read_bytes_per_us = 0;  ///< plain reads during the run: 256 MiB by a CPU's threads, 2 GiB by a CUDA kernel
  std::vector<AttentionBenchRun> runs;
  std::vector<PlanningTime> planning;
  std::vector<std::string> left_out;  ///< cases that memory does not hold, a sentence each

  /// The least time for a case: its keys, values, queries and outputs at read_bytes_per_us.
  double floor_us(const AttentionBenchRun& run) const;
};

/// Tables of the report in Markdown: times of both arms, floors, and on a CUDA device the goals and what others need.
std::string attention_tables(const AttentionBenchReport& report);

/// The plans of every case, for --explain.
std::string attention_plans(const AttentionBenchReport& report);

/// What planning costs the host, a line a shape.
std::string planning_lines(const AttentionBenchReport& report);

json::Value attention_json(const AttentionBenchReport& report, const std::string& command);

}  // namespace baton
