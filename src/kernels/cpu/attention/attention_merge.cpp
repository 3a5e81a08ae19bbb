/// Folds each row's partial states in the order of merge_inputs, one head after the other.
#include "kernels/cpu/backend.h"

#include <array>

#include "kernels/cpu/attention/attention_output.h"
#include "kernels/cpu/kv/kv_storage.h"

namespace baton::cpu {

/// The bits are the same for any number of threads and any instruction set.
void CpuBackend::attention_merge(const AttentionMergeArgs& args) {
  const auto offsets = args.step.span<std::int32_t>(SectionKind::merge_offsets, args.group);
  const auto inputs = args.step.span<std::int32_t>(SectionKind::merge_inputs, args.group);
  const std::int64_t n_heads = args.out.shape[1];
  const auto v_dim = static_cast<int>(args.out.shape[2]);
  check(v_dim <= kMaxLatentHeadDim, "attention_merge: values are larger than the largest");
  const auto* part_o = reinterpret_cast<const float*>(args.partials.o.data);
  const auto* part_m = reinterpret_cast<const float*>(args.partials.m.data);
  const auto* part_l = reinterpret_cast<const float*>(args.partials.l.data);
  const auto* sinks = reinterpret_cast<const float*>(args.sinks.data);
  parallel_.for_ranges(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, kMaxLatentHeadDim> o;
    for (std::int64_t row = begin; row < end; ++row) {
      const auto first = static_cast<std::size_t>(offsets[static_cast<std::size_t>(row)]);
      const auto last = static_cast<std::size_t>(offsets[static_cast<std::size_t>(row) + 1]);
      if (first == last) continue;
      for (std::int64_t head = 0; head < n_heads; ++head) {
        float m = kMinusInfinity;
        float l = 0;
        for (std::size_t i = first; i < last; ++i) {
          const std::int64_t part = inputs[i] * n_heads + head;
          fold_state({o.data(), &m, &l}, part_o + part * v_dim, part_m[part], part_l[part], v_dim);
        }
        write_output(args.out, row * n_heads + head, o.data(), m, l, v_dim, sinks == nullptr ? nullptr : sinks + head);
      }
    }
  });
}

}  // namespace baton::cpu
