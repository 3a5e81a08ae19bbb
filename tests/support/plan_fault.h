/// The validator of attention plans.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/attention_plan.h"

namespace baton::test {

/// Returns what is wrong with one item by itself, or nothing.
inline std::optional<std::string> find_item_fault(const AttentionPlan& plan, std::size_t index) {
  const AttentionItem& item = plan.items[index];
  if (item.n_rows < 1 || item.first_row < 0 || item.first_row + item.n_rows > static_cast<std::int32_t>(plan.rows.size()))
    return fmt::format("item {} covers rows [{}, {}) of {}", index, item.first_row, item.first_row + item.n_rows,
                       plan.rows.size());
  if (item.kv_begin < 0 || item.kv_begin >= item.kv_end)
    return fmt::format("item {} has the empty run [{}, {})", index, item.kv_begin, item.kv_end);
  bool cuts = false;
  for (std::int32_t row = item.first_row; row < item.first_row + item.n_rows; ++row) {
    const TokenRow& bounds = plan.rows[static_cast<std::size_t>(row)];
    cuts = cuts || bounds.kv_lo > item.kv_begin || bounds.kv_hi < item.kv_end;
  }
  if (cuts && (item.flags & AttentionItem::masked) == 0)
    return fmt::format("item {} cuts through a row's bounds and is not masked", index);
  return std::nullopt;
}

/// Every block that an item reads must be held by a sequence of its rows.
inline std::optional<std::string> find_block_fault(const AttentionPlan& plan, std::size_t index,
                                                   std::span<const SequenceRows* const> sequence_of_row,
                                                   std::int32_t block_len) {
  const AttentionItem& item = plan.items[index];
  const auto rows = sequence_of_row.subspan(static_cast<std::size_t>(item.first_row), static_cast<std::size_t>(item.n_rows));
  for (std::int32_t i = item.kv_begin / block_len; i <= (item.kv_end - 1) / block_len; ++i) {
    const auto entry = static_cast<std::size_t>(item.block_list + i - item.kv_begin / block_len);
    if (entry >= plan.block_lists.size()) return fmt::format("item {} reads past the block lists", index);
    const std::int32_t block = plan.block_lists[entry];
    const auto holds = [&](const SequenceRows* sequence) {
      return i >= sequence->first_block && i < static_cast<std::int32_t>(sequence->blocks.size()) &&
             sequence->blocks[static_cast<std::size_t>(i)].value == block;
    };
    if (std::ranges::none_of(rows, holds))
      return fmt::format("item {} reads block {} for positions from {} on, which no sequence of its rows holds", index, block,
                         i * block_len);
  }
  return std::nullopt;
}

/// Checks the items of one row: each visible position is read once, from the block that the sequence's table names,
/// and the states are merged in the order of positions.
inline std::optional<std::string> find_row_fault(const AttentionPlan& plan, std::int32_t row, const SequenceRows& sequence,
                                                 std::vector<std::int32_t> items, std::int32_t block_len) {
  const TokenRow& bounds = plan.rows[static_cast<std::size_t>(row)];
  std::sort(items.begin(), items.end(), [&](std::int32_t a, std::int32_t b) {
    return plan.items[static_cast<std::size_t>(a)].kv_begin < plan.items[static_cast<std::size_t>(b)].kv_begin;
  });
  std::int32_t next = bounds.kv_lo;
  std::vector<std::int32_t> expected_inputs;
  for (const std::int32_t index : items) {
    const AttentionItem& item = plan.items[static_cast<std::size_t>(index)];
    const std::int32_t begin = std::max(item.kv_begin, bounds.kv_lo);
    const std::int32_t end = std::min(item.kv_end, bounds.kv_hi);
    if (begin < end && begin != next)
      return fmt::format("row {}: position {} is covered {}", row, std::min(begin, next), begin < next ? "twice" : "never");
    next = std::max(next, end);
    for (std::int32_t position = begin; position < end; position += block_len - position % block_len) {
      const auto entry = static_cast<std::size_t>(item.block_list + position / block_len - item.kv_begin / block_len);
      if (entry >= plan.block_lists.size()) return fmt::format("item {} reads past the block lists", index);
      const std::int32_t wanted = sequence.blocks[static_cast<std::size_t>(position / block_len)].value;
      if (plan.block_lists[entry] != wanted)
        return fmt::format("row {}: position {} is read from block {}, its table says {}", row, position,
                           plan.block_lists[entry], wanted);
    }
    const std::int32_t settled_until = item.kv_begin / 16 * 16 + 16 * item.n_settled_granules();
    if (item.n_settled_granules() > 0 && settled_until > sequence.kv_len - sequence.n_rows)
      return fmt::format("item {}: keys before position {} are said to be older than the step, which stores position {}", index,
                         settled_until, sequence.kv_len - sequence.n_rows);
    if ((item.flags & AttentionItem::direct) != 0) {
      if (items.size() != 1) return fmt::format("row {}: item {} is direct and not the row's only one", row, index);
    } else {
      expected_inputs.push_back(item.first_partial + row - item.first_row);
    }
  }
  if (next != bounds.kv_hi) return fmt::format("row {}: position {} is covered never", row, next);
  const std::int32_t from = plan.merge_offsets[static_cast<std::size_t>(row)];
  const std::int32_t to = plan.merge_offsets[static_cast<std::size_t>(row) + 1];
  const std::vector<std::int32_t> inputs(plan.merge_inputs.begin() + from, plan.merge_inputs.begin() + to);
  if (inputs != expected_inputs)
    return fmt::format("row {}: merges {} partial states, and not its {} in order of position", row, inputs.size(),
                       expected_inputs.size());
  return std::nullopt;
}

/// Returns what is wrong with a plan, or nothing. Each row must see each position of its [kv_lo, kv_hi) in exactly one
/// item, which must read the block that the sequence's table names. No item may read a block that none of its rows'
/// sequences holds. Each partial state must be written once and merged once, in ascending
/// order of positions. Flags must be true.
inline std::optional<std::string> find_plan_fault(const AttentionPlan& plan, std::span<const SequenceRows> sequences,
                                                  const AttentionShape& shape) {
  std::vector<std::vector<std::int32_t>> items_of_row(plan.rows.size());
  std::vector<std::int32_t> writes_of_partial(static_cast<std::size_t>(plan.n_partials), 0);
  for (std::size_t index = 0; index < plan.items.size(); ++index) {
    if (auto fault = find_item_fault(plan, index)) return fault;
    const AttentionItem& item = plan.items[index];
    for (std::int32_t i = 0; i < item.n_rows; ++i) {
      items_of_row[static_cast<std::size_t>(item.first_row + i)].push_back(static_cast<std::int32_t>(index));
      if ((item.flags & AttentionItem::direct) != 0) continue;
      const std::int32_t partial = item.first_partial + i;
      if (partial < 0 || partial >= plan.n_partials)
        return fmt::format("item {} writes partial state {} of {}", index, partial, plan.n_partials);
      if (writes_of_partial[static_cast<std::size_t>(partial)]++ != 0)
        return fmt::format("partial state {} is written twice", partial);
    }
  }
  if (plan.merge_offsets.size() != plan.rows.size() + 1 ||
      static_cast<std::size_t>(plan.merge_offsets.back()) != plan.merge_inputs.size())
    return "the merge offsets do not fit the rows or the merge inputs";

  std::int32_t row = 0;
  for (const SequenceRows& sequence : sequences) {
    for (std::int32_t i = 0; i < sequence.n_rows; ++i, ++row) {
      if (row >= static_cast<std::int32_t>(plan.rows.size())) return "fewer rows than the sequences have";
      const TokenRow& bounds = plan.rows[static_cast<std::size_t>(row)];
      const std::int32_t position = sequence.kv_len - sequence.n_rows + i;
      const std::int32_t in_chunk = shape.window > 0 ? position % shape.window : position;
      const std::int32_t kv_lo = shape.is_chunked   ? position - in_chunk
                                 : shape.window > 0 ? std::max(0, position + 1 - shape.window)
                                                    : 0;
      if (bounds.slot != sequence.slot.value || bounds.position != position || bounds.kv_lo != kv_lo ||
          bounds.kv_hi != position + 1)
        return fmt::format("row {} is not position {} of slot {}", row, position, sequence.slot.value);
      if (auto fault = find_row_fault(plan, row, sequence, items_of_row[static_cast<std::size_t>(row)], shape.block_len))
        return fault;
    }
  }
  if (row != static_cast<std::int32_t>(plan.rows.size())) return "more rows than the sequences have";
  std::vector<const SequenceRows*> sequence_of_row;
  for (const SequenceRows& sequence : sequences)
    sequence_of_row.insert(sequence_of_row.end(), static_cast<std::size_t>(sequence.n_rows), &sequence);
  for (std::size_t index = 0; index < plan.items.size(); ++index)
    if (auto fault = find_block_fault(plan, index, sequence_of_row, shape.block_len)) return fault;
  return std::nullopt;
}

}  // namespace baton::test
