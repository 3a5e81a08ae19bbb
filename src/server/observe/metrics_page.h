/// The page GET /metrics: the engine's counters under the names of docs/api.md, HTTP, the process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/request/metrics.h"
#include "server/http/connection_table.h"
#include "server/keys/api_keys.h"
#include "server/limits/budget.h"
#include "server/prefixes/prefixes.h"
#include "server/served/grammars.h"

namespace baton {

/// The text exposition of Prometheus. Labels of the engine's metrics: model_name, engine="0". Thread: any.
class MetricsPage {
 public:
  MetricsPage(const Engine& engine, std::string model_name);
  ~MetricsPage();

  /// `handler` is a route, not a path, to limit the number of label values.
  void observe_request(std::string_view handler, std::string_view method, int status, double seconds);

  /// Counts a time that the I/O thread waited for a lock.
  void observe_io_wait(double seconds) { io_lock_waits_.observe(seconds); }

  /// What other parts of the server count.
  struct Counts {
    PrefixCounts prefixes;
    std::vector<KeyCounts> keys;
    GrammarCounts grammars;
    const Budgets& budgets;
    const ConnectionCounts& connections;
    std::string_view responses_at = {};  ///< the path whose answers are stored
    std::size_t n_responses = 0;         ///< stored answers
    std::size_t n_response_bytes = 0;
  };
  std::string render(const Counts& counts) const;

 private:
  class Http;
  const Engine& engine_;
  std::string model_name_;
  std::unique_ptr<Http> http_;
  Histogram io_lock_waits_{{1e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 1}};
};

}  // namespace baton
