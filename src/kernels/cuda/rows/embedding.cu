/// The operations before and after the layers on a CUDA device: rows resolved with the slot table, token embedding,
/// selection of rows for logits.
#include "kernels/cuda/rows/rows.h"

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/step_sections.cuh"

namespace baton::cuda {
namespace {

constexpr int kResolveThreads = 1024;
constexpr int kCopyThreads = 256;
/// Bytes that one thread copies in one access.
constexpr int kCopyBytes = 16;

struct ResolveParams {
  const std::byte* step;
  SlotState* slots;
  std::int32_t* token_ids;
  TokenRow* rows;  ///< [n_groups, n_rows]
  std::int32_t n_groups;
  std::int32_t n_slots;
  std::int32_t n_rows;
};

/// Runs as one block, because every row waits until the slots are reset.
__global__ void __launch_bounds__(kResolveThreads) resolve_rows_kernel(const ResolveParams params) {
  const StepHeader& header = step_header(params.step);
  const Section& resets = header.section(SectionKind::reset_slots);
  const auto* reset_slots = section<std::int32_t>(params.step, resets);
  for (int i = static_cast<int>(threadIdx.x); i < resets.count; i += kResolveThreads) {
    if (reset_slots[i] < 0 || reset_slots[i] >= params.n_slots) __trap();
    params.slots[reset_slots[i]] = SlotState{0, 0, 0, 0};
  }
  __syncthreads();
  const auto* token_ids = section<std::int32_t>(params.step, header.section(SectionKind::token_ids));
  const auto* first_rows = section<TokenRow>(params.step, group_header(params.step, 0).section(SectionKind::rows));
  for (int r = static_cast<int>(threadIdx.x); r < params.n_rows; r += kResolveThreads) {
    const bool exists = r < header.n_rows;
    const std::int32_t slot = exists ? first_rows[r].slot : 0;
    if (slot < 0 || slot >= params.n_slots) __trap();
    const std::int32_t token = exists ? token_ids[r] : 0;
    params.token_ids[r] = token == kLastTokenOfSlot ? params.slots[slot].last_token : token;
    for (int group = 0; group < params.n_groups; ++group) {
      const Section& rows = group_header(params.step, group).section(SectionKind::rows);
      TokenRow row = exists ? section<TokenRow>(params.step, rows)[r] : TokenRow{0, 0, 0, 0};
      if (row.slot < 0 || row.slot >= params.n_slots) __trap();
      if (params.slots[row.slot].finished != 0) row.kv_hi = row.kv_lo;
      params.rows[static_cast<std::int64_t>(group) * params.n_rows + r] = row;
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kCopyThreads) embedding_kernel(float* out, const T* table, const std::int32_t* token_ids,
                                                                 std::int64_t n_vocab, std::int64_t d, float scale) {
  const std::int64_t id = token_ids[blockIdx.x];
  if (id < 0 || id >= n_vocab) __trap();
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * N; i < d; i += kCopyThreads * N) {
    float values[N];
    load_f32(table + id * d + i, values);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= scale;
    store_f32(values, out + blockIdx.x * d + i);
  }
}

/// `Unit` is the type in which a row's bytes are copied.
template <class Unit>
__global__ void __launch_bounds__(kCopyThreads)
    gather_rows_kernel(Unit* out, const Unit* in, const std::byte* step, std::int64_t n_rows, std::int64_t units_per_row) {
  const Section& samples = step_header(step).section(SectionKind::samples);
  if (static_cast<std::int32_t>(blockIdx.x) >= samples.count) return;
  const std::int32_t row = section<SamplingMetadata>(step, samples)[blockIdx.x].row;
  if (row < 0 || row >= n_rows) __trap();
  for (std::int64_t i = threadIdx.x; i < units_per_row; i += kCopyThreads)
    out[blockIdx.x * units_per_row + i] = in[row * units_per_row + i];
}

}  // namespace

void resolve_rows(const Device& device, const ResolveRowsArgs& args) {
  const StepHeader& header = *args.step.header;
  ResolveParams params{};
  params.step = args.step.data;
  params.slots = reinterpret_cast<SlotState*>(args.slots.data);
  params.token_ids = reinterpret_cast<std::int32_t*>(args.token_ids.data);
  params.rows = reinterpret_cast<TokenRow*>(args.rows.data);
  params.n_groups = header.n_groups;
  params.n_slots = static_cast<std::int32_t>(args.slots.shape[0]);
  params.n_rows = header.n_rows;
  resolve_rows_kernel<<<1, kResolveThreads, 0, device.stream>>>(params);
  check_launch("resolve_rows");
}

void embedding(const Device& device, const EmbeddingArgs& args) {
  const auto n_rows = static_cast<unsigned>(args.token_ids.shape[0]);
  const std::int64_t d = args.table.shape[1];
  if (n_rows == 0 || d == 0) return;
  visit_element(args.table.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto* kernel) {
      kernel<<<n_rows, kCopyThreads, 0, device.stream>>>(
          reinterpret_cast<float*>(args.out.data), reinterpret_cast<const T*>(args.table.data),
          reinterpret_cast<const std::int32_t*>(args.token_ids.data), args.table.shape[0], d, args.scale);
    };
    run(rows_are_aligned(d, args.out, args.table) ? embedding_kernel<T, kElementsAtOnce> : embedding_kernel<T, 1>);
  });
  check_launch("embedding");
}

void gather_rows(const Device& device, const GatherRowsArgs& args) {
  const auto n_samples = static_cast<unsigned>(args.out.shape[0]);
  const std::int64_t row_bytes = args.in.shape[1] * static_cast<std::int64_t>(size_bytes(args.in.dtype));
  if (n_samples == 0 || row_bytes == 0) return;
  const auto run = [&]<class Unit>(Unit) {
    gather_rows_kernel<Unit><<<n_samples, kCopyThreads, 0, device.stream>>>(
        reinterpret_cast<Unit*>(args.out.data), reinterpret_cast<const Unit*>(args.in.data), args.step.data, args.in.shape[0],
        row_bytes / static_cast<std::int64_t>(sizeof(Unit)));
  };
  const auto places = reinterpret_cast<std::uintptr_t>(args.out.data) | reinterpret_cast<std::uintptr_t>(args.in.data);
  if (row_bytes % kCopyBytes == 0 && places % kCopyBytes == 0)
    run(uint4{});
  else
    run(std::uint8_t{});
  check_launch("gather_rows");
}

}  // namespace baton::cuda
