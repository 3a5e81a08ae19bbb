/// Collectives of the CPU backend: copies to shared memory, a barrier, sums in rank order, copies back.
#include "kernels/cpu/ranks/collectives.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/row_math.h"
#include "ranks/rank_group.h"

namespace baton::cpu {
namespace {

constexpr std::size_t kSlotAlignment = 64;
/// A piece must be worth two barriers.
constexpr std::size_t kSmallestSlot = 4096;
constexpr std::size_t kHalves = 2;
/// Elements that a thread adds or copies at least.
constexpr std::int64_t kGrain = 1 << 13;
/// Elements that a thread adds at a time; they stay in its nearest cache.
constexpr std::int64_t kSumBlock = 2048;

std::size_t slot_bytes_of(const RankGroup& ranks) {
  const std::size_t bytes = ranks.memory().size() / (kHalves * static_cast<std::size_t>(ranks.world_size()));
  return bytes / kSlotAlignment * kSlotAlignment;
}

void copy(const Parallel& parallel, std::byte* to, const std::byte* from, std::size_t n_bytes) {
  parallel.for_ranges(static_cast<std::int64_t>(n_bytes), kGrain * 4, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace

Collectives::Collectives(std::shared_ptr<RankGroup> ranks) : ranks_(std::move(ranks)) {
  if (ranks_ != nullptr && ranks_->world_size() == 1) ranks_.reset();
  if (ranks_ != nullptr) slot_bytes_ = slot_bytes_of(*ranks_);
}

Result<void> Collectives::check_ranks(const RankGroup* ranks) {
  if (ranks == nullptr || ranks->world_size() == 1) return {};
  if (!ranks->is_on_one_host())
    return fail(ErrorCode::unsupported, "the CPU backend's ranks exchange data through memory, so all must run on one host",
                "tensor_parallel_size");
  if (slot_bytes_of(*ranks) < kSmallestSlot)
    return fail(ErrorCode::invalid_request, fmt::format("the {} ranks share {} bytes of memory; each needs at least {}",
                                                        ranks->world_size(), ranks->memory().size(), kHalves * kSmallestSlot));
  return {};
}

int Collectives::rank() const { return ranks_ == nullptr ? 0 : ranks_->rank(); }

int Collectives::world_size() const { return ranks_ == nullptr ? 1 : ranks_->world_size(); }

std::span<std::byte> Collectives::slot(int rank) const {
  const std::size_t index = half_ * static_cast<std::size_t>(world_size()) + static_cast<std::size_t>(rank);
  return ranks_->memory().subspan(index * slot_bytes_, slot_bytes_);
}

/// Adds one piece, which fits into a slot. Rank r adds elements [begin of r, begin of r + 1) and leaves the sums in its
/// own slot. Returns false if the group is broken.
bool Collectives::reduce_piece(const Parallel& parallel, TensorView piece) {
  half_ = 1 - half_;
  const std::int64_t n = piece.shape.n_elements();
  const std::size_t element = size_bytes(piece.dtype);
  const int n_ranks = world_size();
  const auto begin_of = [&](int rank) { return n * rank / n_ranks; };
  const auto of_slot = [&](int rank) { return TensorView{slot(rank).data(), piece.dtype, {n}}; };
  copy(parallel, slot(rank()).data(), piece.data, piece.size_bytes());
  if (!ranks_->barrier()) return false;
  const std::int64_t first = begin_of(rank());
  parallel.for_ranges(begin_of(rank() + 1) - first, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sum(kSumBlock);
    std::vector<float> term(kSumBlock);
    for (std::int64_t at = first + begin; at < first + end; at += kSumBlock) {
      const std::int64_t count = std::min(kSumBlock, first + end - at);
      load_f32(of_slot(0), at, count, sum.data());
      for (int other = 1; other < n_ranks; ++other) {
        load_f32(of_slot(other), at, count, term.data());
        add_to(sum.data(), term.data(), count);
      }
      store_f32(sum.data(), count, of_slot(rank()), at);
    }
  });
  if (!ranks_->barrier()) return false;
  for (int other = 0; other < n_ranks; ++other) {
    const std::size_t begin = static_cast<std::size_t>(begin_of(other)) * element;
    const std::size_t end = static_cast<std::size_t>(begin_of(other + 1)) * element;
    copy(parallel, piece.data + begin, slot(other).data() + begin, end - begin);
  }
  return true;
}

void Collectives::all_reduce(const Parallel& parallel, TensorView x) {
  if (ranks_ == nullptr) return;
  const std::size_t element = size_bytes(x.dtype);
  const auto most = static_cast<std::int64_t>(slot_bytes_ / element);
  const std::int64_t n = x.shape.n_elements();
  for (std::int64_t begin = 0; begin < n; begin += most) {
    const TensorView piece{x.data + static_cast<std::size_t>(begin) * element, x.dtype, {std::min(most, n - begin)}};
    if (!reduce_piece(parallel, piece)) return;
  }
}

void Collectives::all_gather(const Parallel& parallel, const AllGatherArgs& args) {
  const std::size_t element = size_bytes(args.out.dtype);
  const std::int64_t n_rows = args.out.shape[0];
  const std::size_t out_width = static_cast<std::size_t>(args.out.shape[1]) * element;  // in bytes, as all widths here
  const std::size_t part_width = static_cast<std::size_t>(args.parts.shape[2]) * element;
  check(args.parts.shape[0] == world_size(), "all_gather: parts of another number of ranks");
  if (n_rows == 0 || part_width == 0) return;
  const std::byte* const own = args.parts.rows(rank(), rank() + 1).data;
  // Columns of one rank that out has: the last ranks may have fewer, or none.
  const auto copy_rows = [&](int from_rank, const std::byte* from, std::size_t offset, std::size_t width, std::int64_t row,
                             std::int64_t count) {
    const std::size_t at = static_cast<std::size_t>(from_rank) * part_width + offset;
    const std::size_t n_bytes = at >= out_width ? 0 : std::min(width, out_width - at);
    if (n_bytes == 0) return;
    const auto rows_a_thread = std::max<std::int64_t>(1, kGrain * 4 / static_cast<std::int64_t>(n_bytes));
    parallel.for_ranges(count, rows_a_thread, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        std::memcpy(args.out.data + static_cast<std::size_t>(row + r) * out_width + at,
                    from + static_cast<std::size_t>(r) * width, n_bytes);
    });
  };
  if (ranks_ == nullptr) return copy_rows(0, own, 0, part_width, 0, n_rows);
  // A piece is some whole rows, or some columns of one row.
  const std::size_t width = std::min(part_width, slot_bytes_ / element * element);
  const auto rows_a_piece = std::max<std::int64_t>(1, static_cast<std::int64_t>(slot_bytes_ / part_width));
  for (std::int64_t row = 0; row < n_rows; row += rows_a_piece) {
    const std::int64_t count = std::min(rows_a_piece, n_rows - row);
    for (std::size_t offset = 0; offset < part_width; offset += width) {
      half_ = 1 - half_;
      const std::size_t piece_width = std::min(width, part_width - offset);
      copy(parallel, slot(rank()).data(), own + static_cast<std::size_t>(row) * part_width + offset,
           static_cast<std::size_t>(count) * piece_width);
      if (!ranks_->barrier()) return;
      for (int other = 0; other < world_size(); ++other) copy_rows(other, slot(other).data(), offset, piece_width, row, count);
    }
  }
}

}  // namespace baton::cpu
