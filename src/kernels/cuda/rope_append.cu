/// Rotates each row's heads in f32 and rounds queries to q's dtype, keys and values to the storage's dtype. One
/// launch; each thread writes eight dimensions. The kernel mostly waits for memory, so dtypes are runtime parameters.
#include "kernels/cuda/rope_append.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/kv_storage.h"
#include "kernels/cuda/launch.cuh"

namespace baton::cuda {
namespace {

/// 16 bytes of a 16-bit type.
constexpr int kChunkDims = 8;
/// Small, so that one row of a decode step is spread over several multiprocessors.
constexpr int kThreads = 128;

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
  std::int64_t n_positions;
  const TokenRow* rows;
  const std::byte* step;
  std::int64_t kv_indices_at;  ///< offset of the Section of kv_indices in the step
  std::byte* layer;
  KvLayout layout;
  std::int64_t n_kv_positions;
  std::int32_t n_heads;
  std::int32_t head_dim;
  std::int32_t half;       ///< of the rotary dimension
  std::int32_t q_chunks;   ///< of one head of q
  std::int32_t kv_chunks;  ///< of one head of keys or values, with padding
};

__device__ float load(const void* from, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[index]);
    case DType::f16: return __half2float(static_cast<const __half*>(from)[index]);
    default: return static_cast<const float*>(from)[index];
  }
}

/// Loads eight values from an index whose byte offset is a multiple of 16.
__device__ void load_chunk(const void* from, DType dtype, std::int64_t index, float (&x)[kChunkDims]) {
  if (dtype == DType::f32) {
    const auto* quads = reinterpret_cast<const float4*>(static_cast<const float*>(from) + index);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 quad = quads[i];
      x[4 * i] = quad.x;
      x[4 * i + 1] = quad.y;
      x[4 * i + 2] = quad.z;
      x[4 * i + 3] = quad.w;
    }
    return;
  }
  const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(from) + index);
  const std::uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto low = static_cast<unsigned short>(word[i]);
    const auto high = static_cast<unsigned short>(word[i] >> 16);
    const bool is_bf16 = dtype == DType::bf16;
    x[2 * i] = is_bf16 ? __bfloat162float(__ushort_as_bfloat16(low)) : __half2float(__ushort_as_half(low));
    x[2 * i + 1] = is_bf16 ? __bfloat162float(__ushort_as_bfloat16(high)) : __half2float(__ushort_as_half(high));
  }
}

__device__ void store(void* to, DType dtype, std::int64_t index, float x) {
  switch (dtype) {
    case DType::bf16: static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16_rn(x); break;
    case DType::f16: static_cast<__half*>(to)[index] = __float2half_rn(x); break;
    default: static_cast<float*>(to)[index] = x;
  }
}

/// Eight values as 16 bits each, in memory order.
__device__ uint4 pack_16_bits(DType dtype, const float (&x)[kChunkDims]) {
  std::uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned short low = dtype == DType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[2 * i]))
                                                    : __half_as_ushort(__float2half_rn(x[2 * i]));
    const unsigned short high = dtype == DType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[2 * i + 1]))
                                                     : __half_as_ushort(__float2half_rn(x[2 * i + 1]));
    word[i] = low | static_cast<std::uint32_t>(high) << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

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
    const std::int64_t index = head_begin + dim;
    if (p.q_dtype == DType::f32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(p.q) + index);
      to[0] = make_float4(x[0], x[1], x[2], x[3]);
      to[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
      *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(p.q) + index) = pack_16_bits(p.q_dtype, x);
    }
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

/// Values dim to dim + 7 of a head; 0 from head_dim on.
template <bool kWholeChunks>
__device__ void load_head(const Params& p, std::int64_t head_begin, int dim, float (&x)[kChunkDims]) {
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) x[i] = 0;
  if constexpr (kWholeChunks) {
    if (dim < p.head_dim) load_chunk(p.qkv, p.qkv_dtype, head_begin + dim, x);
  } else {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i)
      if (dim + i < p.head_dim) x[i] = load(p.qkv, p.qkv_dtype, head_begin + dim + i);
  }
}

/// x_i cos - x_{i+half} sin in the first half of the rotary dimension, x_i cos + x_{i-half} sin in the second.
template <bool kWholeChunks>
__device__ void rotate(const Params& p, std::int64_t head_begin, int dim, int position, float (&x)[kChunkDims]) {
  const float* row_cos = p.cos + static_cast<std::int64_t>(position) * p.half;
  const float* row_sin = p.sin + static_cast<std::int64_t>(position) * p.half;
  if constexpr (kWholeChunks) {
    if (dim >= 2 * p.half) return;
    const bool is_first = dim < p.half;
    const int angle = is_first ? dim : dim - p.half;
    float other[kChunkDims], cos[kChunkDims], sin[kChunkDims];
    load_chunk(p.qkv, p.qkv_dtype, head_begin + (is_first ? dim + p.half : dim - p.half), other);
    load_chunk(row_cos, DType::f32, angle, cos);
    load_chunk(row_sin, DType::f32, angle, sin);
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) x[i] = x[i] * cos[i] + other[i] * (is_first ? -sin[i] : sin[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunkDims; ++i) {
      const int d = dim + i;
      if (d >= 2 * p.half) continue;
      const bool is_first = d < p.half;
      const int angle = is_first ? d : d - p.half;
      const float other = load(p.qkv, p.qkv_dtype, head_begin + (is_first ? d + p.half : d - p.half));
      x[i] = x[i] * row_cos[angle] + other * (is_first ? -row_sin[angle] : row_sin[angle]);
    }
  }
}

/// Grid: x is the row; y and the threads cover its chunks: queries, then keys, then values, head by head.
/// kWholeChunks: head_dim and half are multiples of 8 and all pointers are aligned to 16 bytes.
template <bool kWholeChunks>
__global__ void __launch_bounds__(kThreads) rope_append_kernel(const __grid_constant__ Params p) {
  let_next_kernel_start();  // attention prefetches older keys meanwhile
  wait_for_kernel_before();
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const auto chunk = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int n_query_chunks = p.n_heads * p.q_chunks;
  if (chunk >= n_query_chunks + 2 * p.layout.n_kv_heads * p.kv_chunks) return;
  if (row >= reinterpret_cast<const StepHeader*>(p.step)->n_rows) return;
  const bool is_query = chunk < n_query_chunks;
  const int chunks = is_query ? p.q_chunks : p.kv_chunks;
  const int of_kind = is_query ? chunk : chunk - n_query_chunks;
  const int head = of_kind / chunks;  // of queries, or of keys and then values
  const int dim = of_kind % chunks * kChunkDims;
  const int n_heads_in = p.n_heads + 2 * p.layout.n_kv_heads;
  const std::int64_t head_begin = (row * n_heads_in + (is_query ? head : p.n_heads + head)) * p.head_dim;
  std::int64_t kv_index = kNoKvIndex;
  if (!is_query) {
    const auto& section = *reinterpret_cast<const Section*>(p.step + p.kv_indices_at);
    kv_index = reinterpret_cast<const std::int64_t*>(p.step + section.offset)[row];
    if (kv_index == kNoKvIndex) return;
    if (kv_index < 0 || kv_index >= p.n_kv_positions) __trap();
  }
  float x[kChunkDims];
  load_head<kWholeChunks>(p, head_begin, dim, x);
  if (is_query || head < p.layout.n_kv_heads) {
    const int position = p.rows[row].position;
    if (position < 0 || position >= p.n_positions) __trap();
    rotate<kWholeChunks>(p, head_begin, dim, position, x);
  }
  if (is_query) {
    store_query<kWholeChunks>(p, (row * p.n_heads + head) * p.head_dim, dim, x);
  } else {
    const int part = head < p.layout.n_kv_heads ? 0 : 1;
    store_key_or_value(p, kv_index, part, head - part * p.layout.n_kv_heads, dim, x);
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void rope_append(const Device& device, const RopeAppendArgs& args) {
  auto& kv = static_cast<CudaKvStorage&>(*args.kv);
  const StepHeader& header = *args.step.header;
  if (header.n_rows == 0) return;
  const Section& kv_indices = args.step.section(SectionKind::kv_indices, args.group);
  check(kv_indices.count == header.n_rows, "rope_append: not one KV slot a row");
  const KvLayout layout = kv.layout();
  const auto head_dim = static_cast<int>(args.q.shape[2]);
  const auto half = static_cast<int>(args.rope.cos.shape[1]);
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
      .n_positions = args.rope.cos.shape[0],
      .rows = reinterpret_cast<const TokenRow*>(args.rows.data),
      .step = args.step.data,
      .kv_indices_at = reinterpret_cast<const std::byte*>(&kv_indices) - reinterpret_cast<const std::byte*>(&header),
      .layer = kv.layer_data(args.layer),
      .layout = layout,
      .n_kv_positions = static_cast<std::int64_t>(kv.shape().n_blocks) * layout.block_len,
      .n_heads = static_cast<std::int32_t>(args.q.shape[1]),
      .head_dim = head_dim,
      .half = half,
      .q_chunks = (head_dim + kChunkDims - 1) / kChunkDims,
      .kv_chunks = layout.row_bytes / static_cast<int>(size_bytes(kv.shape().dtype)) / kChunkDims,
  };
  const int n_chunks = params.n_heads * params.q_chunks + 2 * layout.n_kv_heads * params.kv_chunks;
  const dim3 grid(static_cast<unsigned>(header.n_rows), static_cast<unsigned>((n_chunks + kThreads - 1) / kThreads));
  const bool whole_chunks = head_dim % kChunkDims == 0 && half % kChunkDims == 0 && is_aligned(params.qkv) &&
                            is_aligned(params.q) && is_aligned(params.cos) && is_aligned(params.sin);
  const auto kernel = whole_chunks ? rope_append_kernel<true> : rope_append_kernel<false>;
  launch_overlapped(device, kernel, grid, kThreads, 0, "rope_append", params);
}

}  // namespace baton::cuda
