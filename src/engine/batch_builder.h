/// From a plan to the one buffer that a step runs from, and what its attention reads for whom.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "kernels/batch.h"
#include "plan/attention_plan.h"

namespace baton {

/// One layer group of a model: its attention, and how many layers have it.
struct LayerGroup {
  AttentionShape shape;
  std::int32_t n_layers = 0;
};

/// One sequence's share of a step's attention. Bytes are of keys and values over all layers of the rank; what several
/// read together is shared by their rows.
struct SequenceReads {
  SequenceId id;
  std::int64_t kv_bytes_requested = 0;
  std::int64_t kv_bytes_saved = 0;  ///< what plain leaves would read more
  std::int32_t relayed_tokens = 0;  ///< of its context, read together with other sequences
  std::int32_t largest_group = 1;   ///< sequences in the largest such read
};

struct BuiltStep {
  StepInput input;
  /// Of each of the plan's sequences, in plan order: its samples, and so its results.
  std::vector<Range> samples_of = {};
  /// Of each sample, the drafts that it assumes to be accepted; views of the plan's.
  std::vector<std::span<const TokenId>> drafts_of_sample = {};
  std::vector<SequenceReads> reads = {};  ///< of each sequence, in batch order
  std::vector<RelayNode> nodes = {};      ///< shared reads of the layer group that has most
  std::int64_t kv_bytes_requested = 0;    ///< sums over reads
  std::int64_t kv_bytes_saved = 0;
};

/// The outcomes of a step's results, in plan order, for those of its sequences that `find_live` finds; it gives null
/// for one that has ended.
std::vector<StepOutcome> read_results(const StepPlan& plan, const BuiltStep& built, std::span<const SampleResult> results,
                                      const std::function<const Sequence*(SequenceId)>& find_live);

/// Sequences are laid out depth first over the tree of their block tables, and each layer group's attention is planned
/// from them. The same plan and sequences give the same buffer; only memory is kept from step to step. Thread: engine
/// only.
class BatchBuilder {
 public:
  BatchBuilder(std::vector<LayerGroup> groups, const AttentionPlanOptions& options);
  ~BatchBuilder();
  BatchBuilder(BatchBuilder&&) noexcept;

  /// Whether the steps built from now on read shared nodes once for all.
  void set_relay(bool relay) { options_.relay = relay; }

  /// `find` gives the sequence of an id of the plan, as the plan left it. The sequences' token counts are brought up
  /// to date, and the prompt tokens that the step scores are counted as scored: call it once for a plan.
  BuiltStep build(const StepPlan& plan, const std::function<Sequence&(SequenceId)>& find);

 private:
  struct Work;
  void lay_out(const StepPlan& plan, const std::function<Sequence&(SequenceId)>& find, BuiltStep& built);
  void add_group(const StepPlan& plan, int group, BuiltStep& built);
  void add_reads(const LayerGroup& group, const AttentionPlan& plan, BuiltStep& built);

  std::vector<LayerGroup> groups_;
  int order_group_ = 0;  ///< the group whose tables order the sequences: one without a window if there is any
  AttentionPlanOptions options_;
  AttentionPlanner planner_;
  std::unique_ptr<Work> work_;
};

}  // namespace baton
