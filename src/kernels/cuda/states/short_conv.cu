/// The short convolution of recurrent layers on a CUDA device: a thread computes eight channels of some rows in turn.
#include "kernels/cuda/states/states.h"

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
/// Rows of a block: many more than inputs that the first of them needs from before.
constexpr int kStripRows = 16;

struct ShortConvParams {
  const std::byte* step;
  const void* x;
  DType x_dtype;
  std::int64_t x_columns;
  std::int64_t first;
  bool x_is_aligned;  ///< all chunks that are read
  const float* weight;
  const float* bias;  ///< or null
  float* conv;        ///< of slot 0
  std::int64_t slot_stride;
  KeptRowsOfLayer kept;
  bool keeps_outputs;
  void* out;
  DType out_dtype;
  int n_channels;
  int n_taps;
};

__device__ __forceinline__ int strips_of(const StateRun& run) { return max(1, (run.n_rows + kStripRows - 1) / kStripRows); }

/// For at most kTaps taps, which are the last of kTaps. The first strip of a run writes its state, because it reads the old one,
/// which may lie in the same place.
template <int kTaps, ConvKind kKind>
__global__ void __launch_bounds__(kThreads) short_conv_kernel(const __grid_constant__ ShortConvParams p) {
  using Channels = float[kChunkDims];
  constexpr int kKept = kTaps - 1;
  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  const RunPart found = find_part(runs, static_cast<int>(blockIdx.y), strips_of);
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kChunkDims;
  if (found.run < 0 || channel >= p.n_channels) return wait_for_kernel_before();
  const StateRun run = runs.first[found.run];
  const int n_absent = kTaps - p.n_taps;
  Channels weights[kTaps];
#pragma unroll
  for (int j = 0; j < kTaps; ++j)
#pragma unroll
    for (int c = 0; c < kChunkDims; ++c)
      weights[j][c] = j < n_absent ? 0 : p.weight[static_cast<std::int64_t>(channel + c) * p.n_taps + j - n_absent];
  /// Input `age` rows before the first of the run.
  const auto load_kept = [&](int age, Channels& to) {
    const int j = p.n_taps - 1 - (age - run.n_replayed);
    if (age <= run.n_replayed) {
      load_chunk(p.kept.first + (run.first_replayed + run.n_replayed - age) * p.kept.stride + channel, DType::f32, 0, to);
    } else if (run.read_slot == StateRun::kZeroState || j < 0) {
#pragma unroll
      for (int c = 0; c < kChunkDims; ++c) to[c] = 0;
    } else {
      load_chunk(p.conv + run.read_slot * p.slot_stride + static_cast<std::int64_t>(j) * p.n_channels + channel, DType::f32, 0,
                 to);
    }
  };
  Channels bias = {};
  if (p.bias != nullptr) load_chunk(p.bias, DType::f32, channel, bias);
  /// Columns of x in one of its parts, n columns each.
  const auto load_part = [&](int row, int part, Channels& to) {
    const std::int64_t column = p.first + static_cast<std::int64_t>(part) * p.n_channels + channel;
    load_some(p.x, p.x_dtype, (run.first_row + row) * p.x_columns + column, kChunkDims, p.x_is_aligned, to);
  };
  const auto load_x = [&](int row, Channels& to) {
    load_part(row, 0, to);
    if constexpr (kKind == ConvKind::gated) {
      Channels gate;
      load_part(row, 2, gate);
#pragma unroll
      for (int c = 0; c < kChunkDims; ++c) to[c] *= gate[c];
    }
  };
  const int begin = found.part * kStripRows;
  const int end = min(begin + kStripRows, run.n_rows);
  const int n_written = run.n_written();
  Channels inputs[kTaps];  // the last is the current row's
  if (begin == 0) {
#pragma unroll
    for (int j = 0; j < kKept; ++j) load_kept(kKept - j, inputs[j]);
    wait_for_kernel_before();
  } else {
    wait_for_kernel_before();
#pragma unroll
    for (int j = 0; j < kKept; ++j) load_x(begin - kKept + j, inputs[j]);
  }
#pragma unroll 4
  for (int row = begin; row < end; ++row) {
    load_x(row, inputs[kTaps - 1]);
    Channels y;
#pragma unroll
    for (int c = 0; c < kChunkDims; ++c) y[c] = bias[c];
#pragma unroll
    for (int j = 0; j < kTaps; ++j)
      if (j >= n_absent) {
#pragma unroll
        for (int c = 0; c < kChunkDims; ++c) y[c] = fmaf(weights[j][c], inputs[j][c], y[c]);
      }
    Channels gate;
    if constexpr (kKind == ConvKind::gated) load_part(row, 1, gate);
#pragma unroll
    for (int c = 0; c < kChunkDims; ++c) y[c] = kKind == ConvKind::gated ? y[c] * gate[c] : y[c] / (1.0f + expf(-y[c]));
    store_chunk(p.out, p.out_dtype, static_cast<std::int64_t>(run.first_row + row) * p.n_channels + channel, y);
    if (row >= n_written) {
      float* const kept = p.kept.first + (run.first_kept + row - n_written) * p.kept.stride;
      store_chunk(kept, DType::f32, channel, inputs[kTaps - 1]);
      if (p.keeps_outputs) store_chunk(kept + p.kept.output, p.out_dtype, channel, y);
    }
#pragma unroll
    for (int j = 0; j < kKept; ++j)
#pragma unroll
      for (int c = 0; c < kChunkDims; ++c) inputs[j][c] = inputs[j + 1][c];
  }
  if (begin != 0) return;
  if (run.n_rows > kStripRows || run.n_drafts > 0) {
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const int row = n_written - kKept + j;
      if (row >= 0)
        load_x(row, inputs[j]);
      else
        load_kept(-row, inputs[j]);
    }
  }
  float* const to = p.conv + run.write_slot * p.slot_stride + channel;
#pragma unroll
  for (int j = 0; j < kKept; ++j)
    if (j >= n_absent) store_chunk(to + static_cast<std::int64_t>(j - n_absent) * p.n_channels, DType::f32, 0, inputs[j]);
}

}  // namespace

void short_conv(const Device& device, const ShortConvArgs& args) {
  const auto& states = static_cast<const CudaStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const std::int64_t n_strips = most_runs(args.state, is_capturing(device)) + args.state.step.header->n_rows / kStripRows;
  if (n_strips == 0 || shape.n_channels == 0) return;
  const ShortConvParams params{
      .step = args.state.step.data,
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .x_columns = args.x.shape[1],
      .first = args.first,
      .x_is_aligned = args.x.shape[1] % kChunkDims == 0 && args.first % kChunkDims == 0 && is_aligned(args.x.data, 16),
      .weight = reinterpret_cast<const float*>(args.weight.data),
      .bias = reinterpret_cast<const float*>(args.bias.data),
      .conv = states.conv(args.state.layer),
      .slot_stride = states.slot_stride(),
      .kept = states.kept(args.state.layer),
      .keeps_outputs = shape.n_heads > 0,
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .n_channels = shape.n_channels,
      .n_taps = shape.conv_len + 1};
  check(is_aligned(args.out.data, 16), "short_conv: out must be aligned to 16 bytes");
  constexpr int kChannels = kThreads * kChunkDims;
  const dim3 grid(static_cast<unsigned>((shape.n_channels + kChannels - 1) / kChannels), static_cast<unsigned>(n_strips));
  const auto of_kind = [&]<ConvKind kKind>() {
    return params.n_taps <= 4 ? short_conv_kernel<4, kKind> : short_conv_kernel<kMaxConvTaps, kKind>;
  };
  auto* kernel = args.kind == ConvKind::gated ? of_kind.template operator()<ConvKind::gated>()
                                              : of_kind.template operator()<ConvKind::silu>();
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, grid, kThreads, 0, "short_conv", params);
}

}  // namespace baton::cuda
