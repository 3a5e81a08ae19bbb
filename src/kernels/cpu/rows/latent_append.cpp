/// The keys and rotated queries of multi-head latent attention: in f32, rounded once.
#include "kernels/cpu/backend.h"

#include <vector>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/kv/kv_storage.h"
#include "kernels/cpu/rows/head_math.h"

namespace baton::cpu {
void CpuBackend::latent_append(const LatentAppendArgs& args) {
  auto& kv = static_cast<CpuKvStorage&>(*args.kv);
  const auto kv_indices = args.step.span<std::int64_t>(SectionKind::kv_indices, args.group);
  const auto* rows = reinterpret_cast<const TokenRow*>(args.rows.data);
  const auto* q_factor = reinterpret_cast<const float*>(args.rope.q_factor.data);
  const std::int64_t n_heads = args.q.shape[1];
  const std::int64_t head_dim = kv.shape().head_dim;
  const std::int64_t latent_dim = kv.shape().latent_dim;
  const auto half = static_cast<int>(args.rope.cos.shape[1]);
  parallel_.for_ranges(args.q.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> key(static_cast<std::size_t>(head_dim));
    std::vector<float> query(static_cast<std::size_t>(head_dim));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = rows[row].position;
      check(position >= 0 && position < args.rope.cos.shape[0], "latent_append: a position beyond the table of angles");
      const float* cos = args.rope.cos.elements<float>().data() + position * half;
      const float* sin = args.rope.sin.elements<float>().data() + position * half;
      for (std::int64_t h = 0; h < n_heads; ++h) {
        const std::int64_t at = (row * n_heads + h) * head_dim;
        float* const rotated = query.data() + latent_dim;
        load_f32(args.x, row * args.x.shape[1] + h * args.x_stride + args.x_first, head_dim - latent_dim, rotated);
        rotate(rotated, cos, sin, half, args.pairs_are_neighbours);
        if (q_factor == nullptr) {
          store_f32(rotated, head_dim - latent_dim, args.q, at + latent_dim);
          continue;
        }
        load_f32(args.q, at, latent_dim, query.data());
        for (float& x : query) x *= q_factor[position];
        store_f32(query.data(), head_dim, args.q, at);
      }
      const std::int64_t kv_index = kv_indices[static_cast<std::size_t>(row)];
      if (kv_index == kNoKvIndex) continue;
      load_f32(args.compressed, row * args.compressed.shape[1] + args.first, head_dim, key.data());
      normalize(key.data(), latent_dim, latent_dim, args.norm, args.norm_eps);
      rotate(key.data() + latent_dim, cos, sin, half, args.pairs_are_neighbours);
      kv.write_token(args.layer, 0, kv_index, key.data(), key.data());
    }
  });
}

}  // namespace baton::cpu
