/// Program, commit, machine and model as a line and as JSON; the way out of a report.
#include "bench/report/machine_report.h"

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/version.h"
#include "io/file.h"

namespace baton {

std::string machine_line(const EngineInfo& engine) {
  return fmt::format("{}: {} ({})", version_line(), engine.backend.device, engine.backend.features);
}

json::Value report_head(const std::string& command, const std::string& model, const std::optional<EngineInfo>& engine) {
  json::Value head{{"command", command}, {"version", version_line()}, {"device", nullptr},        {"features", nullptr},
                   {"model", model},     {"weight_dtype", nullptr},   {"weight_scheme", nullptr}, {"kv_dtype", nullptr}};
  if (!engine) return head;
  head["device"] = engine->backend.device;
  head["features"] = engine->backend.features;
  head["weight_dtype"] = to_string(engine->weight_dtype);
  head["weight_scheme"] = engine->weight_scheme;
  head["kv_dtype"] = to_string(engine->kv_dtype);
  return head;
}

int write_report(const std::string& program, const std::string& text, const json::Value& numbers,
                 const std::string& json_file) {
  write_output(text);
  if (json_file.empty()) return 0;
  const auto written = write_file(json_file, json::dump_pretty(numbers));
  return written ? 0 : report_failure(program, written.error());
}

Result<void> check_json_file(const std::string& json_file) {
  if (json_file.empty()) return {};
  return check_can_write(json_file).map_error([](const Error& error) {
    return Error{error.code, fmt::format("--json: {}", error.message), "json"};
  });
}

int report_failure(const std::string& program, const Error& error) {
  print_error(program, error);
  return 1;
}

}  // namespace baton
