/// The operations before and after the layers on the CPU: rows resolved with the slot table, token embedding,
/// selection of rows for logits.
#include "kernels/cpu/backend.h"

#include <cstring>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/row_math.h"

namespace baton::cpu {

void CpuBackend::resolve_rows(const ResolveRowsArgs& args) {
  auto* slots = reinterpret_cast<SlotState*>(args.slots.data);
  const std::int64_t n_slots = args.slots.shape[0];
  for (const std::int32_t slot : args.step.span<std::int32_t>(SectionKind::reset_slots)) {
    check(slot >= 0 && slot < n_slots, "resolve_rows: a slot outside the table is reset");
    slots[slot] = {};
  }
  const auto rows = args.step.span<TokenRow>(SectionKind::rows);
  const auto token_ids = args.step.span<std::int32_t>(SectionKind::token_ids);
  auto out_ids = args.token_ids.elements<std::int32_t>();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    check(rows[r].slot >= 0 && rows[r].slot < n_slots, "resolve_rows: a row of a slot outside the table");
    out_ids[r] = token_ids[r] == kLastTokenOfSlot ? slots[rows[r].slot].last_token : token_ids[r];
  }
  for (int group = 0; group < args.step.header->n_groups; ++group) {
    const auto planned = args.step.span<TokenRow>(SectionKind::rows, group);
    auto* resolved = reinterpret_cast<TokenRow*>(args.rows.data) + group * args.rows.shape[1];
    for (std::size_t r = 0; r < planned.size(); ++r) {
      resolved[r] = planned[r];
      if (slots[planned[r].slot].finished != 0) resolved[r].kv_hi = resolved[r].kv_lo;
    }
  }
}

void CpuBackend::embedding(const EmbeddingArgs& args) {
  const std::int64_t d = args.table.shape[1];
  const auto ids = args.token_ids.elements<std::int32_t>();
  parallel_.for_ranges(args.token_ids.shape[0], 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int32_t id = ids[static_cast<std::size_t>(r)];
      check(id >= 0 && id < args.table.shape[0], "embedding: a token id outside the vocabulary");
      float* const out = args.out.elements<float>().data() + r * d;
      load_f32(args.table, id * d, d, out);
      if (args.scale != 1) scale_and_cap(out, args.scale, 0, d);
    }
  });
}

void CpuBackend::gather_rows(const GatherRowsArgs& args) {
  const std::size_t row_bytes = static_cast<std::size_t>(args.in.shape[1]) * size_bytes(args.in.dtype);
  std::byte* out = args.out.data;
  for (const SamplingMetadata& sampling : args.step.span<SamplingMetadata>(SectionKind::samples)) {
    check(sampling.row >= 0 && sampling.row < args.in.shape[0], "gather_rows: a sample of a row outside the step");
    std::memcpy(out, args.in.data + static_cast<std::size_t>(sampling.row) * row_bytes, row_bytes);
    out += row_bytes;
  }
}

}  // namespace baton::cpu
