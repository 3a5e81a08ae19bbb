/// Rotates each row's heads in f32 and rounds queries to q's dtype, keys and values to the storage's dtype. One
/// launch; each thread writes eight dimensions. The kernel mostly waits for memory, so dtypes are runtime parameters.
#include "kernels/cuda/rows/rows.h"

#include <cuda_fp8.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/kv/kv_storage.h"
#include "kernels/cuda/rows/chunks.cuh"

namespace baton::cuda {
namespace {

/// Small, so that one row of a decode step is spread over several multiprocessors.
constexpr int kThreads = 128;

/// Over what the RMS norm of queries and keys runs.
enum class HeadNorm { none, head, width };

struct Params {
  const void* qkv;
  void* q;
  DType qkv_dtype;
  DType q_dtype;
  DType kv_dtype;
  float k_scale;
  float v_scale;
  const float* cos;
  const float* sin;
  const float* q_factor;  ///< [n_positions], or null
  std::int64_t n_positions;
  const TokenRow* rows;
  const std::byte* step;
  std::int64_t kv_indices_at;  ///< offset of the Section of kv_indices in the step
  std::byte* layer;
  KvLayout layout;
  std::int64_t n_kv_positions;
  std::int32_t n_heads;
  std::int32_t head_dim;
  std::int32_t half;          ///< of the rotary dimension
  std::int32_t q_chunks;      ///< of one head of q; as many as kv_chunks with HeadNorm::head
  std::int32_t kv_chunks;     ///< of one head of keys or values, with padding
  std::int32_t block_chunks;  ///< chunks of one block: kThreads, or whole heads with HeadNorm::head
  const float* q_norm;
  const float* k_norm;
  float norm_eps;
  bool norms_rotated;
};

/// Eight values divided by `scale`, as f8_e4m3; uses the device's conversion instruction if it has one.
__device__ uint2 pack_8_bits(const float (&x)[kChunkDims], float scale) {
  std::uint32_t word[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = make_float2(__fdiv_rn(x[2 * i], scale), __fdiv_rn(x[2 * i + 1], scale));
    const auto bits = static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3));
    word[i / 2] |= bits << (16 * (i % 2));
  }
  return make_uint2(word[0], word[1]);
}

/// Stores eight values of q, without those from head_dim on.
template <bool kWholeChunks>
__device__ void store_query(const Params& p, std::int64_t head_begin, int dim, const float (&x)[kChunkDims]) {
  if constexpr (kWholeChunks) {
    store_chunk(p.q, p.q_dtype, head_begin + dim, x);
  } else {
    for (int i = 0; i < kChunkDims && dim + i < p.head_dim; ++i) store(p.q, p.q_dtype, head_begin + dim + i, x[i]);
  }
}

__device__ void store_key_or_value(const Params& p, std::int64_t kv_index, int part, int head, int dim,
                                   const float (&x)[kChunkDims]) {
  const std::int64_t block = kv_index / p.layout.block_len;
  const auto token = static_cast<int>(kv_index % p.layout.block_len);
  std::byte* tile = p.layer + p.layout.tile_offset(block, part, head);
  if (p.kv_dtype == DType::f8_e4m3) {
    *reinterpret_cast<uint2*>(tile + p.layout.byte_in_tile(token, dim)) = pack_8_bits(x, part == 0 ? p.k_scale : p.v_scale);
  } else {
    *reinterpret_cast<uint4*>(tile + p.layout.byte_in_tile(token, 2 * dim)) = pack_16_bits(p.kv_dtype, x);
  }
}

/// Values dim to dim + 7 of a head; 0 from head_dim on. Whole chunks: and at the same time the values that the rotation
/// joins them with, in `other`.
template <bool kWholeChunks>
__device__ void load_head(const Params& p, std::int64_t head_begin, int dim, float (&x)[kChunkDims],
                          float (&other)[kChunkDims]) {
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) x[i] = 0;
  if constexpr (kWholeChunks) {
    const int other_dim = dim >= 2 * p.half ? dim : dim < p.half ? dim + p.half : dim - p.half;
    if (dim < p.head_dim) {
      load_chunk(p.qkv, p.qkv_dtype, head_begin + dim, x);
      load_chunk(p.qkv, p.qkv_dtype, head_begin + other_dim, other);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i)
      if (dim + i < p.head_dim) x[i] = load(p.qkv, p.qkv_dtype, head_begin + dim + i);
  }
}

/// 1 / sqrt(mean square + eps) of the `n` numbers of qkv from `begin`, computed by the whole block. `of_warps` has
/// room for one number of each warp.
template <bool kWholeChunks>
__device__ float norm_factor_of_width(const Params& p, std::int64_t begin, int n, float* of_warps) {
  float sum = 0;
  if constexpr (kWholeChunks) {
    for (int i = static_cast<int>(threadIdx.x) * kChunkDims; i < n; i += kThreads * kChunkDims) {
      float x[kChunkDims];
      load_chunk(p.qkv, p.qkv_dtype, begin + i, x);
#pragma unroll
      for (int j = 0; j < kChunkDims; ++j) sum += x[j] * x[j];
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      const float x = load(p.qkv, p.qkv_dtype, begin + i);
      sum += x * x;
    }
  }
  sum = block_join(sum, of_warps, [](float a, float b) { return a + b; });
  return 1.0f / sqrtf(sum / static_cast<float>(n) + p.norm_eps);
}

/// The same of the head of which this thread holds the chunk `x` and its neighbours from `first_thread` on the others.
/// The whole block calls it; `of_threads` holds one number of each thread.
__device__ float norm_factor_of_head(const Params& p, const float (&x)[kChunkDims], int first_thread, float* of_threads) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) sum += x[i] * x[i];
  of_threads[threadIdx.x] = sum;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < p.kv_chunks && first_thread + i < kThreads; ++i) total += of_threads[first_thread + i];
  return 1.0f / sqrtf(total / static_cast<float>(p.head_dim) + p.norm_eps);
}

/// The norm of one head: each number times `factor` and the weight of its dimension.
struct Norm {
  float factor;
  const float* weight;  ///< [head_dim]
  bool is_of_rotated;   ///< it comes after the rotation
};

/// Applies the norm to the numbers dim to dim + 7 of a head that are below head_dim.
template <bool kWholeChunks>
__device__ void apply(const Params& p, const Norm& norm, int dim, float (&x)[kChunkDims]) {
  if constexpr (kWholeChunks) {
    if (dim >= p.head_dim) return;
    float weight[kChunkDims];
    load_chunk(norm.weight, DType::f32, dim, weight);
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) x[i] = x[i] * norm.factor * weight[i];
  } else {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i)
      if (dim + i < p.head_dim) x[i] = x[i] * norm.factor * norm.weight[dim + i];
  }
}

/// The rotation of a chunk of a row. Whole chunks load the numbers at once.
struct Angles {
  const float* row_cos;  ///< [half]
  const float* row_sin;
  float cos[kChunkDims];
  float sin[kChunkDims];
  float q_factor;  ///< only where there is one
};

template <bool kWholeChunks>
__device__ void load_angles(const Params& p, int position, int dim, Angles& angles) {
  angles.row_cos = p.cos + static_cast<std::int64_t>(position) * p.half;
  angles.row_sin = p.sin + static_cast<std::int64_t>(position) * p.half;
  if (p.q_factor != nullptr) angles.q_factor = p.q_factor[position];
  if constexpr (kWholeChunks) {
    if (dim >= 2 * p.half) return;
    const int angle = dim < p.half ? dim : dim - p.half;
    load_chunk(angles.row_cos, DType::f32, angle, angles.cos);
    load_chunk(angles.row_sin, DType::f32, angle, angles.sin);
  }
}

/// x_i cos - x_{i+half} sin in the first half of the rotary dimension, x_i cos + x_{i-half} sin in the second. A norm that comes
/// before the rotation `x` has already; the numbers it is joined with (of whole chunks, `other`) get it here.
template <bool kWholeChunks, HeadNorm kNorm>
__device__ void rotate(const Params& p, std::int64_t head_begin, int dim, const Angles& angles, const Norm& norm,
                       float (&x)[kChunkDims], float (&other)[kChunkDims]) {
  if constexpr (kWholeChunks) {
    if (dim >= 2 * p.half) return;
    const bool is_first = dim < p.half;
    if (kNorm != HeadNorm::none && !norm.is_of_rotated)
      apply<kWholeChunks>(p, norm, is_first ? dim + p.half : dim - p.half, other);
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) x[i] = x[i] * angles.cos[i] + other[i] * (is_first ? -angles.sin[i] : angles.sin[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) {
      const int d = dim + i;
      if (d >= 2 * p.half) continue;
      const bool is_first = d < p.half;
      const int angle = is_first ? d : d - p.half;
      const int other_dim = is_first ? d + p.half : d - p.half;
      float joined = load(p.qkv, p.qkv_dtype, head_begin + other_dim);
      if (kNorm != HeadNorm::none && !norm.is_of_rotated) joined = joined * norm.factor * norm.weight[other_dim];
      x[i] = x[i] * angles.row_cos[angle] + joined * (is_first ? -angles.row_sin[angle] : angles.row_sin[angle]);
    }
  }
}

/// Grid: x is the row; y and the threads cover its chunks: queries, then keys, then values, head by head.
/// kWholeChunks: head_dim and half are multiples of 8 and all pointers are aligned to 16 bytes.
template <bool kWholeChunks, HeadNorm kNorm>
__global__ void __launch_bounds__(kThreads) rope_append_kernel(const __grid_constant__ Params p) {
  __shared__ float sums[kThreads];  // of norms only
  let_next_kernel_start();          // attention prefetches older keys meanwhile
  // The step, the rows and the angles do not come from the kernel before, so they are loaded while it ends.
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  if (row >= reinterpret_cast<const StepHeader*>(p.step)->n_rows) return wait_for_kernel_before();
  const auto thread = static_cast<int>(threadIdx.x);
  const int first_chunk = static_cast<int>(blockIdx.y) * (kNorm == HeadNorm::head ? p.block_chunks : kThreads);
  const int chunk = first_chunk + thread;
  const int n_query_chunks = p.n_heads * p.q_chunks;
  bool exists = chunk < n_query_chunks + 2 * p.layout.n_kv_heads * p.kv_chunks;
  const bool is_query = chunk < n_query_chunks;
  const int chunks = is_query ? p.q_chunks : p.kv_chunks;
  const int of_kind = is_query ? chunk : chunk - n_query_chunks;
  const int head = of_kind / chunks;  // of queries, or of keys and then values
  const int dim = of_kind % chunks * kChunkDims;
  const int n_heads_in = p.n_heads + 2 * p.layout.n_kv_heads;
  const std::int64_t row_begin = row * n_heads_in * p.head_dim;
  const std::int64_t head_begin = row_begin + (is_query ? head : p.n_heads + head) * static_cast<std::int64_t>(p.head_dim);
  if constexpr (kNorm == HeadNorm::head) exists = exists && thread < p.block_chunks && !(is_query && dim >= p.head_dim);
  std::int64_t kv_index = kNoKvIndex;
  if (exists && !is_query) {
    const auto& section = *reinterpret_cast<const Section*>(p.step + p.kv_indices_at);
    kv_index = reinterpret_cast<const std::int64_t*>(p.step + section.offset)[row];
    exists = kv_index != kNoKvIndex;
    if (exists && (kv_index < 0 || kv_index >= p.n_kv_positions)) __trap();
  }
  const bool is_value = !is_query && head >= p.layout.n_kv_heads;
  Angles angles;
  if (exists && !is_value && p.half > 0) {
    const int position = p.rows[row].position;
    if (position < 0 || position >= p.n_positions) __trap();
    load_angles<kWholeChunks>(p, position, dim, angles);
  }
  wait_for_kernel_before();
  if (kNorm == HeadNorm::none && !exists) return;  // with a norm the whole block meets
  float x[kChunkDims] = {};
  float other[kChunkDims] = {};
  if (exists) load_head<kWholeChunks>(p, head_begin, dim, x, other);
  Norm norm{1, is_query ? p.q_norm : p.k_norm, p.norms_rotated};
  if constexpr (kNorm == HeadNorm::head) {
    norm.factor = norm_factor_of_head(p, x, thread - dim / kChunkDims, sums);
  } else if constexpr (kNorm == HeadNorm::width) {
    const int end_of_keys = n_query_chunks + p.layout.n_kv_heads * p.kv_chunks;
    if (first_chunk < n_query_chunks) {
      const float factor = norm_factor_of_width<kWholeChunks>(p, row_begin, p.n_heads * p.head_dim, sums);
      if (is_query) norm.factor = factor;
    }
    if (first_chunk < end_of_keys && first_chunk + kThreads > n_query_chunks) {
      const std::int64_t keys = row_begin + static_cast<std::int64_t>(p.n_heads) * p.head_dim;
      const float factor = norm_factor_of_width<kWholeChunks>(p, keys, p.layout.n_kv_heads * p.head_dim, sums);
      if (!is_query) norm.factor = factor;
    }
    norm.weight += head * p.head_dim;
  }
  if (!exists) return;
  if (!is_value) {
    if (kNorm != HeadNorm::none && !norm.is_of_rotated) apply<kWholeChunks>(p, norm, dim, x);
    if (p.half > 0) rotate<kWholeChunks, kNorm>(p, head_begin, dim, angles, norm, x, other);
    if (kNorm != HeadNorm::none && norm.is_of_rotated) apply<kWholeChunks>(p, norm, dim, x);
  }
  if (is_query && p.q_factor != nullptr) {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) x[i] *= angles.q_factor;
  }
  if (is_query) {
    store_query<kWholeChunks>(p, (row * p.n_heads + head) * p.head_dim, dim, x);
  } else {
    const int part = is_value ? 1 : 0;
    store_key_or_value(p, kv_index, part, head - part * p.layout.n_kv_heads, dim, x);
  }
}

template <HeadNorm kNorm>
auto* kernel_for(bool whole_chunks) {
  return whole_chunks ? rope_append_kernel<true, kNorm> : rope_append_kernel<false, kNorm>;
}

}  // namespace

void rope_append(const Device& device, const RopeAppendArgs& args) {
  auto& kv = static_cast<CudaKvStorage&>(*args.kv);
  const StepHeader& header = *args.step.header;
  if (header.n_rows == 0) return;
  const Section& kv_indices = args.step.section(SectionKind::kv_indices, args.group);
  check(kv_indices.count == header.n_rows, "rope_append: not one KV slot a row");
  const KvLayout layout = kv.layout();
  const auto head_dim = static_cast<int>(args.q.shape[2]);
  const bool has_rope = args.rope.cos.data != nullptr;
  const int half = has_rope ? static_cast<int>(args.rope.cos.shape[1]) : 0;
  const HeadNorm norm = args.q_norm.data == nullptr                                            ? HeadNorm::none
                        : args.q_norm.shape[0] == head_dim && args.k_norm.shape[0] == head_dim ? HeadNorm::head
                                                                                               : HeadNorm::width;
  const int kv_chunks = layout.row_bytes / static_cast<int>(size_bytes(kv.shape().dtype)) / kChunkDims;
  const Params params{
      .qkv = args.qkv.data,
      .q = args.q.data,
      .qkv_dtype = args.qkv.dtype,
      .q_dtype = args.q.dtype,
      .kv_dtype = kv.shape().dtype,
      .k_scale = kv.shape().k_scale(args.layer),
      .v_scale = kv.shape().v_scale(args.layer),
      .cos = reinterpret_cast<const float*>(args.rope.cos.data),
      .sin = reinterpret_cast<const float*>(args.rope.sin.data),
      .q_factor = reinterpret_cast<const float*>(args.rope.q_factor.data),
      .n_positions = has_rope ? args.rope.cos.shape[0] : 0,
      .rows = reinterpret_cast<const TokenRow*>(args.rows.data),
      .step = args.step.data,
      .kv_indices_at = reinterpret_cast<const std::byte*>(&kv_indices) - reinterpret_cast<const std::byte*>(&header),
      .layer = kv.layer_data(args.layer),
      .layout = layout,
      .n_kv_positions = static_cast<std::int64_t>(kv.shape().n_blocks) * layout.block_len,
      .n_heads = static_cast<std::int32_t>(args.q.shape[1]),
      .head_dim = head_dim,
      .half = half,
      .q_chunks = norm == HeadNorm::head ? kv_chunks : (head_dim + kChunkDims - 1) / kChunkDims,
      .kv_chunks = kv_chunks,
      .block_chunks = norm == HeadNorm::head ? kThreads / kv_chunks * kv_chunks : kThreads,
      .q_norm = reinterpret_cast<const float*>(args.q_norm.data),
      .k_norm = reinterpret_cast<const float*>(args.k_norm.data),
      .norm_eps = args.norm_eps,
      .norms_rotated = args.norms_rotated,
  };
  const int n_chunks = params.n_heads * params.q_chunks + 2 * layout.n_kv_heads * params.kv_chunks;
  const dim3 grid(static_cast<unsigned>(header.n_rows),
                  static_cast<unsigned>((n_chunks + params.block_chunks - 1) / params.block_chunks));
  const bool whole_chunks = head_dim % kChunkDims == 0 && half % kChunkDims == 0 && is_aligned(params.qkv, 16) &&
                            is_aligned(params.q, 16) && is_aligned(params.cos, 16) && is_aligned(params.sin, 16) &&
                            is_aligned(params.q_norm, 16) && is_aligned(params.k_norm, 16);
  const auto kernel = norm == HeadNorm::none   ? kernel_for<HeadNorm::none>(whole_chunks)
                      : norm == HeadNorm::head ? kernel_for<HeadNorm::head>(whole_chunks)
                                               : kernel_for<HeadNorm::width>(whole_chunks);
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kThreads, 0, "rope_append", params);
}

}  // namespace baton::cuda
