/// The weighted sums of what the experts of rows computed.
#include "kernels/cuda/experts/experts.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"

namespace baton::cuda {
namespace {

constexpr int kCombineThreads = 256;
constexpr int kTermsAtOnce = 8;  ///< of a sum, whose loads are in flight together
constexpr int kBlocksAMultiprocessor = 4;

struct CombineParams {
  const void* in;
  const std::int32_t* places;
  const float* weights;
  const void* shared;        ///< of the dtype of `in`, or null
  const float* gate_logits;  ///< the first row's, or null
  std::int32_t gate_stride;
  std::int32_t n_chosen;
  std::int64_t d;
  void* out;
};

template <class In, class Out, int N>
__global__ void __launch_bounds__(kCombineThreads) combine_experts_kernel(const __grid_constant__ CombineParams p) {
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  wait_for_kernel_before();
  const std::int64_t row = blockIdx.x;
  const auto* const in = static_cast<const In*>(p.in);
  const auto* const shared = static_cast<const In*>(p.shared);
  const float gate_logit = p.gate_logits == nullptr ? 0 : p.gate_logits[row * p.gate_stride];
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kCombineThreads * N;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * kCombineThreads + threadIdx.x) * N; i < p.d; i += step) {
    float sum[N] = {};
    float of_shared[N] = {};
    if (shared != nullptr) load_f32(shared + row * p.d + i, of_shared);
    for (int first = 0; first < p.n_chosen; first += kTermsAtOnce) {
      std::int64_t places[kTermsAtOnce];
      float weights[kTermsAtOnce];
      float terms[kTermsAtOnce][N];
#pragma unroll
      for (int c = 0; c < kTermsAtOnce; ++c) {
        const bool exists = first + c < p.n_chosen;
        places[c] = exists ? p.places[row * p.n_chosen + first + c] : -1;
        weights[c] = exists ? p.weights[row * p.n_chosen + first + c] : 0;
      }
#pragma unroll
      for (int c = 0; c < kTermsAtOnce; ++c)
        if (places[c] >= 0) load_f32(in + places[c] * p.d + i, terms[c]);
#pragma unroll
      for (int c = 0; c < kTermsAtOnce; ++c) {
        if (places[c] < 0) continue;
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] = fmaf(weights[c], terms[c][j], sum[j]);
      }
    }
    if (shared != nullptr) {
      const float gate = p.gate_logits == nullptr ? 1 : 1 / (1 + expf(-gate_logit));
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] = fmaf(gate, of_shared[j], sum[j]);
    }
    store_f32(sum, static_cast<Out*>(p.out) + row * p.d + i);
  }
}

}  // namespace

void combine_experts(const Device& device, const CombineExpertsArgs& args) {
  const auto n_rows = static_cast<unsigned>(args.out.shape[0]);
  const std::int64_t d = args.out.shape[1];
  if (n_rows == 0 || d == 0) return;
  const bool has_shared = args.shared.data != nullptr;
  const bool is_aligned = rows_are_aligned(d, args.in, args.out) && (!has_shared || rows_are_aligned(d, args.shared));
  // Few rows are cut, so that more multiprocessors read them.
  const std::int64_t n_steps = (d + kCombineThreads * kElementsAtOnce - 1) / (kCombineThreads * kElementsAtOnce);
  const auto n_slices = static_cast<unsigned>(
      std::clamp<std::int64_t>(kBlocksAMultiprocessor * device.n_multiprocessors / args.out.shape[0], 1, n_steps));
  CombineParams params{};
  params.in = args.in.data;
  params.places = reinterpret_cast<const std::int32_t*>(args.choices.places.data);
  params.weights = reinterpret_cast<const float*>(args.choices.weights.data);
  params.shared = args.shared.data;
  if (args.gate_logits.data != nullptr) {
    params.gate_stride = static_cast<std::int32_t>(args.gate_logits.shape[1]);
    params.gate_logits = reinterpret_cast<const float*>(args.gate_logits.data) + params.gate_stride - 1;
  }
  params.n_chosen = static_cast<std::int32_t>(args.choices.places.shape[1]);
  params.d = d;
  params.out = args.out.data;
  visit_element(args.in.dtype, [&](auto in) {
    visit_element(args.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      auto* kernel = is_aligned ? combine_experts_kernel<In, Out, kElementsAtOnce> : combine_experts_kernel<In, Out, 1>;
      prefer_shared_memory(kernel);
      launch_overlapped(device, kernel, dim3(n_rows, n_slices), kCombineThreads, 0, "combine_experts", params);
    });
  });
}

}  // namespace baton::cuda
