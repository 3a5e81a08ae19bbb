/// Runs an attention work list: for each item and KV head, blocks of query rows over one chunk of keys after the
/// other.
#include "kernels/cpu/backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/attention_costs.h"
#include "kernels/cpu/attention/attention_output.h"
#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/kv/kv_storage.h"

namespace baton::cpu {
namespace {

static_assert(kChunkTokens == kAttentionChunk && kTileTokens == 16 && kMaxHeadDim <= kStateRow &&
              kMaxLatentHeadDim == kStateRow);

constexpr float kLog2E = 1.44269504088896340736f;

const ChunkKernel& chunk_kernel(CpuIsa isa, DType dtype) {
  const bool is_bf16 = dtype == DType::bf16;
  switch (isa) {
    case CpuIsa::baseline: return is_bf16 ? kBf16Baseline : kF32Baseline;
    case CpuIsa::avx2: return is_bf16 ? kBf16Avx2 : kF32Avx2;
    case CpuIsa::avx512: return is_bf16 ? kBf16Avx512 : kF32Avx512;
    case CpuIsa::avx512_bf16: return is_bf16 ? kBf16Dot : kF32Avx512;
    case CpuIsa::amx_bf16: return is_bf16 ? kBf16Tiles : kF32Avx512;
  }
  check_failed("attention: an instruction set that does not exist");
}

/// Query rows of one item and one KV head that a thread processes together: tile row i is head i % group of token row
/// i / group.
struct RowBlock {
  std::int32_t item = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
};

/// The inputs of one call; all threads read them.
struct Job {
  const AttentionArgs& args;
  const CpuKvStorage& kv;
  const ChunkKernel& kernel;
  std::span<const AttentionItem> items;
  const std::int32_t* block_lists;
  const TokenRow* rows;
  int n_heads;
  int n_kv_heads;
  int group;  ///< query heads of a KV head
  std::vector<RowBlock> blocks;
  std::vector<std::int64_t> cost_before;  ///< [blocks + 1]
};

/// Working memory of one thread, about 360 KB of its stack.
struct Scratch {
  alignas(64) std::array<std::byte, kMaxTileRows * kQueryRowBytes> q;
  alignas(64) std::array<float, kMaxTileRows * kChunkTokens> scores;
  alignas(64) std::array<std::byte, kMaxTileRows * kChunkTokens * 4> weights;
  alignas(64) std::array<float, kMaxTileRows * kStateRow> chunk_o;
  alignas(64) std::array<float, kMaxTileRows * kStateRow> o;
  alignas(64) std::array<std::array<std::byte, 16 * kStateRow * 4>, 2> edge_tiles;
  std::array<float, kMaxTileRows> m, l, chunk_m, chunk_l;
  std::array<std::int16_t, kMaxTileRows> lo, hi;
  std::array<std::int32_t, kMaxTileRows> row_lo, row_hi;  ///< positions of the item that each tile row sees
  std::array<const std::byte*, kTilesOfChunk> k_tiles, v_tiles, k_ahead;
};

/// BFloat16(x) without a branch, so that the compiler vectorises the loop below. A NaN gets a mantissa bit that
/// truncation keeps.
std::uint16_t bf16_bits(float x) {
  const auto word = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/// Packs row `index` of q (in units of head_dim) in the format that the kernel reads.
void pack_query(const ConstTensorView& q, std::int64_t index, int head_dim, QueryFormat format, std::byte* to) {
  if (q.dtype == DType::bf16 && format == QueryFormat::bf16_pairs) {
    std::memcpy(to, q.data + index * head_dim * 2, static_cast<std::size_t>(head_dim) * 2);
    return;
  }
  std::array<float, kStateRow> row;
  visit_float(q.dtype, [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(q.data) + index * head_dim;
    for (int i = 0; i < head_dim; ++i) row[static_cast<std::size_t>(i)] = static_cast<float>(from[i]);
  });
  if (format == QueryFormat::bf16_pairs) {
    auto* halves = reinterpret_cast<std::uint16_t*>(to);
    for (int i = 0; i < head_dim; ++i) halves[i] = bf16_bits(row[static_cast<std::size_t>(i)]);
  } else if (format == QueryFormat::bf16_as_f32) {
    auto* words = reinterpret_cast<std::uint32_t*>(to);
    for (int i = 0; i < head_dim; ++i) words[i] = static_cast<std::uint32_t>(bf16_bits(row[static_cast<std::size_t>(i)])) << 16;
  } else {
    std::memcpy(to, row.data(), static_cast<std::size_t>(head_dim) * 4);
  }
}

/// Copies a V part and sets tokens outside [lo, hi) to 0: a position that was never written may hold NaN, and a weight
/// of 0 times NaN is NaN.
void copy_masked_values(const std::byte* from, std::byte* to, int v_dim, DType dtype, int lo, int hi) {
  if (dtype == DType::f32) {
    const std::size_t token_bytes = static_cast<std::size_t>(v_dim) * 4;
    std::memset(to, 0, 16 * token_bytes);
    std::memcpy(to + static_cast<std::size_t>(lo) * token_bytes, from + static_cast<std::size_t>(lo) * token_bytes,
                static_cast<std::size_t>(hi - lo) * token_bytes);
    return;
  }
  for (int pair = 0; pair < 8; ++pair) {
    std::uint32_t kept = 0;
    if (2 * pair >= lo && 2 * pair < hi) kept |= 0x0000ffffu;
    if (2 * pair + 1 >= lo && 2 * pair + 1 < hi) kept |= 0xffff0000u;
    const auto* words = reinterpret_cast<const std::uint32_t*>(from) + pair * v_dim;
    auto* masked = reinterpret_cast<std::uint32_t*>(to) + pair * v_dim;
    for (int i = 0; i < v_dim; ++i) masked[i] = words[i] & kept;
  }
}

/// The tile of `position`, a multiple of 16, in the item's run.
const std::byte* tile_at(const Job& job, const AttentionItem& item, const std::byte* head, std::int32_t position) {
  const std::int32_t block_len = job.kv.shape().block_len;
  const std::int32_t block = job.block_lists[item.block_list + position / block_len - item.kv_begin / block_len];
  return head + static_cast<std::size_t>(block) * job.kv.block_bytes() +
         static_cast<std::size_t>(position % block_len / kTileTokens) * job.kv.tile_bytes();
}

/// Sets the task's tiles to those of positions [begin, end), which lie in the chunk that starts at `chunk`.
void find_tiles(const Job& job, const AttentionItem& item, const std::byte* head, std::int32_t chunk, std::int32_t begin,
                std::int32_t end, Scratch& scratch, ChunkTask& task) {
  task.first_tile = (begin - chunk) / kTileTokens;
  task.end_tile = (end - chunk + kTileTokens - 1) / kTileTokens;
  int n_edges = 0;
  for (int tile = task.first_tile; tile < task.end_tile; ++tile) {
    const std::int32_t position = chunk + tile * kTileTokens;
    const std::byte* at = tile_at(job, item, head, position);
    const auto index = static_cast<std::size_t>(tile);
    scratch.k_tiles[index] = at;
    scratch.v_tiles[index] = at + job.kv.k_part_bytes();
    const int lo = std::max(0, begin - position);
    const int hi = std::min(kTileTokens, end - position);
    if (lo > 0 || hi < kTileTokens) {
      std::byte* edge = scratch.edge_tiles[static_cast<std::size_t>(n_edges++)].data();
      copy_masked_values(scratch.v_tiles[index], edge, job.kv.v_dim(), job.kv.shape().dtype, lo, hi);
      scratch.v_tiles[index] = edge;
    }
  }
}

/// One head's keys of an item, from a position on.
struct Run {
  const AttentionItem* item;
  const std::byte* head;
  std::int32_t begin;
};

/// Sets the tiles that the task prefetches: the next ones that are read after its own.
void find_tiles_ahead(const Job& job, const Run& run, Scratch& scratch, ChunkTask& task) {
  std::int32_t position = run.begin / kTileTokens * kTileTokens;
  for (int tile = task.first_tile; tile < task.end_tile; ++tile) {
    scratch.k_ahead[static_cast<std::size_t>(tile)] = tile_at(job, *run.item, run.head, position);
    if (position + kTileTokens < run.item->kv_end) position += kTileTokens;
  }
}

/// Attention of one row block over its item's positions, for one KV head. The result is in scratch.o, m and l.
void run_chunks(const Job& job, int kv_head, const RowBlock& block, std::int32_t begin, std::int32_t end, const Run& next,
                Scratch& scratch) {
  const AttentionItem& item = job.items[static_cast<std::size_t>(block.item)];
  const std::byte* head = job.kv.head_data(job.args.layer, kv_head);
  ChunkTask task{};
  task.k_tiles = scratch.k_tiles.data();
  task.v_tiles = scratch.v_tiles.data();
  task.k_ahead = scratch.k_ahead.data();
  task.n_rows = block.count;
  task.lo = scratch.lo.data();
  task.hi = scratch.hi.data();
  task.head_dim = job.kv.shape().head_dim;
  task.value_dim = job.kv.shape().v_dim();
  task.v_dim = job.kv.v_dim();
  const float softcap = job.args.softcap;
  task.scale = softcap > 0 ? job.args.scale / softcap : job.args.scale * kLog2E;
  task.cap = softcap * kLog2E;
  task.q = scratch.q.data();
  task.scores = scratch.scores.data();
  task.weights = scratch.weights.data();
  task.chunk_o = scratch.chunk_o.data();
  task.chunk_m = scratch.chunk_m.data();
  task.chunk_l = scratch.chunk_l.data();
  task.o = scratch.o.data();
  task.m = scratch.m.data();
  task.l = scratch.l.data();
  for (std::int32_t chunk = begin / kChunkTokens * kChunkTokens; chunk < end; chunk += kChunkTokens) {
    const std::int32_t chunk_end = std::min(end, chunk + kChunkTokens);
    for (std::size_t i = 0; i < static_cast<std::size_t>(block.count); ++i) {
      const std::int32_t lo = std::clamp(scratch.row_lo[i], chunk, chunk_end);
      scratch.lo[i] = static_cast<std::int16_t>(lo - chunk);
      scratch.hi[i] = static_cast<std::int16_t>(std::clamp(scratch.row_hi[i], lo, chunk_end) - chunk);
    }
    find_tiles(job, item, head, chunk, std::max(begin, chunk), chunk_end, scratch, task);
    find_tiles_ahead(job, chunk_end < end ? Run{&item, head, chunk_end} : next, scratch, task);
    job.kernel.run(task);
  }
}

void write_states(const Job& job, int kv_head, const RowBlock& block, const Scratch& scratch) {
  const AttentionItem& item = job.items[static_cast<std::size_t>(block.item)];
  const int v_dim = job.kv.shape().v_dim();
  const PartialStates& partials = job.args.partials;
  const auto* const sinks = reinterpret_cast<const float*>(job.args.sinks.data);
  for (int i = 0; i < block.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const std::int64_t token_row = (block.first + i) / job.group;
    const std::int64_t head = static_cast<std::int64_t>(kv_head) * job.group + (block.first + i) % job.group;
    const float* o = &scratch.o[index * kStateRow];
    if ((item.flags & AttentionItem::direct) != 0) {
      write_output(job.args.out, (item.first_row + token_row) * job.n_heads + head, o, scratch.m[index], scratch.l[index],
                   v_dim, sinks == nullptr ? nullptr : sinks + head);
      continue;
    }
    const std::int64_t state = (item.first_partial + token_row) * job.n_heads + head;
    reinterpret_cast<float*>(partials.m.data)[state] = scratch.m[index];
    reinterpret_cast<float*>(partials.l.data)[state] = scratch.l[index];
    float* to = reinterpret_cast<float*>(partials.o.data) + state * v_dim;
    if (scratch.m[index] == kMinusInfinity) {
      std::fill_n(to, v_dim, 0.0f);
    } else {
      std::copy_n(o, v_dim, to);
    }
  }
}

void run_row_block(const Job& job, int kv_head, const RowBlock& block, const Run& next, Scratch& scratch) {
  const AttentionItem& item = job.items[static_cast<std::size_t>(block.item)];
  std::int32_t begin = item.kv_end;
  std::int32_t end = item.kv_begin;
  for (int i = 0; i < block.count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const std::int64_t token_row = item.first_row + (block.first + i) / job.group;
    const TokenRow& row = job.rows[token_row];
    scratch.row_lo[index] = std::max(item.kv_begin, row.kv_lo);
    scratch.row_hi[index] = std::max(scratch.row_lo[index], std::min(item.kv_end, row.kv_hi));
    scratch.m[index] = kMinusInfinity;
    scratch.l[index] = 0;
    if (scratch.row_lo[index] == scratch.row_hi[index]) continue;
    begin = std::min(begin, scratch.row_lo[index]);
    end = std::max(end, scratch.row_hi[index]);
  }
  if (begin < end) {
    for (int i = 0; i < block.count; ++i) {
      const std::int64_t token_row = item.first_row + (block.first + i) / job.group;
      const std::int64_t head = static_cast<std::int64_t>(kv_head) * job.group + (block.first + i) % job.group;
      pack_query(job.args.q, token_row * job.n_heads + head, job.kv.shape().head_dim, job.kernel.format,
                 scratch.q.data() + static_cast<std::size_t>(i) * kQueryRowBytes);
    }
    run_chunks(job, kv_head, block, begin, end, next, scratch);
  }
  write_states(job, kv_head, block, scratch);
}

/// Cuts the items into row blocks and sums their costs: positions times rows, plus the time to read the keys, which
/// counts if there are few rows.
void make_row_blocks(Job& job) {
  constexpr std::int64_t kReadRows = 6;     // reading a position costs about as much as computing six rows over it
  constexpr std::int64_t kBlockCost = 256;  // a block's fixed cost in the same unit
  job.cost_before.push_back(0);
  for (std::size_t i = 0; i < job.items.size(); ++i) {
    const AttentionItem& item = job.items[i];
    const std::int32_t n_tile_rows = item.n_rows * job.group;
    for (std::int32_t first = 0; first < n_tile_rows; first += kMaxTileRows) {
      const std::int32_t count = std::min(kMaxTileRows, n_tile_rows - first);
      job.blocks.push_back({static_cast<std::int32_t>(i), first, count});
      job.cost_before.push_back(job.cost_before.back() + kBlockCost +
                                static_cast<std::int64_t>(item.kv_end - item.kv_begin) * (count + kReadRows));
    }
  }
}

/// Start of a part of the loop: the first (head, block), counted head by head, whose middle is at or after part /
/// n_parts of the total cost.
std::int64_t part_begin(const Job& job, std::int64_t part, std::int64_t n_parts) {
  const auto n_blocks = static_cast<std::int64_t>(job.blocks.size());
  if (part == n_parts) return n_blocks * job.n_kv_heads;
  const std::int64_t head_cost = job.cost_before.back();
  const std::int64_t target = head_cost * job.n_kv_heads / n_parts * part;
  const std::int64_t head = target / head_cost;
  const std::int64_t within = 2 * (target - head * head_cost);
  std::int64_t low = 0;
  std::int64_t high = n_blocks;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    const auto index = static_cast<std::size_t>(middle);
    if (job.cost_before[index] + job.cost_before[index + 1] < within) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return head * n_blocks + low;
}

/// Parts are small enough that a delayed thread leaves most of its share to others.
constexpr std::int64_t kPartsPerThread = 8;

}  // namespace

/// Results depend on isa_, but not on the number of threads or on the other rows of an item. They do not depend on where
/// an item is cut either, if cuts are multiples of kAttentionChunk and the states are folded in the same order. A row's
/// window [kv_lo, kv_hi) is applied whatever the item's flags say.
void CpuBackend::attention(const AttentionArgs& args) {
  const auto& kv = static_cast<const CpuKvStorage&>(*args.kv);
  const auto n_heads = static_cast<int>(args.q.shape[1]);
  Job job{args,
          kv,
          chunk_kernel(isa_, kv.shape().dtype),
          args.step.span<AttentionItem>(SectionKind::items, args.group),
          args.step.pointer<std::int32_t>(SectionKind::block_lists, args.group),
          reinterpret_cast<const TokenRow*>(args.rows.data),
          n_heads,
          kv.shape().n_kv_heads,
          n_heads / kv.shape().n_kv_heads,
          {},
          {}};
  make_row_blocks(job);
  if (job.blocks.empty()) return;
  const auto n_blocks = static_cast<std::int64_t>(job.blocks.size());
  const std::int64_t n_units = n_blocks * job.n_kv_heads;
  const std::int64_t n_parts = parallel_.n_threads() == 1 ? 1 : std::min(n_units, kPartsPerThread * parallel_.n_threads());
  parallel_.for_parts(n_parts, [&](std::int64_t part, int) {
    Scratch scratch;  // not initialised: every member is written before it is read
    const std::int64_t begin = part_begin(job, part, n_parts);
    const std::int64_t end = part_begin(job, part + 1, n_parts);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t after = std::min(unit + 1, n_units - 1);  // or the next part's, usually this thread's too
      const AttentionItem& item =
          job.items[static_cast<std::size_t>(job.blocks[static_cast<std::size_t>(after % n_blocks)].item)];
      const Run next{&item, kv.head_data(args.layer, static_cast<int>(after / n_blocks)), item.kv_begin};
      run_row_block(job, static_cast<int>(unit / n_blocks), job.blocks[static_cast<std::size_t>(unit % n_blocks)], next,
                    scratch);
    }
  });
  if (args.merge && args.step.group(args.group).n_partials > 0)
    attention_merge({args.out, args.partials, args.step, args.group, args.sinks});
}

}  // namespace baton::cpu
