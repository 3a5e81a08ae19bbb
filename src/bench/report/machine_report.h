/// What every report of a benchmark says (program, commit, machine and model), and where it goes.
#pragma once

#include <optional>
#include <string>

#include "cli/options.h"
#include "core/result.h"
#include "engine/engine.h"
#include "io/json.h"

namespace baton {

/// "baton 0.1.0 (commit 0123abc): AMD EPYC, 2 threads (avx512_bf16)".
std::string machine_line(const EngineInfo& engine);

/// The first keys of a report: command, version, device, features, model, weight_dtype, weight_scheme, kv_dtype. Without an engine,
/// which could not be made, only known values are not null.
json::Value report_head(const std::string& command, const std::string& model, const std::optional<EngineInfo>& engine);

/// Writes the text on standard output and, unless `json_file` is empty, the numbers into that file. Returns the exit code
/// of `program` ("baton bench decode").
int write_report(const std::string& program, const std::string& text, const json::Value& numbers, const std::string& json_file);

/// Whether a file for numbers can be written, before a measurement that would be lost; an empty name is no file. Errors name
/// --json.
Result<void> check_json_file(const std::string& json_file);

/// Says on standard error why `program` has no report. Returns the exit code.
int report_failure(const std::string& program, const Error& error);

/// The main function of a benchmark that loads a model: looks whether its JSON file can be written, runs it and writes its report,
/// as text and as JSON. Returns the exit code.
template <class Options, class Run, class Text, class Numbers>
int run_benchmark(const std::string& program, const Options& options, const std::string& command, const Run& run,
                  const Text& text, const Numbers& numbers) {
  use_log_level(options.model);
  if (const auto can_write = check_json_file(options.json_file); !can_write) return report_failure(program, can_write.error());
  const auto report = run(options);
  if (!report) return report_failure(program, report.error());
  return write_report(program, text(*report, options, command), numbers(*report, options, command), options.json_file);
}

}  // namespace baton
