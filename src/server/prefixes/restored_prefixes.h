/// Registers the API's prefixes of an earlier run again.
#pragma once

#include "engine/engine.h"
#include "server/prefixes/prefix_store.h"
#include "server/prefixes/prefixes.h"
#include "server/served/served_model.h"

namespace baton {

/// Adds every prefix of the API that is in the store, with log lines about the progress. One that cannot be added (its name
/// belongs to a flag now, or there is no room) gets one log line, and its file stays.
void restore_prefixes(PrefixStore& store, Prefixes& prefixes, const PrefixLimits& limits, const ServedModel& model,
                      Engine& engine);

}  // namespace baton
