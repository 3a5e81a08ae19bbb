/// The short convolution of recurrent layers on a CUDA device: a thread computes four channels of some rows in turn.
#include "kernels/cuda/states/states.h"

#include <cstdint>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/runs.cuh"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 160;
/// Blocks of a multiprocessor whose registers fit: so many that the loads of one wait while others compute.
constexpr int kResidents = 6;
constexpr int kResidentsOfMany = 3;  ///< with gates or many taps
/// Channels of a thread: 16 bytes of a state.
constexpr int kDims = 4;
/// Rows of a strip: many more than inputs that the first of them needs from before.
constexpr int kStripRows = 16;

struct ShortConvParams {
  const std::byte* step;
  const void* x;
  DType x_dtype;
  std::int64_t x_columns;
  std::int64_t first;
  bool x_is_aligned;  ///< all quads that are read
  bool weight_is_aligned;
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

using Quad = float[kDims];

/// Loads four numbers at an index, which is a multiple of four if `is_aligned`.
__device__ __forceinline__ void load_quad(const void* from, DType dtype, std::int64_t index, bool is_aligned, Quad& to) {
  if (!is_aligned) {
#pragma unroll
    for (int c = 0; c < kDims; ++c) to[c] = load(from, dtype, index + c);
    return;
  }
  switch (dtype) {
    case DType::bf16: return load_f32(static_cast<const __nv_bfloat16*>(from) + index, to);
    case DType::f16: return load_f32(static_cast<const __half*>(from) + index, to);
    default: return load_f32(static_cast<const float*>(from) + index, to);
  }
}
__device__ __forceinline__ void store_quad(void* to, DType dtype, std::int64_t index, const Quad& from) {
  switch (dtype) {
    case DType::bf16: return store_f32(from, static_cast<__nv_bfloat16*>(to) + index);
    case DType::f16: return store_f32(from, static_cast<__half*>(to) + index);
    default: return store_f32(from, static_cast<float*>(to) + index);
  }
}

/// The weights of a thread's channels, the last tap last. Taps that the layer lacks are the first.
template <int kTaps>
__device__ __forceinline__ void load_weights(const ShortConvParams& p, int channel, Quad (&weights)[kTaps]) {
  const int n_absent = kTaps - p.n_taps;
  const float* const from = p.weight + static_cast<std::int64_t>(channel) * p.n_taps;
#pragma unroll
  for (int c = 0; c < kDims; ++c) {
    float of_channel[kTaps];
    if (kTaps == kDims && n_absent == 0 && p.weight_is_aligned) {
      load_f32(from + c * kTaps, of_channel);
    } else {
#pragma unroll
      for (int j = 0; j < kTaps; ++j) of_channel[j] = j < n_absent ? 0 : from[c * p.n_taps + j - n_absent];
    }
#pragma unroll
    for (int j = 0; j < kTaps; ++j) weights[j][c] = of_channel[j];
  }
}

/// The strips of all runs.
class Strips {
 public:
  /// All threads of a block call it.
  __device__ __forceinline__ explicit Strips(const std::byte* step) : runs_(runs_of(step)) {
    bool are_short = true;
    for (int i = static_cast<int>(threadIdx.x); i < runs_.n; i += kThreads) are_short = are_short && of(runs_.first[i]) == 1;
    are_short_ = __syncthreads_and(are_short) != 0;
  }
  /// Run -1: there are fewer strips. All lanes of a warp call it.
  __device__ __forceinline__ RunPart find(int index) const {
    if (are_short_) return {index < runs_.n ? index : -1, 0};
    return find_part(runs_, index, [](const StateRun& run) { return of(run); });
  }
  __device__ __forceinline__ const StateRun& run(int index) const { return runs_.first[index]; }

 private:
  static __device__ __forceinline__ int of(const StateRun& run) { return max(1, (run.n_rows + kStripRows - 1) / kStripRows); }
  Runs runs_;
  bool are_short_;  ///< so that each run is a strip
};

/// The inputs of a thread's channels in a run.
template <ConvKind kKind>
struct InputsOfRun {
  const ShortConvParams& p;
  const StateRun& run;
  int channel;

  /// Input `age` rows before the first of the run.
  __device__ __forceinline__ void load_kept(int age, Quad& to) const {
    const int j = p.n_taps - 1 - (age - run.n_replayed);
    if (age <= run.n_replayed) {
      load_f32(p.kept.first + (run.first_replayed + run.n_replayed - age) * p.kept.stride + channel, to);
    } else if (run.read_slot == StateRun::kZeroState || j < 0) {
#pragma unroll
      for (int c = 0; c < kDims; ++c) to[c] = 0;
    } else {
      load_f32(p.conv + run.read_slot * p.slot_stride + static_cast<std::int64_t>(j) * p.n_channels + channel, to);
    }
  }
  /// Columns of x in one of its parts, n columns each.
  __device__ __forceinline__ void load_part(int row, int part, Quad& to) const {
    const std::int64_t column = p.first + static_cast<std::int64_t>(part) * p.n_channels + channel;
    load_quad(p.x, p.x_dtype, (run.first_row + row) * p.x_columns + column, p.x_is_aligned, to);
  }
  __device__ __forceinline__ void load_x(int row, Quad& to) const {
    load_part(row, 0, to);
    if constexpr (kKind == ConvKind::gated) {
      Quad gate;
      load_part(row, 2, gate);
#pragma unroll
      for (int c = 0; c < kDims; ++c) to[c] *= gate[c];
    }
  }
  /// Those before row `begin`, the first of a strip.
  template <int kKept>
  __device__ __forceinline__ void load_before(int begin, Quad (&to)[kKept]) const {
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      if (begin == 0)
        load_kept(kKept - j, to[j]);
      else
        load_x(begin - kKept + j, to[j]);
    }
  }
};

/// Computes a strip. `inputs` are those before it. The first strip of a run writes its state, because it reads the old one, which
/// may lie in the same place.
template <int kTaps, ConvKind kKind>
__device__ __forceinline__ void convolve_strip(const ShortConvParams& p, const InputsOfRun<kKind>& of, int begin,
                                               const Quad (&weights)[kTaps], const Quad& bias,
                                               const Quad (&before)[kTaps - 1]) {
  constexpr int kKept = kTaps - 1;
  const StateRun& run = of.run;
  const int n_absent = kTaps - p.n_taps;
  const int end = min(begin + kStripRows, run.n_rows);
  const int n_written = run.n_written();
  Quad inputs[kTaps];  // the last is the current row's
#pragma unroll
  for (int j = 0; j < kKept; ++j)
#pragma unroll
    for (int c = 0; c < kDims; ++c) inputs[j][c] = before[j][c];
#pragma unroll 4
  for (int row = begin; row < end; ++row) {
    of.load_x(row, inputs[kTaps - 1]);
    Quad y;
#pragma unroll
    for (int c = 0; c < kDims; ++c) y[c] = bias[c];
#pragma unroll
    for (int j = 0; j < kTaps; ++j)
      if (j >= n_absent) {
#pragma unroll
        for (int c = 0; c < kDims; ++c) y[c] = fmaf(weights[j][c], inputs[j][c], y[c]);
      }
    Quad gate;
    if constexpr (kKind == ConvKind::gated) of.load_part(row, 1, gate);
#pragma unroll
    for (int c = 0; c < kDims; ++c) y[c] = kKind == ConvKind::gated ? y[c] * gate[c] : y[c] / (1.0f + expf(-y[c]));
    store_quad(p.out, p.out_dtype, static_cast<std::int64_t>(run.first_row + row) * p.n_channels + of.channel, y);
    if (row >= n_written) {
      float* const kept = p.kept.first + (run.first_kept + row - n_written) * p.kept.stride;
      store_quad(kept, DType::f32, of.channel, inputs[kTaps - 1]);
      if (p.keeps_outputs) store_quad(kept + p.kept.output, p.out_dtype, of.channel, y);
    }
#pragma unroll
    for (int j = 0; j < kKept; ++j)
#pragma unroll
      for (int c = 0; c < kDims; ++c) inputs[j][c] = inputs[j + 1][c];
  }
  if (begin != 0) return;
  if (run.n_rows > kStripRows || run.n_drafts > 0) {
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const int row = n_written - kKept + j;
      if (row >= 0)
        of.load_x(row, inputs[j]);
      else
        of.load_kept(-row, inputs[j]);
    }
  }
  float* const to = p.conv + run.write_slot * p.slot_stride + of.channel;
#pragma unroll
  for (int j = 0; j < kKept; ++j)
    if (j >= n_absent) store_f32(inputs[j], to + static_cast<std::int64_t>(j - n_absent) * p.n_channels);
}

/// For at most kTaps taps. Grid: [parts of the channels, strips].
template <int kTaps, ConvKind kKind>
__global__ void __launch_bounds__(kThreads, kTaps <= 4 && kKind == ConvKind::silu ? kResidents : kResidentsOfMany)
    short_conv_kernel(const __grid_constant__ ShortConvParams p) {
  let_next_kernel_start();
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kDims;
  const bool has_channels = channel < p.n_channels;
  Quad weights[kTaps];
  Quad bias = {};
  if (has_channels) load_weights(p, channel, weights);
  if (has_channels && p.bias != nullptr) load_f32(p.bias + channel, bias);
  const Strips strips(p.step);
  const RunPart part = strips.find(static_cast<int>(blockIdx.y));
  if (part.run < 0 || !has_channels) return wait_for_kernel_before();
  const InputsOfRun<kKind> inputs{p, strips.run(part.run), channel};
  const int begin = part.part * kStripRows;
  if (begin > 0) wait_for_kernel_before();
  Quad before[kTaps - 1];
  inputs.load_before(begin, before);
  wait_for_kernel_before();
  convolve_strip<kTaps>(p, inputs, begin, weights, bias, before);
}

}  // namespace

void short_conv(const Device& device, const ShortConvArgs& args) {
  const auto& states = static_cast<const CudaStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const std::int64_t n_strips = most_runs(args.state, is_capturing(device)) + args.state.step.header->n_rows / kStripRows;
  if (n_strips == 0 || shape.n_channels == 0) return;
  const int n_taps = shape.conv_len + 1;
  const ShortConvParams params{
      .step = args.state.step.data,
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .x_columns = args.x.shape[1],
      .first = args.first,
      .x_is_aligned = args.x.shape[1] % kDims == 0 && args.first % kDims == 0 && is_aligned(args.x.data, 16),
      .weight_is_aligned = is_aligned(args.weight.data, 16),
      .weight = reinterpret_cast<const float*>(args.weight.data),
      .bias = reinterpret_cast<const float*>(args.bias.data),
      .conv = states.conv(args.state.layer),
      .slot_stride = states.slot_stride(),
      .kept = states.kept(args.state.layer),
      .keeps_outputs = shape.n_heads > 0,
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .n_channels = shape.n_channels,
      .n_taps = n_taps};
  check(is_aligned(args.out.data, 16), "short_conv: out must be aligned to 16 bytes");
  const auto of_kind = [&]<ConvKind kKind>() {
    return n_taps <= 4 ? short_conv_kernel<4, kKind> : short_conv_kernel<kMaxConvTaps, kKind>;
  };
  auto* kernel = args.kind == ConvKind::gated ? of_kind.template operator()<ConvKind::gated>()
                                              : of_kind.template operator()<ConvKind::silu>();
  prefer_shared_memory(kernel);
  constexpr int kChannels = kThreads * kDims;
  const dim3 grid(static_cast<unsigned>((shape.n_channels + kChannels - 1) / kChannels), static_cast<unsigned>(n_strips));
  launch_overlapped(device, kernel, grid, kThreads, 0, "short_conv", params);
}

}  // namespace baton::cuda
