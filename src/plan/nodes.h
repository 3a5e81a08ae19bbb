/// Decides which nodes of the prefix tree are read once for all their sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/attention_plan.h"
#include "plan/cost_model.h"
#include "plan/tree.h"

namespace baton {

/// `index`, which is not negative, as the type that containers take.
inline std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// A step's sequences and their rows.
struct LaidOutRows {
  std::span<const SequenceRows> sequences;
  std::span<const std::int32_t> first_row;  ///< of each sequence; one more element for the end
  std::span<const TokenRow> rows;
  std::span<const std::int32_t> sequence_of_row = {};

  /// Rows of a node, or of anything else with first_sequence and n_sequences.
  std::int32_t n_rows_of(const auto& run) const {
    return first_row[static_cast<std::size_t>(run.first_sequence + run.n_sequences)] -
           first_row[static_cast<std::size_t>(run.first_sequence)];
  }
};

/// Finds the tree and decides about each node. Reuses its memory from call to call.
class NodeChooser {
 public:
  /// Writes one report for each of nodes() into `tree`.
  void choose(const LaidOutRows& rows, const AttentionShape& shape, const AttentionPlanOptions& options,
              const AttentionCostModel& model, std::vector<NodeReport>& tree);
  std::span<const PrefixNode> nodes() const { return nodes_; }
  /// Additional reads of positions with these choices, compared with relaying every node.
  std::int64_t count_lost(const LaidOutRows& rows, const AttentionShape& shape, const AttentionCostModel& model,
                          std::span<const NodeReport> tree);

 private:
  /// What the decision about a node passes to its parent.
  struct State {
    RunReads more_reads;           ///< reads by the nodes below it, minus what its leaves alone would need
    std::int32_t merged_rows = 0;  ///< rows below it that a relayed node covers
    double saved_below_us = 0;     ///< what relayed nodes below it save at its keys
    double weight_below = 0;       ///< the sum of its children's weights
    double weight = 0;             ///< its part, or that of relayed nodes below it, in what is saved at keys before it
    double earned_us = 0;          ///< what it, or relayed nodes below it, save at keys before it
  };

  void build_tree(const LaidOutRows& rows, const AttentionShape& shape, bool batch_invariant);
  double decide(std::size_t index, const LaidOutRows& rows, const AttentionShape& shape, const AttentionPlanOptions& options,
                const AttentionCostModel& model, NodeReport& report);
  void credit(std::vector<NodeReport>& tree);
  RunReads leaf_reads(const PrefixNode& node) const;

  std::vector<std::int32_t> common_len_;
  PrefixTreeBuilder builder_;
  std::vector<PrefixNode> nodes_;
  std::vector<State> states_;
  std::vector<RunReads> leaf_reads_before_;  ///< prefix sums over sequences, if each reads by itself
};

}  // namespace baton
