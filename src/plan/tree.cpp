/// Sorting and common prefixes of block tables.
#include "plan/tree.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace baton {

std::int32_t count_common_blocks(const BlockId* a, const BlockId* b, std::int32_t limit, std::int32_t likely) {
  static_assert(sizeof(BlockId) == 4);
  if (limit == 0 || a[0] != b[0]) return 0;
  std::int32_t n = 0;
  if (likely > 0 && likely <= limit && std::memcmp(a, b, static_cast<std::size_t>(likely) * sizeof(BlockId)) == 0) {
    n = likely;
    if (n == limit || a[n] != b[n]) return n;
  }
  for (const std::int32_t stride : {128, 16})
    while (n + stride <= limit && std::memcmp(a + n, b + n, static_cast<std::size_t>(stride) * sizeof(BlockId)) == 0)
      n += stride;
  while (n < limit && a[n] == b[n]) ++n;
  return n;
}

void PrefixTreeBuilder::build(std::span<const std::int32_t> common_len, std::vector<PrefixNode>& nodes) {
  nodes.clear();
  open_.clear();
  // From right to left: a node ends at the first sequence that shares less. Children end before their parents, so the
  // reverse order lists parents first.
  for (auto i = static_cast<std::int32_t>(common_len.size()) - 1; i >= -1; --i) {
    const std::int32_t shared = i >= 0 ? common_len[static_cast<std::size_t>(i)] : 0;
    std::int32_t last = i + 1;
    while (!open_.empty() && open_.back().kv_end > shared) {
      const Open top = open_.back();
      open_.pop_back();
      last = top.last_sequence;
      const std::int32_t kv_begin = std::max(shared, open_.empty() ? 0 : open_.back().kv_end);
      nodes.push_back({i + 1, last - i, kv_begin, top.kv_end, -1, 0});
    }
    if (shared > 0 && (open_.empty() || open_.back().kv_end < shared)) open_.push_back({shared, last});
  }
  std::reverse(nodes.begin(), nodes.end());
  path_.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto holds = [&](const PrefixNode& above) {
      return nodes[i].first_sequence < above.first_sequence + above.n_sequences;
    };
    while (!path_.empty() && !holds(nodes[static_cast<std::size_t>(path_.back())])) path_.pop_back();
    if (!path_.empty()) nodes[i].parent = path_.back();
    nodes[i].depth = static_cast<std::int32_t>(path_.size());
    path_.push_back(static_cast<std::int32_t>(i));
  }
}

bool TableSorter::is_still_sorted(std::span<const std::span<const BlockId>> tables) const {
  if (order_.size() != tables.size()) return false;
  std::int32_t n = 0;
  for (std::size_t i = 1; i < order_.size(); ++i) {
    const std::span<const BlockId> a = tables[static_cast<std::size_t>(order_[i - 1])];
    const std::span<const BlockId> b = tables[static_cast<std::size_t>(order_[i])];
    const auto limit = static_cast<std::int32_t>(std::min(a.size(), b.size()));
    n = count_common_blocks(a.data(), b.data(), limit, n);
    const auto at = static_cast<std::size_t>(n);
    const bool is_less = n < limit ? a[at].value < b[at].value : a.size() < b.size();
    const bool is_equal = n == limit && a.size() == b.size();
    if (!is_less && !(is_equal && order_[i - 1] < order_[i])) return false;
  }
  return true;
}

std::span<const std::int32_t> TableSorter::sort(std::span<const std::span<const BlockId>> tables) {
  if (!is_still_sorted(tables)) sort_anew(tables);
  return order_;
}

void TableSorter::sort_anew(std::span<const std::span<const BlockId>> tables) {
  // A key sorts a table relative to the first table of its group. Lower tables come first, by how early they differ
  // from it; then equal ones; then higher ones, by how late they differ. Tables that differ at the same block are
  // sorted by their own block there. Only tables with equal keys need another round.
  constexpr std::uint64_t kEqual = std::uint64_t{1} << 62;
  constexpr std::uint64_t kHigher = std::uint64_t{2} << 62;
  constexpr std::uint64_t kMaxLen = (std::uint64_t{1} << 30) - 1;
  entries_.resize(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) entries_[i] = {0, static_cast<std::int32_t>(i)};
  groups_.assign(1, {0, tables.size(), 0});
  while (!groups_.empty()) {
    const Group group = groups_.back();
    groups_.pop_back();
    if (group.end - group.begin < 2) continue;
    const std::span<const BlockId> pivot = tables[static_cast<std::size_t>(entries_[group.begin].table)];
    check(pivot.size() <= kMaxLen, "TableSorter: a table of more than 2^30 blocks");
    for (std::size_t i = group.begin; i < group.end; ++i) {
      const std::span<const BlockId> table = tables[static_cast<std::size_t>(entries_[i].table)];
      const auto limit = static_cast<std::int32_t>(std::min(table.size(), pivot.size()));
      const std::int32_t n_left = limit - group.n_equal;
      const auto n = static_cast<std::size_t>(
          group.n_equal + count_common_blocks(table.data() + group.n_equal, pivot.data() + group.n_equal, n_left, 0));
      // An index without a block (-1) comes before those with one, and after the end of a table.
      const std::uint64_t next = n < table.size() ? static_cast<std::uint64_t>(std::int64_t{table[n].value} + 2) : 0;
      if (n == table.size() && n == pivot.size()) {
        entries_[i].key = kEqual;
      } else if (n == table.size() || (n < pivot.size() && table[n].value < pivot[n].value)) {
        entries_[i].key = (n << 32) | next;
      } else {
        entries_[i].key = kHigher | ((kMaxLen - n) << 32) | next;
      }
    }
    const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(group.begin);
    const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(group.end);
    std::sort(begin, end, [](const Entry& a, const Entry& b) { return a.key != b.key ? a.key < b.key : a.table < b.table; });
    for (std::size_t first = group.begin; first < group.end;) {
      const std::uint64_t key = entries_[first].key;
      std::size_t last = first + 1;
      while (last < group.end && entries_[last].key == key) ++last;
      const bool same_table = key == kEqual || (key & 0xffffffffu) == 0;
      const std::uint64_t n = key >= kHigher ? kMaxLen - ((key >> 32) & kMaxLen) : key >> 32;
      if (!same_table && last - first > 1) groups_.push_back({first, last, static_cast<std::int32_t>(n) + 1});
      first = last;
    }
  }
  order_.resize(tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) order_[i] = entries_[i].table;
}

}  // namespace baton
