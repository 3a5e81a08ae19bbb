/// Turns a plan into the buffer that a step runs from, and reports what attention reads for each sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "kernels/batch.h"
#include "plan/attention_plan.h"

namespace baton {

/// One layer group of a model: its attention, and how many layers have it.
struct LayerGroup {
  AttentionShape shape;
  std::int32_t n_layers = 0;
};

/// One sequence's share of a step's attention reads. Bytes are bytes of keys and values over all layers of the rank. A
/// shared read is divided among the sequences in proportion to their rows.
struct SequenceReads {
  SequenceId id;
  std::int64_t kv_bytes_requested = 0;
  std::int64_t kv_bytes_saved = 0;  ///< what leaves without sharing would read more
  std::int32_t relayed_tokens = 0;  ///< tokens of its context that are read together with other sequences
  std::int32_t largest_group = 1;   ///< number of sequences in the largest such read
};

struct MaskedSample {
  std::int32_t sequence = 0;  ///< place in the plan
  std::int32_t sample = 0;
};

struct StepSequence {
  /// As of the build. It may end while the step runs: set again before the results are read, null if it is gone.
  Sequence* sequence = nullptr;
  Range samples = {};  ///< and so results; StepMasks takes back the dropped ones, which come last
  SequenceReads reads = {};
};

struct BuiltStep {
  StepInput input;
  std::vector<StepSequence> sequences = {};  ///< in plan order
  /// The drafts that each sample assumes to be accepted; views into the plan.
  std::vector<std::span<const TokenId>> drafts_of_sample = {};
  /// SamplingMetadata::mask is an index into these. Those of one sequence follow each other.
  std::vector<MaskedSample> masked = {};
  std::vector<RelayNode> nodes = {};    ///< shared reads of the layer group that has the most of them
  std::int64_t kv_bytes_requested = 0;  ///< sums over the sequences' reads
  std::int64_t kv_bytes_saved = 0;

  /// Begins another step in the same memory.
  void restart();
};

/// Converts a step's results to `outcomes`, in plan order. A sequence that is gone or has ended gets no outcome.
void read_results(const StepPlan& plan, const BuiltStep& built, std::span<const SampleResult> results,
                  std::vector<StepOutcome>& outcomes);

/// Lays out sequences depth first over the tree of their block tables and plans each layer group's attention from that
/// order. The same plan and sequences give the same buffer: only memory is kept between steps. Thread: engine only.
class BatchBuilder {
 public:
  /// `has_recurrent_layers`: steps have runs for them.
  BatchBuilder(std::vector<LayerGroup> groups, const AttentionPlanOptions& options, bool has_recurrent_layers = false);
  ~BatchBuilder();
  BatchBuilder(BatchBuilder&&) noexcept;

  /// Sets whether the steps built from now on read shared nodes once for all their sequences.
  void set_relay(bool relay) { options_.relay = relay; }

  /// Builds the step. `sequences` are those of the plan, in its order, in the state that planning left them in. Updates
  /// their token counts and their number of scored prompt tokens: call it once for a plan.
  BuiltStep build(const StepPlan& plan, std::span<Sequence* const> sequences);
  /// Takes back a step that was committed, with its input: a later step is built in its memory. Keeps the memory of at
  /// most kMostSpares steps, and none that is more than four times as large as the last step and 64 KB.
  void reuse(BuiltStep ended);

 private:
  struct Work;
  static constexpr std::size_t kMostSpares = 2;

  BuiltStep take_spare();
  void add_masks(std::int32_t sequence, std::size_t first_sample, BuiltStep& built);
  void lay_out(const StepPlan& plan, BuiltStep& built);
  void add_group(const StepPlan& plan, int group, BuiltStep& built);
  void add_reads(const LayerGroup& group, const AttentionPlan& plan, BuiltStep& built);

  std::vector<LayerGroup> groups_;
  int order_group_ = 0;  ///< the group whose block tables order the sequences; one without a window if there is any
  AttentionPlanOptions options_;
  bool has_recurrent_layers_;
  AttentionPlanner planner_;
  std::unique_ptr<Work> work_;
  std::vector<BuiltStep> spares_;
};

}  // namespace baton
