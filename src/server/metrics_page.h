/// What GET /metrics shows: the engine's counters under the names of docs/api.md, HTTP, the process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/prefixes.h"

namespace baton {

/// The text exposition of Prometheus. Labels of the engine's metrics: model_name, engine="0". Thread: any.
class MetricsPage {
 public:
  MetricsPage(const Engine& engine, std::string model_name);
  ~MetricsPage();

  /// `handler` is a route, not a path, so that there are few.
  void observe_request(std::string_view handler, std::string_view method, int status, double seconds);

  std::string render(const PrefixCounts& prefixes) const;

 private:
  class Http;
  const Engine& engine_;
  std::string model_name_;
  std::unique_ptr<Http> http_;
};

}  // namespace baton
