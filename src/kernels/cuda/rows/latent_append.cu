/// Keys of multi-head latent attention and rotated queries, in f32 and rounded once. One launch: of each row's blocks the first
/// writes the key, the others the queries; each thread writes eight dimensions.
#include "kernels/cuda/rows/rows.h"

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/kv/kv_storage.h"
#include "kernels/cuda/rows/chunks.cuh"

namespace baton::cuda {
namespace {

/// Enough for the chunks of a key of 576; few, so that a row of a decode step is spread over several multiprocessors.
constexpr int kThreads = 128;

struct LatentAppendParams {
  const void* x;
  const void* compressed;
  void* q;
  DType x_dtype;
  DType compressed_dtype;
  DType q_dtype;
  DType kv_dtype;
  bool x_is_aligned;           ///< all chunks that are read
  bool compressed_is_aligned;  ///< the same
  std::int64_t x_columns;
  std::int64_t x_stride;
  std::int64_t x_first;
  std::int64_t compressed_columns;
  std::int64_t first;
  const float* norm;
  float norm_eps;
  const float* cos;
  const float* sin;
  const float* q_factor;  ///< [n_positions], or null
  std::int64_t n_positions;
  bool pairs_are_neighbours;
  const TokenRow* rows;
  const std::byte* step;
  std::int64_t kv_indices_at;  ///< offset of the Section of kv_indices in the step
  std::byte* layer;
  KvLayout layout;
  std::int64_t n_kv_positions;
  std::int32_t n_heads;
  std::int32_t latent_dim;
  std::int32_t head_dim;
};

/// The angles of eight dimensions: one for each number, or for each pair of neighbours.
struct PairAngles {
  float cos[kChunkDims];
  float sin[kChunkDims];
};

__device__ PairAngles load_pair_angles(const LatentAppendParams& p, int position, int dim) {
  const int half = (p.head_dim - p.latent_dim) / 2;
  PairAngles angles;
  const std::int64_t begin = static_cast<std::int64_t>(position) * half;
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) {
    const std::int64_t at = begin + (p.pairs_are_neighbours ? (dim + i) / 2 : (dim + i) % half);
    angles.cos[i] = p.cos[at];
    angles.sin[i] = p.sin[at];
  }
  return angles;
}

/// Numbers dim to dim + 7 of the rotary dimension, whose first number is at `begin`, rotated.
__device__ void load_rotated(const LatentAppendParams& p, const void* from, DType dtype, bool is_aligned, std::int64_t begin,
                             int dim, const PairAngles& angles, float (&x)[kChunkDims]) {
  float own[kChunkDims];
  load_some(from, dtype, begin + dim, kChunkDims, is_aligned, own);
  if (p.pairs_are_neighbours) {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i)
      x[i] = own[i] * angles.cos[i] + own[i ^ 1] * (i % 2 == 0 ? -angles.sin[i] : angles.sin[i]);
    return;
  }
  const int half = (p.head_dim - p.latent_dim) / 2;
  const bool is_first = dim < half;
  float other[kChunkDims];
  load_some(from, dtype, begin + (is_first ? dim + half : dim - half), kChunkDims, is_aligned, other);
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) x[i] = own[i] * angles.cos[i] + other[i] * (is_first ? -angles.sin[i] : angles.sin[i]);
}

__device__ int checked_position(const LatentAppendParams& p, std::int64_t row) {
  const int position = p.rows[row].position;
  if (position < 0 || position >= p.n_positions) __trap();
  return position;
}

/// The whole block calls it.
__device__ void write_key(const LatentAppendParams& p, std::int64_t row) {
  __shared__ float of_warps[kThreads / kWarpSize];
  const auto& section = *reinterpret_cast<const Section*>(p.step + p.kv_indices_at);
  const std::int64_t kv_index = reinterpret_cast<const std::int64_t*>(p.step + section.offset)[row];
  if (kv_index == kNoKvIndex) return wait_for_kernel_before();
  if (kv_index < 0 || kv_index >= p.n_kv_positions) __trap();
  const int dim = static_cast<int>(threadIdx.x) * kChunkDims;
  const bool is_latent = dim < p.latent_dim;
  const bool exists = dim < p.head_dim;
  const std::int64_t begin = row * p.compressed_columns + p.first;
  float weight[kChunkDims];
  PairAngles angles;
  if (is_latent)
    load_some(p.norm, DType::f32, dim, kChunkDims, false, weight);
  else if (exists)
    angles = load_pair_angles(p, checked_position(p, row), dim - p.latent_dim);
  wait_for_kernel_before();
  float x[kChunkDims];
  float squares = 0;
  if (is_latent) {
    load_some(p.compressed, p.compressed_dtype, begin + dim, kChunkDims, p.compressed_is_aligned, x);
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) squares += x[i] * x[i];
  } else if (exists) {
    load_rotated(p, p.compressed, p.compressed_dtype, p.compressed_is_aligned, begin + p.latent_dim, dim - p.latent_dim, angles,
                 x);
  }
  squares = block_join(squares, of_warps, [](float a, float b) { return a + b; });
  if (!exists) return;
  if (is_latent) {
    const float factor = 1.0f / sqrtf(squares / static_cast<float>(p.latent_dim) + p.norm_eps);
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) x[i] = x[i] * factor * weight[i];
  }
  std::byte* const tile = p.layer + p.layout.tile_offset(kv_index / p.layout.block_len, 0, 0);
  const auto token = static_cast<int>(kv_index % p.layout.block_len);
  *reinterpret_cast<uint4*>(tile + p.layout.byte_in_tile(token, 2 * dim)) = pack_16_bits(p.kv_dtype, x);
}

/// Chunk `chunk` of the row's queries: of their rotary dimensions, with a q_factor of all.
__device__ void write_query(const LatentAppendParams& p, std::int64_t row, int chunk) {
  const int first_dim = p.q_factor != nullptr ? 0 : p.latent_dim;
  const int head_chunks = (p.head_dim - first_dim) / kChunkDims;
  const int head = chunk / head_chunks;
  if (head >= p.n_heads) return wait_for_kernel_before();
  const int dim = first_dim + chunk % head_chunks * kChunkDims;
  const bool is_rotated = dim >= p.latent_dim;
  const int position = checked_position(p, row);
  const float q_factor = p.q_factor != nullptr ? p.q_factor[position] : 1.0f;
  PairAngles angles;
  if (is_rotated) angles = load_pair_angles(p, position, dim - p.latent_dim);
  wait_for_kernel_before();
  const std::int64_t at = (row * p.n_heads + head) * p.head_dim + dim;
  float x[kChunkDims];
  if (is_rotated)
    load_rotated(p, p.x, p.x_dtype, p.x_is_aligned, row * p.x_columns + head * p.x_stride + p.x_first, dim - p.latent_dim,
                 angles, x);
  else
    load_chunk(p.q, p.q_dtype, at, x);
  if (p.q_factor != nullptr) {
#pragma unroll
    for (float& number : x) number *= q_factor;
  }
  store_chunk(p.q, p.q_dtype, at, x);
}

/// Grid: x is the row; y is 0 for its key, then come its queries.
__global__ void __launch_bounds__(kThreads) latent_append_kernel(const __grid_constant__ LatentAppendParams p) {
  let_next_kernel_start();  // attention prefetches older keys meanwhile
  // The step, the rows and the angles do not come from the kernel before, so they are loaded while it ends.
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  if (row >= reinterpret_cast<const StepHeader*>(p.step)->n_rows) return wait_for_kernel_before();
  if (blockIdx.y == 0) return write_key(p, row);
  write_query(p, row, static_cast<int>(blockIdx.y - 1) * kThreads + static_cast<int>(threadIdx.x));
}

}  // namespace

void latent_append(const Device& device, const LatentAppendArgs& args) {
  auto& kv = static_cast<CudaKvStorage&>(*args.kv);
  const StepHeader& header = *args.step.header;
  if (header.n_rows == 0) return;
  const Section& kv_indices = args.step.section(SectionKind::kv_indices, args.group);
  check(kv_indices.count == header.n_rows, "latent_append: not one KV slot a row");
  const KvLayout layout = kv.layout();
  const int head_dim = kv.shape().head_dim;
  const int latent_dim = kv.shape().latent_dim;
  const auto is_whole = [](const ConstTensorView& tensor, std::int64_t stride, std::int64_t first) {
    return is_aligned(tensor.data, 16) && tensor.shape[1] % kChunkDims == 0 && stride % kChunkDims == 0 &&
           first % kChunkDims == 0;
  };
  const LatentAppendParams params{
      .x = args.x.data,
      .compressed = args.compressed.data,
      .q = args.q.data,
      .x_dtype = args.x.dtype,
      .compressed_dtype = args.compressed.dtype,
      .q_dtype = args.q.dtype,
      .kv_dtype = kv.shape().dtype,
      .x_is_aligned = is_whole(args.x, args.x_stride, args.x_first),
      .compressed_is_aligned = is_whole(args.compressed, 0, args.first),
      .x_columns = args.x.shape[1],
      .x_stride = args.x_stride,
      .x_first = args.x_first,
      .compressed_columns = args.compressed.shape[1],
      .first = args.first,
      .norm = reinterpret_cast<const float*>(args.norm.data),
      .norm_eps = args.norm_eps,
      .cos = reinterpret_cast<const float*>(args.rope.cos.data),
      .sin = reinterpret_cast<const float*>(args.rope.sin.data),
      .q_factor = reinterpret_cast<const float*>(args.rope.q_factor.data),
      .n_positions = args.rope.cos.shape[0],
      .pairs_are_neighbours = args.pairs_are_neighbours,
      .rows = reinterpret_cast<const TokenRow*>(args.rows.data),
      .step = args.step.data,
      .kv_indices_at = reinterpret_cast<const std::byte*>(&kv_indices) - reinterpret_cast<const std::byte*>(&header),
      .layer = kv.layer_data(args.layer),
      .layout = layout,
      .n_kv_positions = static_cast<std::int64_t>(kv.shape().n_blocks) * layout.block_len,
      .n_heads = static_cast<std::int32_t>(args.q.shape[1]),
      .latent_dim = latent_dim,
      .head_dim = head_dim,
  };
  check(head_dim <= kThreads * kChunkDims && latent_dim % kChunkDims == 0 && (head_dim - latent_dim) % (2 * kChunkDims) == 0,
        "latent_append: sizes that the storage does not have");
  check(is_aligned(args.q.data, 16), "latent_append: q must be aligned to 16 bytes");
  const int query_chunks = params.n_heads * (head_dim - (params.q_factor != nullptr ? 0 : latent_dim)) / kChunkDims;
  const dim3 grid(static_cast<unsigned>(header.n_rows), static_cast<unsigned>(1 + (query_chunks + kThreads - 1) / kThreads));
  prefer_shared_memory(latent_append_kernel);
  launch_overlapped(device, latent_append_kernel, grid, kThreads, 0, "latent_append", params);
}

}  // namespace baton::cuda
