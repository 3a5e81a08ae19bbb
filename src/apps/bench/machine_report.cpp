/// Program, commit, machine and model as a line and as JSON.
#include "apps/bench/machine_report.h"

#include <fmt/format.h>

#include "apps/version.h"

namespace baton {

std::string machine_line(const EngineInfo& engine) {
  return fmt::format("{}: {} ({})", version_line(), engine.backend.device, engine.backend.features);
}

json::Value report_head(const std::string& command, const std::string& model, const std::optional<EngineInfo>& engine) {
  json::Value head{{"command", command}, {"version", version_line()}, {"device", nullptr},  {"features", nullptr},
                   {"model", model},     {"weight_dtype", nullptr},   {"kv_dtype", nullptr}};
  if (!engine) return head;
  head["device"] = engine->backend.device;
  head["features"] = engine->backend.features;
  head["weight_dtype"] = to_string(engine->weight_dtype);
  head["kv_dtype"] = to_string(engine->kv_dtype);
  return head;
}

}  // namespace baton
