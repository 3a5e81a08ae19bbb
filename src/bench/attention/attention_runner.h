/// One case of the attention benchmark: its keys and values, its plans, and the times of each arm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/attention/attention_cases.h"
#include "core/ids.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/batch.h"

namespace baton {

/// The results of one arm for a case.
struct AttentionArmRun {
  std::string arm;            ///< relay or paged
  std::vector<double> us;     ///< decode attention and merge of one layer, one value for each run
  std::int64_t kv_bytes = 0;  ///< bytes that the plan requests
  std::int64_t n_items = 0;
  std::int64_t n_partials = 0;
  std::int64_t step_bytes = 0;  ///< bytes of the plan that are sent to the device
  std::string plan;             ///< text for readers, beginning with the costs that the plan was made with

  double median_us() const;
  double spread() const;  ///< (largest - smallest) / median
};

struct AttentionBenchRun {
  AttentionBenchCase of;
  DType kv_dtype = DType::bf16;
  std::vector<AttentionArmRun> arms;  ///< paged and relay, as asked for; relay only with shared tokens
  std::int64_t distinct_bytes = 0;    ///< keys and values that must be read at least once
  std::int64_t plain_bytes = 0;       ///< if each request reads all of its own
  std::int64_t query_bytes = 0;       ///< queries and outputs
  double flops = 0;
  int n_layers = 0;    ///< layers in the rotation
  int n_calls = 0;     ///< attention calls in a graph
  double read_us = 0;  ///< a read-only kernel over the distinct bytes; 0: not measured

  /// The arm with this name, or null.
  const AttentionArmRun* arm(std::string_view name) const;
  /// Relay, or paged if there is no relay.
  const AttentionArmRun& best() const { return arms.back(); }
};

/// How layers are rotated, so that no call finds the keys of the previous call in a cache.
struct AttentionRotation {
  std::int64_t bytes = 0;  ///< least size of the keys and values of all layers
  int fewest_layers = 1;
  int fewest_calls = 1;  ///< least number of calls in a graph, to spread its launch time

  int n_layers(std::int64_t distinct_bytes) const;
};

/// The plans of a case, made once, and their graphs. Thread: the backend's only.
class AttentionCaseRunner {
 public:
  /// Fills keys, values and queries with normally distributed numbers and captures the arms (only paged if nothing is
  /// shared). The backend must outlive the runner.
  static Result<AttentionCaseRunner> make(Backend& backend, const AttentionBenchCase& of, DType kv_dtype,
                                          const AttentionRotation& rotation, const std::vector<std::string>& arms,
                                          bool batch_invariant);
  AttentionCaseRunner(AttentionCaseRunner&&) noexcept;
  ~AttentionCaseRunner();

  /// Runs every arm once, over all layers. Timed by the device's clock or by this thread's processor time.
  void measure(bool processor_time);
  /// Discards the measurements so far (the first pass touches memory).
  void forget();
  /// Returns the measurements. The runner is empty afterwards.
  AttentionBenchRun finish();

 private:
  struct Arm;

  AttentionCaseRunner(Backend& backend, const AttentionBenchCase& of, DType kv_dtype, const AttentionRotation& rotation,
                      bool batch_invariant);
  Result<void> fill(std::int32_t n_blocks);
  Result<void> add_arm(const std::string& name);
  Result<void> capture(Arm& arm);
  Shape q_shape() const { return {run_.of.n_requests, run_.of.n_heads, run_.of.head_dim}; }
  Shape out_shape() const {
    return {run_.of.n_requests, run_.of.n_heads, run_.of.latent_dim > 0 ? run_.of.latent_dim : run_.of.head_dim};
  }

  Backend* backend_;
  AttentionBenchRun run_;
  DType q_dtype_;
  bool batch_invariant_;
  std::vector<std::vector<BlockId>> tables_;
  std::unique_ptr<KvStorage> kv_;
  Buffer q_, out_;
  std::vector<std::unique_ptr<Arm>> arms_;  // graphs contain their addresses
};

/// The host's work for a step of many requests.
struct PlanningTime {
  AttentionBenchCase of;
  double order_us = 0;  ///< depth_first_order; medians
  double plan_us = 0;   ///< plan_attention
  double pack_us = 0;   ///< append_plan
  std::int64_t step_bytes = 0;
  std::int64_t n_items = 0;
};
/// Plans a case in relay mode repeatedly, with the backend's costs.
PlanningTime time_planning(const Backend& backend, const AttentionBenchCase& of, DType kv_dtype, bool batch_invariant);

}  // namespace baton
