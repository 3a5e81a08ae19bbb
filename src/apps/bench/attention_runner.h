/// One line of the attention benchmark: its keys and values, its plans, and the times of each arm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/attention_cases.h"
#include "core/ids.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/batch.h"

namespace baton {

/// What one arm did with a case.
struct AttentionArmRun {
  std::string arm;            ///< relay or paged
  std::vector<double> us;     ///< of one layer's decode and merge, one a run
  std::int64_t kv_bytes = 0;  ///< that the plan requests
  std::int64_t n_items = 0;
  std::int64_t n_partials = 0;
  std::int64_t step_bytes = 0;  ///< what is sent to the device for the plan
  std::string plan;             ///< for a reader, the costs it was made with first

  double median_us() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct AttentionBenchRun {
  AttentionBenchCase of;
  DType kv_dtype = DType::bf16;
  std::vector<AttentionArmRun> arms;  ///< paged and relay, as far as they were asked for; relay only where something is shared
  std::int64_t distinct_bytes = 0;    ///< keys and values that must be read at least once
  std::int64_t plain_bytes = 0;       ///< were each request to read all of its own
  std::int64_t query_bytes = 0;       ///< queries and outputs
  double flops = 0;
  int n_layers = 0;    ///< that are rotated
  int n_calls = 0;     ///< of attention in a graph
  double read_us = 0;  ///< a read-only kernel over the distinct bytes; 0: not measured

  /// The arm of that name, or null.
  const AttentionArmRun* arm(std::string_view name) const;
  /// Relay, or paged where there is no relay.
  const AttentionArmRun& best() const { return arms.back(); }
};

/// How far layers are rotated, so that no call finds the keys of the call before in a cache.
struct AttentionRotation {
  std::int64_t bytes = 0;  ///< keys and values of all layers, at least
  int fewest_layers = 1;
  int fewest_calls = 1;  ///< in one graph: spreads the launch of it

  int n_layers(std::int64_t distinct_bytes) const;
};

/// The plans of a case, made once, and their graphs. Thread: one, the backend's.
class AttentionCaseRunner {
 public:
  /// Fills keys, values and queries with normal numbers and records the arms (paged alone where nothing is shared).
  /// The backend outlives the runner.
  static Result<AttentionCaseRunner> make(Backend& backend, const AttentionBenchCase& of, DType kv_dtype,
                                          const AttentionRotation& rotation, const std::vector<std::string>& arms);
  AttentionCaseRunner(AttentionCaseRunner&&) noexcept;
  ~AttentionCaseRunner();

  /// Every arm once, over all layers, by the device's clock or by this thread's processor time.
  void measure(bool processor_time);
  /// Forgets what was measured so far (a first pass touches memory).
  void forget();
  /// What was measured; the runner is empty after it.
  AttentionBenchRun finish();

 private:
  struct Arm;

  AttentionCaseRunner(Backend& backend, const AttentionBenchCase& of, DType kv_dtype, const AttentionRotation& rotation);
  Result<void> fill(std::int32_t n_blocks);
  Result<void> add_arm(const std::string& name);
  Result<void> capture(Arm& arm);
  Shape q_shape() const { return {run_.of.n_requests, run_.of.n_heads, run_.of.head_dim}; }

  Backend* backend_;
  AttentionBenchRun run_;
  DType q_dtype_;
  std::vector<std::vector<BlockId>> tables_;
  std::unique_ptr<KvStorage> kv_;
  Buffer q_, out_;
  std::vector<std::unique_ptr<Arm>> arms_;  // graphs hold their addresses
};

/// What the host does for a step of many requests.
struct PlanningTime {
  AttentionBenchCase of;
  double order_us = 0;  ///< depth_first_order; medians
  double plan_us = 0;   ///< plan_attention
  double pack_us = 0;   ///< append_plan
  std::int64_t step_bytes = 0;
  std::int64_t n_items = 0;
};
/// Plans a case in relay mode over and over, with the costs of the backend.
PlanningTime time_planning(const Backend& backend, const AttentionBenchCase& of, DType kv_dtype);

}  // namespace baton
