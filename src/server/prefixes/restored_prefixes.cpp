/// Restoring stored prefixes at the start.
#include "server/prefixes/restored_prefixes.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/one_line.h"
#include "server/request/stamp.h"

namespace baton {

void restore_prefixes(PrefixStore& store, Prefixes& prefixes, const PrefixLimits& limits, const ServedModel& model,
                      Engine& engine) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kProgress{5};
  std::vector<PrefixDefinition> definitions = store.definitions(unix_seconds());
  std::uint64_t n_bytes = 0;
  for (const PrefixDefinition& definition : definitions) n_bytes += store.bytes_of(definition.name);
  const auto mb = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const Clock::time_point begin = Clock::now();
  Clock::time_point shown = begin;
  std::uint64_t n_done_bytes = 0;
  std::size_t n_done = 0, n_restored = 0;
  for (PrefixDefinition& definition : definitions) {
    const std::string name = definition.name;
    const std::uint64_t own_bytes = store.bytes_of(name);
    const auto added = prefixes.add_within(limits, model, engine, std::move(definition), {[] { return std::string_view(); }});
    if (added)
      ++n_restored;
    else
      log::warning("event=prefix_not_restored name={} reason={}", log_value(name), log_value(added.error().message));
    ++n_done;
    n_done_bytes += own_bytes;
    if (Clock::now() - shown < kProgress) continue;
    shown = Clock::now();
    log::info("event=prefix_store_progress done={} of={} mb={:.0f} of_mb={:.0f}", n_done, definitions.size(), mb(n_done_bytes),
              mb(n_bytes));
  }
  if (definitions.empty()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  log::info("event=prefix_store_ready restored={} of={} mb={:.1f} seconds={:.2f} mb_per_s={:.0f}", n_restored,
            definitions.size(), mb(n_done_bytes), seconds, seconds > 0 ? mb(n_done_bytes) / seconds : 0);
}

}  // namespace baton
