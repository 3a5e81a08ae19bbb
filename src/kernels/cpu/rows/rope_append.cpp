/// Rotates each row's heads in f32 and rounds queries to q's dtype, keys and values to the storage's dtype. Dimensions
/// from rotary_dim on are copied.
#include "kernels/cpu/backend.h"

#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/kv/kv_storage.h"
#include "kernels/cpu/rows/head_math.h"

namespace baton::cpu {
void CpuBackend::rope_append(const RopeAppendArgs& args) {
  auto& kv = static_cast<CpuKvStorage&>(*args.kv);
  const auto kv_indices = args.step.span<std::int64_t>(SectionKind::kv_indices, args.group);
  const auto* rows = reinterpret_cast<const TokenRow*>(args.rows.data);
  const std::int64_t n_heads = args.q.shape[1];
  const std::int64_t n_kv_heads = kv.shape().n_kv_heads;
  const std::int64_t head_dim = args.q.shape[2];
  check(head_dim <= kMaxHeadDim, "rope_append: head_dim is over the largest");
  const std::int64_t q_width = n_heads * head_dim;
  const std::int64_t kv_width = n_kv_heads * head_dim;
  const bool has_rope = args.rope.cos.data != nullptr;
  const int half = has_rope ? static_cast<int>(args.rope.cos.shape[1]) : 0;
  const auto* cos = reinterpret_cast<const float*>(args.rope.cos.data);
  const auto* sin = reinterpret_cast<const float*>(args.rope.sin.data);
  const auto* q_factor = reinterpret_cast<const float*>(args.rope.q_factor.data);
  parallel_.for_ranges(args.q.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> qkv(static_cast<std::size_t>(q_width + 2 * kv_width));
    float* const q = qkv.data();
    float* const k = q + q_width;
    float* const v = k + kv_width;
    for (std::int64_t row = begin; row < end; ++row) {
      load_f32(args.qkv, row * (q_width + 2 * kv_width), q_width + 2 * kv_width, q);
      const auto normalize_both = [&] {
        normalize(q, q_width, args.q_norm.shape[0], args.q_norm, args.norm_eps);
        normalize(k, kv_width, args.k_norm.shape[0], args.k_norm, args.norm_eps);
      };
      if (args.q_norm.data != nullptr && !args.norms_rotated) normalize_both();
      if (has_rope) {
        const std::int64_t position = rows[row].position;
        check(position >= 0 && position < args.rope.cos.shape[0], "rope_append: a position beyond the table of angles");
        for (float* head = q; head < v; head += head_dim) rotate(head, cos + position * half, sin + position * half, half);
        if (args.norms_rotated) normalize_both();
        if (q_factor != nullptr)
          for (std::int64_t i = 0; i < q_width; ++i) q[i] *= q_factor[position];
      }
      store_f32(q, q_width, args.q, row * q_width);
      const std::int64_t kv_index = kv_indices[static_cast<std::size_t>(row)];
      if (kv_index == kNoKvIndex) continue;
      for (std::int64_t head = 0; head < n_kv_heads; ++head)
        kv.write_token(args.layer, static_cast<int>(head), kv_index, k + head * head_dim, v + head * head_dim);
    }
  });
}

}  // namespace baton::cpu
