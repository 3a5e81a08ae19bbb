/// The printed form of attention plans.
#include <fmt/format.h>

#include "plan/attention_plan.h"

namespace baton {

std::string_view to_string(NodeChoice choice) {
  switch (choice) {
    case NodeChoice::relayed: return "relayed";
    case NodeChoice::costs_more: return "not relayed, costs more than it saves";
    case NodeChoice::merging_costs: return "not relayed, all such nodes save less than the merging they bring";
    case NodeChoice::outside_window: return "not relayed, outside every row's window";
    case NodeChoice::no_room: return "not relayed, the step's buffers are full";
  }
  check_failed("to_string: a choice that does not exist");
}

std::string to_string(const AttentionPlan& plan) {
  const AttentionPlanStats& stats = plan.stats;
  std::string text = fmt::format(
      "rows {}  items {}  partial states {}  KV bytes a layer: {} requested, {} as leaves, {} shared and read again\n"
      "estimated time: {:.1f} us if shared evenly, {:.1f} us to the end of the last worker\n",
      plan.rows.size(), plan.items.size(), plan.n_partials, stats.kv_bytes_requested, stats.kv_bytes_plain,
      stats.shareable_bytes_lost, stats.busy_us, stats.makespan_us);
  if (plan.n_larger_workers > 0)
    text += fmt::format("the first {} items in larger tiles, by {} of {} workers\n", plan.n_larger_items, plan.n_larger_workers,
                        plan.worker_offsets.size() - 1);
  for (const NodeReport& node : stats.tree)
    text += fmt::format("{:{}}node [{}, {})  sequences [{}, {})  {}: saves {:.2f} us, costs {:.2f} us\n", "",
                        2 * node.depth + 2, node.kv_begin, node.kv_end, node.first_sequence,
                        node.first_sequence + node.n_sequences, to_string(node.choice), node.saved_us, node.cost_us);
  for (const AttentionItem& item : plan.items)
    text += fmt::format("  item rows [{}, {})  keys [{}, {})  {}{}sequences {}\n", item.first_row, item.first_row + item.n_rows,
                        item.kv_begin, item.kv_end, (item.flags & AttentionItem::direct) != 0 ? "direct " : "",
                        (item.flags & AttentionItem::masked) != 0 ? "masked " : "", item.n_sequences);
  return text;
}

}  // namespace baton
