/// The producer warps of the attention kernel: they copy queries, keys and values to shared memory, ahead of use and
/// across items.
#pragma once

#include "kernels/cuda/attention/general/widen.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {

static_assert(kAttentionTileRows < kProducerThreads);  // one thread for each row of a tile, and one more

/// Copies are of 16 bytes a thread. (Bulk copies reach no more than 6.5 TB/s from the L2 of an H200:
/// workshop/01_ceilings.cu.)
template <class Tile>
class Producer {
 public:
  __device__ Producer(const AttentionParams& p, const SharedLayout<Tile>& shared, const MemoryPlan& plan)
      : p_(p),
        shared_(shared),
        plan_(plan),
        thread_(static_cast<int>(threadIdx.x) - kConsumerThreads),
        has_waited_(p.has_both_kernels),  // the kernel beside this one has
        widener_(thread_) {
    const int row_chunks = p.head_dim / 8;  // at most 32
    const int rows_a_warp = 32 / row_chunks;
    const int lane = thread_ % 32;
    chunk_ = lane % row_chunks;
    first_row_ = thread_ / 32 * rows_a_warp + lane / row_chunks;
    row_step_ = kProducerWarps * rows_a_warp;
    takes_chunk_ = lane < rows_a_warp * row_chunks;
  }

  __device__ void run() {
    const StepArrays step(p_);
    PairReader reader(step, p_.n_kv_heads, false);
    const int group = p_.n_heads / p_.n_kv_heads;
    const int tile_rows = Tile::kMaxRows / group;
    read_batch(reader, 0);
    int ids = load_ids(step, shared_.pairs[0].item, 0);
#pragma unroll 1
    for (int i = 0; shared_.pairs[i].item.n_rows > 0;) {
      const ItemPair& pair = shared_.pairs[i];
      i = (i + 1) % (2 * kPairBatch);
      if (i % kPairBatch == 0) read_batch(reader, i);
      const int next_ids = load_ids(step, shared_.pairs[i].item, 0);  // these loads overlap the copies of this item's keys
#pragma unroll 1
      for (int row = 0; row < pair.item.n_rows; row += tile_rows) {
        copy_tile(step, pair, row, min(tile_rows, pair.item.n_rows - row), group, ids);
      }
      ids = next_ids;
    }
    convert_all();
    wait_once();
    // A kernel that waits for this one waits for the one beside it, too.
    if (p_.has_both_kernels) wait_for_kernel_before();
    barrier_wait(shared_.task_empty, task_parity_ ^ 1);
    if (thread_ == 0) {
      shared_.task->n_token_rows = 0;
    }
    barrier_arrive(shared_.task_full);
    barrier_arrive(shared_.task_full);
    wait_for_copies();
  }

 private:
  __device__ void read_batch(PairReader& reader, int first) {
    convert_all();  // the other warps may wait for it
    if (thread_ < 32) reader.read(shared_.pairs + first, thread_);
    named_barrier(kProducerBarrier, kProducerThreads);
  }

  /// Waits until the phase of this parity has ended. Converts stages meanwhile: the consumers may need one first.
  __device__ __forceinline__ void wait_for(std::uint32_t barrier, int parity) {
    if constexpr (Tile::kWidens)
      while (widener_.is_pending() && !__all_sync(~0u, barrier_has_ended(barrier, parity)))
        if (widener_.has_landed(shared_)) widener_.convert_oldest(shared_, plan_.n_stages);
    barrier_wait(barrier, parity);
  }
  __device__ __forceinline__ void convert_all() {
    if constexpr (Tile::kWidens)
      while (widener_.is_pending()) widener_.convert_oldest(shared_, plan_.n_stages);
  }

  /// Waits once for the kernel before. From then on this step's queries, rows and keys may be read.
  __device__ __forceinline__ void wait_once() {
    if (!has_waited_) wait_for_kernel_before();
    has_waited_ = true;
  }

  /// Waits until the consumers have taken the previous task and writes this one. The copies of its rows, merge offsets
  /// and queries end later.
  __device__ __forceinline__ void write_task(const StepArrays& step, const ItemPair& pair, int row, int n_token_rows,
                                             int group) {
    const int first_row = pair.item.first_row + row;
    wait_for(shared_.task_empty, task_parity_ ^ 1);
    task_parity_ ^= 1;
    if (thread_ == 0) {
      TileTask task;
      task.first_row = first_row;
      task.n_token_rows = n_token_rows;
      task.first_partial = pair.item.first_partial + row;
      task.is_direct = pair.item.flags & AttentionItem::direct;
      task.kv_begin = pair.item.kv_begin;
      task.kv_end = pair.item.kv_end;
      task.kv_head = pair.kv_head;
      *shared_.task = task;
    }
    if (thread_ < n_token_rows) copy_16(shared_address(shared_.rows + thread_), p_.rows + first_row + thread_);
    copy_queries(first_row, pair.kv_head, n_token_rows, group);
    arrive_with_copies(shared_.task_full);
    barrier_arrive(shared_.task_full);  // and with the task itself
  }

  /// Copies queries. The lanes of a warp copy neighbouring chunks, of as many whole rows at a time as fit (head_dim
  /// 128: two).
  __device__ __forceinline__ void copy_queries(int first_row, int kv_head, int n_token_rows, int group) {
    const int n_rows = n_token_rows * group;
    const std::byte* from =
        p_.q + (static_cast<std::int64_t>(first_row) * p_.n_heads + kv_head * group) * p_.head_dim * 2 + chunk_ * 16;
    const std::int64_t next_token = static_cast<std::int64_t>(p_.n_heads - group) * p_.head_dim * 2;  // after a token's heads
    const std::uint32_t to = shared_address(shared_.queries) + chunk_ * 16;
    int token = 0;
    int head = first_row_;
    for (int row = first_row_; row < n_rows; row += row_step_) {
      while (head >= group) head -= group, ++token;
      if (takes_chunk_) copy_16(to + row * Tile::kQueryStride, from + row * p_.head_dim * 2 + token * next_token);
      head += row_step_;
    }
  }

  /// Copies a tile's keys and values, and writes its task as soon as the previous task was taken. Keys are copied
  /// ahead of the task while there is room, the first ones even before the wait for the kernel before.
  __device__ __forceinline__ void copy_tile(const StepArrays& step, const ItemPair& pair, int row, int n_token_rows, int group,
                                            int ids) {
    const AttentionItem& item = pair.item;
    const int begin = Tile::first_position(item.kv_begin);
    const int n_granules = (item.kv_end - begin + 15) / 16;
    const std::byte* keys = p_.kv + pair.kv_head * p_.tile_bytes + thread_ * 16;
    const std::int64_t values = p_.n_kv_heads * p_.tile_bytes;
    int next_ids = n_granules > 32 ? load_ids(step, item, 32) : 0;
    std::uint32_t places = places_of(ids, begin);
    bool has_task = false;
    const bool wide = is_wide<Tile>(n_token_rows * group);
    if (wide) begin_wide();
#pragma unroll 1
    for (int first = 0; first < n_granules; first += Tile::kGranules) {
      if (first % 32 == 0 && first > 0) {
        places = places_of(next_ids, begin + first * 16);
        next_ids = load_ids(step, item, first + 32);
      }
      const std::uint32_t empty = shared_.empty + 8 * ring_.stage;
      if (!has_waited_ &&
          (first + Tile::kGranules > item.n_settled_granules() || !__all_sync(~0u, barrier_has_ended(empty, ring_.parity ^ 1))))
        wait_once();
      if (!has_task && has_waited_ &&
          (__all_sync(~0u, barrier_has_ended(shared_.task_empty, task_parity_ ^ 1)) ||
           !__all_sync(~0u, barrier_has_ended(empty, ring_.parity ^ 1)))) {
        write_task(step, pair, row, n_token_rows, group);
        has_task = true;
      }
      const int position = begin + first * 16;
      if constexpr (Tile::kWidens)
        if (wide) {
          copy_wide_stage(keys, values, places, first, n_granules);
          continue;
        }
      const std::uint32_t stage = shared_.stages + ring_.stage * Tile::kStageBytes + thread_ * 16;
      wait_for(empty, ring_.parity ^ 1);
#pragma unroll
      for (int granule = 0; granule < Tile::kGranules; ++granule) {
        if (first + granule >= n_granules) break;
        const std::byte* from = place_of(keys, places, first + granule);
        const int token = (position + granule * 16) & ((1 << p_.block_shift) - 1);
        copy_granule(stage, from, granule, token);
        copy_granule(stage + Tile::kPartBytes, from + values, granule, token);
      }
      arrive_with_copies(shared_.full + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
    }
    if (has_task) return;
    wait_once();
    write_task(step, pair, row, n_token_rows, group);
  }

  /// A stage of f16 takes two slots, the first one even.
  __device__ __forceinline__ void begin_wide() {
    if (ring_.stage % 2 == 0) return;
    wait_for(shared_.empty + 8 * ring_.stage, ring_.parity ^ 1);
    barrier_arrive(shared_.full + 8 * ring_.stage);
    ring_.advance(plan_.n_stages);
  }
  /// Copies a stage of granules [first, first + kGranules): the keys to one slot, the values to the next.
  __device__ __forceinline__ void copy_wide_stage(const std::byte* keys, std::int64_t values, std::uint32_t places, int first,
                                                  int n_granules) {
#pragma unroll 1
    for (int part = 0; part < 2; ++part, keys += values) {
      wait_for(shared_.empty + 8 * ring_.stage, ring_.parity ^ 1);
      const std::uint32_t slot = shared_.stages + ring_.stage * Tile::kStageBytes;
      if (first + Tile::kGranules <= n_granules) {
#pragma unroll
        for (int granule = 0; granule < Tile::kGranules; ++granule)
          widener_.copy_granule(slot, place_of(keys, places, first + granule), granule);
      } else {
#pragma unroll 1
        for (int granule = 0; first + granule < n_granules; ++granule)
          widener_.copy_granule(slot, place_of(keys, places, first + granule), granule);
      }
      widener_.end_slot(shared_, ring_.stage);
      ring_.advance(plan_.n_stages);
    }
  }

  /// Copies 16 tokens of K or V, panel by panel. Half of the threads copy a last panel of 64-byte rows.
  __device__ __forceinline__ void copy_granule(std::uint32_t to, const std::byte* from, int granule, int token) const {
    constexpr int kFullPanels = Tile::kRowBytes / 128;
#pragma unroll
    for (int panel = 0; panel < kFullPanels; ++panel)
      copy_16(to + panel * 128 * Tile::kStageTokens + granule * 16 * 128,
              from + (static_cast<std::int64_t>(panel * 128) << p_.block_shift));
    if constexpr (Tile::kTailBytes != 0)
      if (thread_ < 64)
        copy_16(to + kFullPanels * 128 * Tile::kStageTokens + granule * 16 * 64,
                from + (static_cast<std::int64_t>(kFullPanels * 128) << p_.block_shift) - (kFullPanels == 0 ? 0 : token * 64));
  }
  static_assert(kProducerThreads * 16 == 16 * 128);  // the rows of a granule's panel

  static constexpr int kPlaceBytes = 64;  ///< every granule begins at a multiple of this
  /// Where this lane's granule of 32 from position `first` on begins in a layer, in kPlaceBytes: in its first panel.
  __device__ __forceinline__ std::uint32_t places_of(int id, int first) const {
    const int token = (first + thread_ % 32 * 16) & ((1 << p_.block_shift) - 1);
    constexpr int kPanelRow = Tile::kRowBytes < 128 ? Tile::kRowBytes : 128;
    return static_cast<std::uint32_t>(
        (static_cast<std::uint64_t>(static_cast<unsigned>(id)) * static_cast<std::uint64_t>(p_.block_bytes) +
         static_cast<unsigned>(token * kPanelRow)) /
        kPlaceBytes);
  }
  __device__ __forceinline__ static const std::byte* place_of(const std::byte* keys, std::uint32_t places, int granule) {
    return keys + static_cast<std::uint64_t>(__shfl_sync(~0u, places, granule % 32)) * kPlaceBytes;
  }

  /// This lane's block id among those of granules [first, first + 32) of an item.
  __device__ __forceinline__ int load_ids(const StepArrays& step, const AttentionItem& item, int first) const {
    int position = Tile::first_position(item.kv_begin) + (first + thread_ % 32) * 16;
    if (position >= item.kv_end) return 0;
    // A first stage may begin before the item's first block. What is copied there is not used.
    if constexpr (Tile::kAlignsStages) position = max(position, item.kv_begin);
    return __ldg(step.block_lists + item.block_list + (position >> p_.block_shift) - (item.kv_begin >> p_.block_shift));
  }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  const MemoryPlan& plan_;
  int thread_;
  bool has_waited_;
  int chunk_ = 0;  ///< the chunk of a query row that this thread copies
  int first_row_ = 0;
  int row_step_ = 0;
  bool takes_chunk_ = false;
  int task_parity_ = 0;
  RingPosition ring_;
  [[no_unique_address]] std::conditional_t<Tile::kWidens, Widener<Tile>, NoWidener> widener_;
};

}  // namespace baton::cuda
