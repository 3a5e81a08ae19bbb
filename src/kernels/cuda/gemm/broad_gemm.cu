/// The host's side of the broad GEMM, and its kernels without a gate: broad_kernel.cuh says what they do.
#include "kernels/cuda/gemm/broad_gemm.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/gemm/broad_kernel.cuh"
#include "kernels/cuda/gemm/gated_map.h"
#include "kernels/cuda/gemm/partial_memory.h"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

/// An H200's rates, scaled by the device's memory.
BroadRates broad_rates_of(const Device& device) {
  const double ratio = rates_of(device.figures).memory_bytes_per_us / kH200Rates.memory_bytes_per_us;
  BroadRates rates = kBroadRatesOfH200;
  rates.memory_bytes_per_us *= ratio;
  rates.cublas_bytes_per_us *= ratio;
  return rates;
}

BroadKernel kernel_of(DType dtype, const BroadTile& tile) {
  switch (tile.form) {
    case BroadForm::plain: return broad_kernel_of<BroadForm::plain>(dtype, tile);
    case BroadForm::gated: return gated_broad_kernel(dtype, tile);
    case BroadForm::weight_is_m: return broad_kernel_of<BroadForm::weight_is_m>(dtype, tile);
  }
  check_failed("broad_gemm: an unknown form");
}

}  // namespace

BroadGemm::BroadGemm(const Device& device, void* encode, std::byte* partials)
    : device_(device), encode_(encode), partials_(partials) {}
BroadGemm::~BroadGemm() { cudaFree(partials_); }

Result<std::unique_ptr<BroadGemm>> BroadGemm::make(const Device& device) {
  void* const encode = device.compute_capability == 90 ? tensor_map_encoder() : nullptr;
  std::byte* partials = nullptr;
  if (encode != nullptr) {
    BATON_TRY(partials, partial_sums_memory(device, static_cast<std::size_t>(device.n_multiprocessors) / kMostBroadParts *
                                                        kMostBroadRows * kMostCutWidth * sizeof(float)));
  }
  return std::unique_ptr<BroadGemm>(new BroadGemm(device, encode, partials));
}

std::optional<BroadWeight> BroadGemm::describe(const ConstTensorView& weight) const {
  constexpr std::int64_t kMost = 1 << 24;
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  if (encode_ == nullptr || (weight.dtype != DType::bf16 && weight.dtype != DType::f16) || n % 8 != 0 || k % 8 != 0 ||
      n > kMost || k > kMost || !is_aligned(weight.data, 16))
    return std::nullopt;
  const BroadRates rates = broad_rates_of(device_);
  BroadWeight described{weight, {}};
  std::int64_t fewest = kFewestBroadRows;
  for (const std::int64_t most : kBroadRowSteps) {
    const auto layout = best_broad_layout({most, n, k}, device_.n_multiprocessors, rates);
    if (layout)
      described.choices.push_back(
          {fewest, most, *layout, matrix_map(encode_, weight, layout->width),
           layout->weight_is_m ? std::nullopt : gated_map(encode_, weight, layout->width, kGatedRunOfN)});
    fewest = most + 1;
  }
  if (described.choices.empty()) return std::nullopt;
  return described;
}

const BroadChoice* BroadWeight::choice_for(std::int64_t n_rows) const {
  const auto choice = std::ranges::find_if(
      choices, [&](const BroadChoice& one) { return n_rows >= one.fewest_rows && n_rows <= one.most_rows; });
  return choice == choices.end() ? nullptr : &*choice;
}

void BroadGemm::launch(const ConstTensorView& x, const BroadWeight& weight, const std::byte* bias, const TensorView& out,
                       std::optional<FusedGate> gate) const {
  const BroadMatmul of{x.shape[0], weight.matrix.shape[0], weight.matrix.shape[1]};
  const BroadChoice* const choice = weight.choice_for(of.n_rows);
  check(choice != nullptr && (!gate || choice->gated_map), "broad_gemm: rows that it does not take");
  const BroadLayout& layout = choice->layout;
  const BroadForm form = gate ? BroadForm::gated : layout.weight_is_m ? BroadForm::weight_is_m : BroadForm::plain;
  const BroadTile tile{layout.width, of.tile_rows(layout), form};
  const int boxes = broad_boxes(tile.width);
  const BroadSchedule schedule = broad_schedule(layout, of.n, of.k);
  const int x_rows = of.x_rows(layout);
  const int stage_bytes = boxes * (broad_box_bytes(tile.width) + broad_box_bytes(x_rows));
  const int other_bytes = broad_box_bytes(tile.rows - x_rows) + kBroadBarrierBytes;
  const int n_stages = std::min(kMostBroadStages, (static_cast<int>(device_.max_shared_bytes) - other_bytes) / stage_bytes);
  const int shared_bytes = n_stages * stage_bytes + other_bytes;
  // With more, the kernel before, which may still run, would wait after them for memory.
  const int fill_stages = std::max(2, (64 << 10) / (boxes * broad_box_bytes(tile.width)));
  const BroadGemmParams params{bias,
                               out.data,
                               reinterpret_cast<uint4*>(partials_),
                               schedule,
                               static_cast<int>(of.n_rows),
                               static_cast<int>(of.n),
                               x_rows,
                               n_stages,
                               fill_stages,
                               out.dtype == DType::f32,
                               gate.value_or(FusedGate::silu)};
  const BroadKernel kernel = kernel_of(x.dtype, tile);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "broad_gemm");
  launch_overlapped(device_, kernel, dim3(static_cast<unsigned>(std::min(schedule.n_items(), device_.n_multiprocessors))),
                    tile.n_threads(), shared_bytes, "broad_gemm", params, matrix_map(encode_, x, x_rows),
                    gate ? *choice->gated_map : choice->map);
}

void BroadGemm::multiply(const ConstTensorView& x, const BroadWeight& weight, const ConstTensorView& bias,
                         const TensorView& out) const {
  check(x.dtype == weight.matrix.dtype && (out.dtype == x.dtype || out.dtype == DType::f32) && is_aligned(x.data, 16) &&
            is_aligned(out.data, 16),
        "broad_gemm: a matmul that it does not take");
  check(bias.data == nullptr || bias.dtype == out.dtype, "broad_gemm: a bias of another dtype than out's");
  launch(x, weight, bias.data, out, {});
}

void BroadGemm::multiply_gated(const ConstTensorView& x, const BroadWeight& weight, FusedGate gate,
                               const TensorView& out) const {
  check(x.dtype == weight.matrix.dtype && out.dtype == x.dtype && is_aligned(x.data, 16) && is_aligned(out.data, 16),
        "broad_gemm: a gated matmul that it does not take");
  launch(x, weight, nullptr, out, gate);
}

}  // namespace baton::cuda
