/// Rotates each row's heads in f32 and rounds queries to q's dtype, keys and values to the storage's dtype.
#include "kernels/cpu/rope_append.h"

#include <array>

#include "kernels/cpu/kv_storage.h"

namespace baton::cpu {
namespace {

/// Loads the head at `from` as f32 and rotates it by the angles of one position.
template <class T>
void rotate(const T* from, const float* cos, const float* sin, int half, int head_dim, float* to) {
  for (int i = 0; i < half; ++i) {
    const auto a = static_cast<float>(from[i]);
    const auto b = static_cast<float>(from[i + half]);
    to[i] = a * cos[i] - b * sin[i];
    to[i + half] = b * cos[i] + a * sin[i];
  }
  for (int i = 2 * half; i < head_dim; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

void rope_append(const Parallel& parallel, const RopeAppendArgs& args) {
  auto& kv = static_cast<CpuKvStorage&>(*args.kv);
  const auto kv_indices = args.step.span<std::int64_t>(SectionKind::kv_indices, args.group);
  const auto* rows = reinterpret_cast<const TokenRow*>(args.rows.data);
  const std::int64_t n_heads = args.q.shape[1];
  const std::int64_t n_kv_heads = kv.shape().n_kv_heads;
  const auto head_dim = static_cast<int>(args.q.shape[2]);
  check(head_dim <= kMaxHeadDim, "rope_append: head_dim is over the largest");
  const auto half = static_cast<int>(args.rope.cos.shape[1]);
  const auto cos = args.rope.cos.elements<float>();
  const auto sin = args.rope.sin.elements<float>();
  parallel.for_ranges(args.q.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    visit_float(args.qkv.dtype, [&]<class In>(In) {
      visit_float(args.q.dtype, [&]<class Out>(Out) {
        std::array<float, kMaxHeadDim> key;
        std::array<float, kMaxHeadDim> value;
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t position = rows[row].position;
          check(position >= 0 && position < args.rope.cos.shape[0], "rope_append: a position beyond the table of angles");
          const float* row_cos = cos.data() + position * half;
          const float* row_sin = sin.data() + position * half;
          const In* from = reinterpret_cast<const In*>(args.qkv.data) + row * (n_heads + 2 * n_kv_heads) * head_dim;
          Out* to = reinterpret_cast<Out*>(args.q.data) + row * n_heads * head_dim;
          for (std::int64_t head = 0; head < n_heads; ++head) {
            rotate(from + head * head_dim, row_cos, row_sin, half, head_dim, key.data());
            for (int i = 0; i < head_dim; ++i) to[head * head_dim + i] = Out(key[static_cast<std::size_t>(i)]);
          }
          const std::int64_t kv_index = kv_indices[static_cast<std::size_t>(row)];
          if (kv_index == kNoKvIndex) continue;
          for (std::int64_t head = 0; head < n_kv_heads; ++head) {
            rotate(from + (n_heads + head) * head_dim, row_cos, row_sin, half, head_dim, key.data());
            const In* v = from + (n_heads + n_kv_heads + head) * head_dim;
            for (int i = 0; i < head_dim; ++i) value[static_cast<std::size_t>(i)] = static_cast<float>(v[i]);
            kv.write_token(args.layer, static_cast<int>(head), kv_index, key.data(), value.data());
          }
        }
      });
    });
  });
}

}  // namespace baton::cpu
