/// Chooses the instantiation of the attention kernel and sets its parameters.
#include "kernels/cuda/attention.h"

#include <bit>
#include <optional>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <fmt/format.h>

#include "kernels/cuda/attention/invariant/invariant.h"
#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/attention/merge/merge.h"
#include "kernels/cuda/attention/wide/wide.h"
#include "kernels/cuda/kv/kv_layout.h"
#include "kernels/cuda/kv/kv_storage.h"

namespace baton::cuda {
namespace {

constexpr int kMaxGroup = 64;  // query heads of a KV head: a tile holds whole token rows

/// An instantiation of the kernel.
struct Variant {
  void (*launch)(const AttentionParams&, const Device&, int);
  int (*n_stages)(const Device&);
};

template <class T, int kDim, bool kFp8>
constexpr Variant variant() {
  return {launch_attention<T, kDim, kFp8>, attention_stages<T, kDim, kFp8>};
}
template <class T, int kDim>
constexpr Variant invariant() {
  return {launch_invariant_attention<T, kDim>, invariant_attention_stages<T, kDim>};
}

template <class T>
std::optional<Variant> find_invariant(int padded_dim) {
  if (padded_dim == 64) return invariant<T, 64>();
  if (padded_dim == 96) return invariant<T, 96>();
  if (padded_dim == 128) return invariant<T, 128>();
  if (padded_dim == 256) return invariant<T, 256>();
  return std::nullopt;
}

std::optional<Variant> find_variant(DType dtype, int padded_dim, bool batch_invariant) {
  if (batch_invariant) {
    if (dtype == DType::bf16) return find_invariant<__nv_bfloat16>(padded_dim);
    if (dtype == DType::f16) return find_invariant<__half>(padded_dim);
    return std::nullopt;
  }
  if (dtype == DType::bf16) {
    if (padded_dim == 64) return variant<__nv_bfloat16, 64, false>();
    if (padded_dim == 96) return variant<__nv_bfloat16, 96, false>();
    if (padded_dim == 128) return variant<__nv_bfloat16, 128, false>();
    if (padded_dim == 256) return variant<__nv_bfloat16, 256, false>();
  }
  if (dtype == DType::f16) {
    if (padded_dim == 64) return variant<__half, 64, false>();
    if (padded_dim == 96) return variant<__half, 96, false>();
    if (padded_dim == 128) return variant<__half, 128, false>();
    if (padded_dim == 256) return variant<__half, 256, false>();
  }
  if (dtype == DType::f8_e4m3) {
    if (padded_dim == 64) return variant<__nv_bfloat16, 64, true>();
    if (padded_dim == 128) return variant<__nv_bfloat16, 128, true>();
  }
  return std::nullopt;
}

using WideLaunch = void (*)(const AttentionParams&, const Device&, int);

template <class T, int kDim>
WideLaunch wide_launch(bool batch_invariant) {
  return batch_invariant ? launch_wide_invariant_attention<T, kDim> : launch_wide_attention<T, kDim>;
}

/// The wide kernel for these keys, or null.
WideLaunch find_wide_launch(DType dtype, int head_dim, bool batch_invariant) {
  if (dtype == DType::bf16) {
    if (head_dim == 64) return wide_launch<__nv_bfloat16, 64>(batch_invariant);
    if (head_dim == 128) return wide_launch<__nv_bfloat16, 128>(batch_invariant);
  }
  if (dtype == DType::f16) {
    if (head_dim == 64) return wide_launch<__half, 64>(batch_invariant);
    if (head_dim == 128) return wide_launch<__half, 128>(batch_invariant);
  }
  if (dtype == DType::f8_e4m3 && !batch_invariant) {
    if (head_dim == 64) return launch_wide_attention<__nv_bfloat16, 64, true>;
    if (head_dim == 128) return launch_wide_attention<__nv_bfloat16, 128, true>;
  }
  return nullptr;
}

}  // namespace

bool has_wide_attention(const Device& device) {
  return device.compute_capability == 90 && runs_wide_attention<__nv_bfloat16, 128>();
}

std::string attention_obstacle(const Device& device, const KvShape& kv, bool batch_invariant) {
  if (kv.head_dim % 8 != 0 || kv.head_dim < 8 || kv.head_dim > 256)
    return fmt::format("heads of {} on CUDA: they must be a multiple of 8 and at most 256", kv.head_dim);
  if (batch_invariant && kv.dtype == DType::f8_e4m3)
    return "a KV cache of float8_e4m3 with --batch-invariant on CUDA: only bfloat16 and float16 have it";
  const auto variant = find_variant(kv.dtype, padded_head_dim(kv.head_dim), batch_invariant);
  if (!variant)
    return fmt::format(
        "a KV cache of {} with heads of {} on CUDA: bfloat16 and float16 take heads of up to 256, float8_e4m3 up to 64 and "
        "from 104 to 128",
        to_string(kv.dtype), kv.head_dim);
  if (variant->n_stages(device) < 2)
    return fmt::format("heads of {} in {} need more shared memory a block than the {} KiB of {}", kv.head_dim,
                       to_string(kv.dtype), device.max_shared_bytes >> 10, device.name);
  return {};
}

void attention(const Device& device, int n_blocks, const AttentionArgs& args, bool batch_invariant) {
  const auto& kv = static_cast<const CudaKvStorage&>(*args.kv);
  const KvShape& shape = kv.shape();
  const KvLayout layout = kv.layout();
  const DType compute = shape.query_dtype();
  check(args.q.dtype == compute, "attention on CUDA: queries must have the cache's type, bf16 over e4m3");
  check(args.out.dtype == compute || args.out.dtype == DType::f32,
        "attention on CUDA: out must have the queries' type or be f32");
  const auto n_heads = static_cast<int>(args.q.shape[1]);
  check(n_heads / shape.n_kv_heads <= kMaxGroup, "attention on CUDA: more than 64 query heads a KV head");
  check(args.scale > 0, "attention on CUDA: the scale must be positive");
  const float log2_e = 1.44269504f;
  const AttentionMergeArgs merging{args.out, args.partials, args.step, args.group};
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
  const LayerGroupHeader& group = args.step.group(args.group);
  const bool is_all_wide = group.has_wide_tiles != 0;
  const WideLaunch launch_wide = (is_all_wide || group.n_wide_workers > 0) && has_wide_attention(device)
                                     ? find_wide_launch(shape.dtype, shape.head_dim, batch_invariant)
                                     : nullptr;
  check(launch_wide != nullptr || group.n_wide_workers == 0, "attention on CUDA: workers for a kernel that the device lacks");
  params.has_both_kernels = launch_wide != nullptr && !is_all_wide;
  if (launch_wide != nullptr) launch_wide(params, device, wide_attention_blocks(n_blocks));
  if (launch_wide == nullptr || params.has_both_kernels)
    find_variant(shape.dtype, padded_head_dim(shape.head_dim), batch_invariant)->launch(params, device, n_blocks);
  const bool has_states = group.n_partials > 0;
  if (args.merge && has_states) cuda::attention_merge(device, merging, batch_invariant);
}

}  // namespace baton::cuda
