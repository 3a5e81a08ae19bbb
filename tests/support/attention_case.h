/// A batch of sequences with shared blocks, its keys, values and queries, and random valid work lists over it.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/batch.h"
#include "plan/attention_plan.h"
#include "support/kv_contents.h"

namespace baton {

/// The parameters of a case.
struct CaseShape {
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 64;
  int block_len = 16;
  int window = 0;
  DType kv_dtype = DType::bf16;
  int latent_dim = 0;  ///< KvShape::latent_dim: over 0, the case has no values of its own

  int v_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};

/// A sequence: its block table, its tokens, and how many of them are rows.
struct CaseSequence {
  std::vector<std::int32_t> blocks;
  int kv_len = 0;
  int n_rows = 1;
};

class AttentionCase {
 public:
  /// Sequence i continues the first shared[i] tokens (full blocks) of sequence parents[i] (-1: none) up to lengths[i]
  /// tokens. Block numbers are random, from twice as many as needed.
  struct Branch {
    int parent = -1;
    int shared_len = 0;
    int len = 1;
    int n_rows = 1;
  };
  AttentionCase(const CaseShape& shape, const std::vector<Branch>& branches, std::uint64_t seed) : shape(shape), random(seed) {
    std::size_t n_blocks = 1;
    for (const Branch& branch : branches) n_blocks += static_cast<std::size_t>(branch.len / shape.block_len + 1);
    std::vector<std::int32_t> free(2 * n_blocks);
    for (std::size_t i = 0; i < free.size(); ++i) free[i] = static_cast<std::int32_t>(i);
    std::shuffle(free.begin(), free.end(), random);
    this->n_blocks = static_cast<int>(free.size());
    for (const Branch& branch : branches) {
      CaseSequence sequence{{}, branch.len, branch.n_rows};
      if (branch.parent >= 0) {
        const auto& parent = sequences[static_cast<std::size_t>(branch.parent)].blocks;
        sequence.blocks.assign(parent.begin(), parent.begin() + branch.shared_len / shape.block_len);
      }
      while (static_cast<int>(sequence.blocks.size()) * shape.block_len < branch.len) {
        sequence.blocks.push_back(free.back());
        free.pop_back();
      }
      sequences.push_back(std::move(sequence));
    }
    make_rows();
  }

  void make_rows() {
    rows.clear();
    sequence_of_row.clear();
    for (std::size_t s = 0; s < sequences.size(); ++s)
      for (int i = sequences[s].kv_len - sequences[s].n_rows; i < sequences[s].kv_len; ++i) {
        rows.push_back({static_cast<std::int32_t>(s), i, shape.window > 0 ? std::max(0, i + 1 - shape.window) : 0, i + 1});
        sequence_of_row.push_back(static_cast<int>(s));
      }
  }

  std::vector<SequenceRows> sequence_rows() const {
    std::vector<SequenceRows> out;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      static_assert(sizeof(BlockId) == sizeof(std::int32_t));
      const auto* ids = reinterpret_cast<const BlockId*>(sequences[s].blocks.data());
      out.push_back(
          {SlotId{static_cast<std::int32_t>(s)}, {ids, sequences[s].blocks.size()}, sequences[s].kv_len, sequences[s].n_rows});
    }
    return out;
  }
  AttentionShape attention_shape() const {
    AttentionShape made{shape.n_heads, shape.n_kv_heads, shape.head_dim, static_cast<std::int32_t>(size_bytes(shape.kv_dtype)),
                        shape.window,  shape.block_len};
    made.latent_dim = shape.latent_dim;
    return made;
  }
  KvShape kv_shape(int n_layers = 1) const {
    KvShape made{n_layers, n_blocks, shape.block_len, shape.n_kv_heads, shape.head_dim, shape.kv_dtype};
    made.latent_dim = shape.latent_dim;
    return made;
  }

  /// Writes number(...) to all positions that sequences use; all others become NaN.
  using Fill = std::function<float(bool is_value, int kv_head, std::int32_t block, int offset, int dim)>;
  void fill(KvContents& contents, const Fill& number) const {
    contents.clear();
    std::vector<int> used(static_cast<std::size_t>(n_blocks), 0);
    for (const CaseSequence& sequence : sequences)
      for (std::size_t b = 0; b < sequence.blocks.size(); ++b) {
        int& n = used[static_cast<std::size_t>(sequence.blocks[b])];
        n = std::max(n, std::min(shape.block_len, sequence.kv_len - static_cast<int>(b) * shape.block_len));
      }
    for (std::int32_t block = 0; block < n_blocks; ++block)
      for (const bool is_value : contents.stored_parts())
        for (int head = 0; head < shape.n_kv_heads; ++head)
          for (int offset = 0; offset < used[static_cast<std::size_t>(block)]; ++offset)
            for (int i = 0; i < shape.head_dim; ++i)
              contents.set(is_value, head, block, offset, i, number(is_value, head, block, offset, i));
  }

  /// The sequence and position whose key is at a KV position: the first one whose table has the block.
  std::pair<int, int> place_of(std::int32_t block, int offset) const {
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto& blocks = sequences[s].blocks;
      const auto at = std::find(blocks.begin(), blocks.end(), block);
      if (at != blocks.end()) return {static_cast<int>(s), static_cast<int>(at - blocks.begin()) * shape.block_len + offset};
    }
    return {-1, -1};
  }

  /// Sorts sequences in the order that plans require.
  void order_depth_first() {
    std::vector<CaseSequence> ordered;
    for (const std::int32_t index : depth_first_order(sequence_rows()))
      ordered.push_back(sequences[static_cast<std::size_t>(index)]);
    sequences = std::move(ordered);
    make_rows();
  }

  /// A random valid work list: nested shared runs, cut at random multiples of `cut` and split in row tiles of at most
  /// `max_tile` rows.
  AttentionPlan random_plan(int cut, int max_tile, bool share) {
    AttentionPlan plan;
    plan.rows = rows;
    cover(plan, 0, static_cast<int>(sequences.size()), 0, cut, max_tile, share);
    finish_plan(plan);
    plan.n_item_major = uniform(0, static_cast<int>(plan.items.size()));
    return plan;
  }

  /// Assigns the pairs of items and KV heads to workers at random; some workers get none.
  void deal_pairs(AttentionPlan& plan, int n_workers) {
    plan.pairs.resize(plan.items.size() * static_cast<std::size_t>(shape.n_kv_heads));
    std::iota(plan.pairs.begin(), plan.pairs.end(), 0);
    std::shuffle(plan.pairs.begin(), plan.pairs.end(), random);
    plan.worker_offsets.assign(1, 0);
    for (int w = 1; w < n_workers; ++w) plan.worker_offsets.push_back(uniform(0, static_cast<int>(plan.pairs.size())));
    plan.worker_offsets.push_back(static_cast<std::int32_t>(plan.pairs.size()));
    std::sort(plan.worker_offsets.begin(), plan.worker_offsets.end());
  }

  /// Numbers the partial states of plan.items (in any order), lists them for each row by position and sets the flags.
  void finish_plan(AttentionPlan& plan) const {
    std::vector<std::vector<std::size_t>> items_of_row(rows.size());
    std::stable_sort(plan.items.begin(), plan.items.end(),
                     [](const auto& a, const auto& b) { return a.kv_begin < b.kv_begin; });
    for (std::size_t i = 0; i < plan.items.size(); ++i)
      for (int r = 0; r < plan.items[i].n_rows; ++r)
        items_of_row[static_cast<std::size_t>(plan.items[i].first_row + r)].push_back(i);
    plan.n_partials = 0;
    for (AttentionItem& item : plan.items) {
      bool direct = true;
      item.flags = 0;
      for (int r = 0; r < item.n_rows; ++r) {
        const auto row = static_cast<std::size_t>(item.first_row + r);
        direct = direct && items_of_row[row].size() == 1;
        if (rows[row].kv_lo > item.kv_begin || rows[row].kv_hi < item.kv_end) item.flags |= AttentionItem::masked;
      }
      if (direct) {
        item.flags |= AttentionItem::direct;
      } else {
        item.first_partial = plan.n_partials;
        plan.n_partials += item.n_rows;
      }
    }
    plan.merge_offsets.assign(1, 0);
    plan.merge_inputs.clear();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (const std::size_t i : items_of_row[row])
        if ((plan.items[i].flags & AttentionItem::direct) == 0)
          plan.merge_inputs.push_back(plan.items[i].first_partial + static_cast<std::int32_t>(row) - plan.items[i].first_row);
      plan.merge_offsets.push_back(static_cast<std::int32_t>(plan.merge_inputs.size()));
    }
  }

  /// Adds items for rows [first_row, first_row + n_rows) over [begin, end), whose blocks are those of `sequence`.
  void add_item(AttentionPlan& plan, int first_row, int n_rows, int sequence, int begin, int end) const {
    AttentionItem item;
    item.first_row = first_row;
    item.n_rows = n_rows;
    item.kv_begin = begin;
    item.kv_end = end;
    item.block_list = static_cast<std::int32_t>(plan.block_lists.size());
    const auto& blocks = sequences[static_cast<std::size_t>(sequence)].blocks;
    for (int b = begin / shape.block_len; b * shape.block_len < end; ++b)
      plan.block_lists.push_back(blocks[static_cast<std::size_t>(b)]);
    plan.items.push_back(item);
  }

  int first_row_of(int sequence) const {
    int row = 0;
    for (int s = 0; s < sequence; ++s) row += sequences[static_cast<std::size_t>(s)].n_rows;
    return row;
  }

  int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

  CaseShape shape;
  std::mt19937_64 random;
  int n_blocks = 0;
  std::vector<CaseSequence> sequences;
  std::vector<TokenRow> rows;
  std::vector<int> sequence_of_row;

 private:
  int common_len(int first, int last) const {
    const auto& model = sequences[static_cast<std::size_t>(first)];
    std::size_t n = model.blocks.size();
    int len = model.kv_len;
    for (int s = first + 1; s < last; ++s) {
      const auto& other = sequences[static_cast<std::size_t>(s)].blocks;
      n = std::min(
          n, static_cast<std::size_t>(
                 std::mismatch(model.blocks.begin(),
                               model.blocks.begin() + static_cast<std::ptrdiff_t>(std::min(n, other.size())), other.begin())
                     .first -
                 model.blocks.begin()));
      len = std::min(len, sequences[static_cast<std::size_t>(s)].kv_len);
    }
    return std::min(static_cast<int>(n) * shape.block_len, len);
  }

  /// Covers the positions from `begin` on for sequences [first, last), which share all blocks before `begin`.
  void cover(AttentionPlan& plan, int first, int last, int begin, int cut, int max_tile, bool share) {
    const int n = last - first;
    const int common = common_len(first, last);
    int end = begin;
    if (n == 1) end = common;
    if (n > 1 && share && common > begin && uniform(0, 3) > 0)
      end = uniform(0, 1) == 0 ? common : begin + uniform(0, (common - begin) / cut) * cut;
    const int row_end = first_row_of(last);
    for (int from = begin; from < end;) {
      const int longest = std::max(1, (end - from) / cut);
      const int to = std::min(end, uniform(0, 2) == 0 ? end : (from / cut + uniform(1, longest)) * cut);
      for (int row = first_row_of(first); row < row_end;) {
        const int n_rows = uniform(1, std::min(max_tile, row_end - row));
        add_item(plan, row, n_rows, first, from, to);
        row += n_rows;
      }
      from = to;
    }
    if (n == 1) return;
    const int middle = uniform(first + 1, last - 1);
    cover(plan, first, middle, end, cut, max_tile, share);
    cover(plan, middle, last, end, cut, max_tile, share);
  }
};

/// A random tree of up to `depth` levels below its roots, with the branches in any order. A node has any number of
/// blocks; a context may be empty (a sequence that is a prefix of another one).
inline std::vector<AttentionCase::Branch> random_branches(std::mt19937_64& random, int depth, int n_sequences, int max_rows) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::vector<AttentionCase::Branch> branches;
  std::vector<int> depth_of;
  for (int i = 0; i < n_sequences; ++i) {
    AttentionCase::Branch branch;
    int level = 0;
    if (i > 0 && pick(0, 4) > 0) {
      const auto parent = static_cast<std::size_t>(pick(0, i - 1));
      if (depth_of[parent] < depth) {
        branch.parent = static_cast<int>(parent);
        branch.shared_len = pick(0, branches[parent].len / 16) * 16;
        level = depth_of[parent] + 1;
      }
    }
    branch.n_rows = pick(0, 3) == 0 ? pick(1, max_rows) : 1;
    const bool has_context = branch.shared_len < branch.n_rows || pick(0, 4) > 0;
    branch.len = branch.shared_len + (has_context ? branch.n_rows + (pick(0, 2) == 0 ? 0 : pick(0, 90)) : 0);
    branches.push_back(branch);
    depth_of.push_back(level);
  }
  return branches;
}

/// The plan as a step with one layer group.
inline StepInput make_step(const AttentionPlan& plan) {
  StepInput step;
  step.header().n_rows = static_cast<std::int32_t>(plan.rows.size());
  append_plan(step, plan);
  step.finish();
  return step;
}

}  // namespace baton
