/// Attention for a step's work list on a CUDA device, in one persistent launch: chooses the instantiation of the kernel and
/// sets its parameters.
#include <bit>
#include <string>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <fmt/format.h>

#include "kernels/cuda/attention/invariant/invariant.h"
#include "kernels/cuda/attention/invariant/latent.h"
#include "kernels/cuda/attention/latent/latent.h"
#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/attention/merge/merge.h"
#include "kernels/cuda/attention/wide/wide.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/kv/kv_layout.h"
#include "kernels/cuda/kv/kv_storage.h"

namespace baton::cuda {
namespace {

constexpr int kMaxGroup = 64;  // query heads of a KV head: a tile holds whole token rows

/// An instantiation of the kernel; null: none.
struct Variant {
  void (*launch)(const AttentionParams&, const Device&, int) = nullptr;
  MemoryPlan (*plan_memory)(const Device&) = nullptr;
};

/// What `make` makes of the head size, which it takes as a template argument; null if the size is none of kDims.
template <int... kDims, class Make>
auto of_dim(int dim, const Make& make) {
  decltype(make.template operator()<64>()) made{};
  (void)((dim == kDims && (made = make.template operator()<kDims>(), true)) || ...);
  return made;
}

template <class T, bool kFp8, int... kDims>
Variant find_general(int padded_dim) {
  return of_dim<kDims...>(padded_dim, []<int kDim>() {
    return Variant{launch_attention<T, kDim, kFp8>, plan_attention_memory<T, kDim, kFp8>};
  });
}

template <class T, bool kFp8, int... kDims>
Variant find_invariant(int padded_dim) {
  return of_dim<kDims...>(padded_dim, []<int kDim>() {
    return Variant{launch_invariant_attention<T, kDim, kFp8>, plan_invariant_attention_memory<T, kDim, kFp8>};
  });
}

Variant find_variant(DType dtype, int padded_dim, bool batch_invariant) {
  if (dtype == DType::bf16)
    return batch_invariant ? find_invariant<__nv_bfloat16, false, 64, 96, 128, 256>(padded_dim)
                           : find_general<__nv_bfloat16, false, 64, 96, 128, 256>(padded_dim);
  if (dtype == DType::f16)
    return batch_invariant ? find_invariant<__half, false, 64, 96, 128, 256>(padded_dim)
                           : find_general<__half, false, 64, 96, 128, 256>(padded_dim);
  if (dtype == DType::f8_e4m3)
    return batch_invariant ? find_invariant<__nv_bfloat16, true, 64, 128>(padded_dim)
                           : find_general<__nv_bfloat16, true, 64, 128>(padded_dim);
  return {};
}

using WideLaunch = void (*)(const AttentionParams&, const Device&, int);

template <class T, bool kFp8 = false>
WideLaunch find_wide(int head_dim, bool batch_invariant) {
  return of_dim<64, 128>(head_dim, [&]<int kDim>() -> WideLaunch {
    return batch_invariant ? launch_wide_invariant_attention<T, kDim, kFp8> : launch_wide_attention<T, kDim, kFp8>;
  });
}

/// The wide kernel for these keys, or null.
WideLaunch find_wide_launch(DType dtype, int head_dim, bool batch_invariant) {
  if (dtype == DType::bf16) return find_wide<__nv_bfloat16>(head_dim, batch_invariant);
  if (dtype == DType::f16) return find_wide<__half>(head_dim, batch_invariant);
  if (dtype == DType::f8_e4m3) return find_wide<__nv_bfloat16, true>(head_dim, batch_invariant);
  return nullptr;
}

using LatentLaunch = void (*)(const AttentionParams&, const Device&, int);

template <class T>
LatentLaunch find_latent(int latent_dim) {
  switch (latent_dim) {
    case 256: return launch_latent_attention<T, 256>;
    case 512: return launch_latent_attention<T, 512>;
    default: return nullptr;
  }
}

/// The kernel for keys whose beginnings are values, or null.
LatentLaunch find_latent_launch(const KvShape& kv) {
  if (kv.head_dim - kv.latent_dim != kLatentRotaryDim) return nullptr;
  if (kv.dtype == DType::bf16) return find_latent<__nv_bfloat16>(kv.latent_dim);
  if (kv.dtype == DType::f16) return find_latent<__half>(kv.latent_dim);
  return nullptr;
}

/// The same for a storage without values.
std::string latent_obstacle(const Device& device, const KvShape& kv) {
  if (find_latent_launch(kv) == nullptr)
    return fmt::format(
        "a KV cache of {} with latent vectors of {} and {} rotated elements on CUDA: bfloat16 and float16 take 256 or 512, and "
        "64",
        to_string(kv.dtype), kv.latent_dim, kv.head_dim - kv.latent_dim);
  if (device.compute_capability != 90 || !runs_latent_attention<__nv_bfloat16, 512>())
    return fmt::format("multi-head latent attention on {}: it needs compute capability 9.0", device.name);
  return {};
}

/// Why attention does not work with this storage on this device, as a sentence; empty: it does. q must have the storage's
/// dtype (bf16 for f8_e4m3), out that dtype or f32.
std::string attention_obstacle(const Device& device, const KvShape& kv, bool batch_invariant) {
  if (!kv.has_values()) return latent_obstacle(device, kv);
  if (kv.head_dim % 8 != 0 || kv.head_dim < 8 || kv.head_dim > 256)
    return fmt::format("heads of {} on CUDA: they must be a multiple of 8 and at most 256", kv.head_dim);
  const Variant variant = find_variant(kv.dtype, padded_head_dim(kv.head_dim), batch_invariant);
  if (variant.launch == nullptr)
    return fmt::format(
        "a KV cache of {} with heads of {} on CUDA: bfloat16 and float16 take heads of up to 256, float8_e4m3 up to 64 and "
        "from 104 to 128",
        to_string(kv.dtype), kv.head_dim);
  if (variant.plan_memory(device).n_stages < 2)
    return fmt::format("heads of {} in {} need more shared memory a block than the {} KiB of {}", kv.head_dim,
                       to_string(kv.dtype), device.max_shared_bytes >> 10, device.name);
  return {};
}

/// Device memory for the states of chunks. All storages of a device that need any need the same: keys without values those of
/// compute capability 9.0, heads of 256 those with too little shared memory.
std::size_t chunk_state_bytes(const Device& device, const KvShape& kv, bool batch_invariant) {
  if (!batch_invariant) return 0;
  if (!kv.has_values()) return latent_state_bytes(device);
  return find_variant(kv.dtype, padded_head_dim(kv.head_dim), true).plan_memory(device).device_bytes;
}

}  // namespace

bool has_wide_attention(const Device& device) {
  return device.compute_capability == 90 && runs_wide_attention<__nv_bfloat16, 128>();
}

Result<std::unique_ptr<KvStorage>> CudaBackend::make_kv_storage(const KvShape& shape) {
  const std::string obstacle = attention_obstacle(device_, shape, batch_invariant_);
  if (!obstacle.empty()) return fail(ErrorCode::unsupported, obstacle);
  const std::size_t state_bytes = chunk_state_bytes(device(), shape, batch_invariant_);
  if (state_bytes > 0 && chunk_states_ == nullptr) {
    BATON_TRY(chunk_states_, device_memory(state_bytes, "the states of chunks of attention"));
  }
  BATON_TRY(std::unique_ptr<KvStorage> storage, CudaKvStorage::make(device(), shape));
  return storage;
}

/// attention_blocks_ is the size of the persistent grid; all blocks are resident at once. If args.merge is set and the step
/// has partial states, a second launch merges them. In batch-invariant mode the plan must be one of that mode.
void CudaBackend::attention(const AttentionArgs& args) {
  const Device& device = this->device();
  const auto& kv = static_cast<const CudaKvStorage&>(*args.kv);
  const KvShape& shape = kv.shape();
  const KvLayout layout = kv.layout();
  const DType compute = shape.query_dtype();
  check(args.q.dtype == compute, "attention on CUDA: queries must have the cache's type, bf16 over e4m3");
  check(args.out.dtype == compute || args.out.dtype == DType::f32,
        "attention on CUDA: out must have the queries' type or be f32");
  const auto n_heads = static_cast<int>(args.q.shape[1]);
  check(!shape.has_values() || n_heads / shape.n_kv_heads <= kMaxGroup,
        "attention on CUDA: more than 64 query heads a KV head");
  check(args.scale > 0, "attention on CUDA: the scale must be positive");
  const float log2_e = 1.44269504f;
  const AttentionMergeArgs merging{args.out, args.partials, args.step, args.group, args.sinks};
  AttentionParams params = merge_params(merging);
  params.rows = reinterpret_cast<const TokenRow*>(args.rows.data);
  params.q = args.q.data;
  params.kv = kv.layer_data(args.layer);
  params.block_bytes = layout.block_bytes();
  params.tile_bytes = layout.tile_bytes();
  params.block_shift = std::countr_zero(static_cast<unsigned>(shape.block_len));
  params.n_kv_heads = shape.n_kv_heads;
  params.has_softcap = args.softcap > 0;
  params.score_scale = args.scale * shape.k_scale(args.layer) / (args.softcap > 0 ? args.softcap : 1);
  params.score_log2 = (args.softcap > 0 ? args.softcap : params.score_scale) * log2_e;
  params.v_scale = shape.v_scale(args.layer);
  params.chunk_states = chunk_states_;
  const LayerGroupHeader& group = args.step.group(args.group);
  const bool has_states = group.n_partials > 0;
  if (!shape.has_values()) {
    check(args.softcap == 0 && group.tile_kind == 0, "attention on CUDA: a soft-cap or larger tiles over latent vectors");
    if (batch_invariant_)
      latent_invariant_attention(params, shape.dtype, shape.latent_dim, chunk_states_, device);
    else
      find_latent_launch(shape)(params, device, device.n_multiprocessors);
    if (args.merge && has_states) cuda::attention_merge(device, merging, batch_invariant_);
    return;
  }
  const bool is_all_wide = group.tile_kind != 0;
  const WideLaunch launch_wide = (is_all_wide || group.n_larger_workers > 0) && has_wide_attention(device)
                                     ? find_wide_launch(shape.dtype, shape.head_dim, batch_invariant_)
                                     : nullptr;
  check(launch_wide != nullptr || group.n_larger_workers == 0, "attention on CUDA: workers for a kernel that the device lacks");
  params.has_both_kernels = launch_wide != nullptr && !is_all_wide;
  if (launch_wide != nullptr) launch_wide(params, device, wide_attention_blocks(attention_blocks_));
  if (launch_wide == nullptr || params.has_both_kernels)
    find_variant(shape.dtype, padded_head_dim(shape.head_dim), batch_invariant_).launch(params, device, attention_blocks_);
  if (args.merge && has_states) cuda::attention_merge(device, merging, batch_invariant_);
}

}  // namespace baton::cuda
