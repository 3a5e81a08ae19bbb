/// Experiment 8: how fast can one kernel multiply more than 128 rows of x by weights in 8 and 4 bits, and do dense copies of
/// the weight and cuBLASLt beat it?
///
///     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr -diag-suppress 554
///         -cudart static -Isrc -Iworkshop -o 08_wide workshop/08_wide.cu src/kernels/cuda/gemm/tensor_map.cpp
///         src/kernels/cuda/schemes/widen_rows.cu -lcublasLt
///     ./08_wide check    each form against float64, twice
///     ./08_wide time     microseconds a call in a replayed graph, beside cuBLASLt's bf16 and dense copies
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cublasLt.h>

#include "kernels/cuda/schemes/scheme_kernels.h"
#include "measure.cuh"
#include "wide_check.cuh"
#include "wide_machine.cuh"

namespace workshop {
namespace {

constexpr std::int64_t kBytesInTurn = 200 << 20;   ///< weights in turn have more, so that none is in the L2
constexpr std::int64_t kSlabBytes = 32 << 20;      ///< of a weight that become dense at once, as in SchemeGemm
constexpr std::size_t kWorkspaceBytes = 64 << 20;  ///< of cuBLASLt

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s: cuBLASLt's status %d\n", what, static_cast<int>(status));
  std::exit(1);
}

/// out [rows, stride] = x [rows, k] W [n, k]^T in bf16 by cuBLASLt's first choice. The first n columns of out are written.
class DenseMatmul {
 public:
  DenseMatmul(cublasLtHandle_t handle, void* workspace, std::int64_t n, std::int64_t k, std::int64_t rows, std::int64_t stride)
      : handle_(handle), workspace_(workspace) {
    check_cublas(cublasLtMatmulDescCreate(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_cublas(cublasLtMatmulDescSetAttribute(matmul_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                 "matmul");
    check_cublas(cublasLtMatrixLayoutCreate(&weight_, CUDA_R_16BF, k, n, k), "weight");
    check_cublas(cublasLtMatrixLayoutCreate(&x_, CUDA_R_16BF, k, rows, k), "x");
    check_cublas(cublasLtMatrixLayoutCreate(&out_, CUDA_R_16BF, n, rows, stride), "out");
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "preference");
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                                      sizeof kWorkspaceBytes),
                 "preference");
    int n_found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(handle, matmul_, weight_, x_, out_, out_, preference, 1, &choice_, &n_found),
                 "choice");
    cublasLtMatmulPreferenceDestroy(preference);
  }
  ~DenseMatmul() {
    for (const auto layout : {weight_, x_, out_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(matmul_);
  }
  DenseMatmul(const DenseMatmul&) = delete;
  DenseMatmul& operator=(const DenseMatmul&) = delete;

  void enqueue(cudaStream_t stream, const void* weight, const void* x, void* out) const {
    const float one = 1, zero = 0;
    check_cublas(cublasLtMatmul(handle_, matmul_, &one, weight, weight_, x, x_, &zero, out, out_, out, out_, &choice_.algo,
                                workspace_, kWorkspaceBytes, stream),
                 "matmul");
  }

 private:
  cublasLtHandle_t handle_;
  void* workspace_;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
};

/// As many weights as the L2 cannot hold.
std::vector<std::unique_ptr<Weight>> weights_in_turn(const WeightForm& form) {
  const std::int64_t n_bytes = form.n * form.k / (form.scheme == WeightScheme::i4 ? 2 : 1);
  std::vector<std::unique_ptr<Weight>> weights;
  for (std::int64_t bytes = 0; bytes < kBytesInTurn; bytes += n_bytes) weights.push_back(std::make_unique<Weight>(form));
  return weights;
}

void time_weight(const Machine& machine, cublasLtHandle_t cublas, void* workspace, const char* name, std::int64_t n,
                 std::int64_t k) {
  const cudaStream_t stream = machine.device.stream;
  const std::vector<std::unique_ptr<Weight>> packed[] = {
      weights_in_turn({WeightScheme::f8, n, k, 0, false, DType::f32}),
      weights_in_turn({WeightScheme::i4, n, k, 128, false, DType::bf16}),
  };
  std::vector<std::byte*> dense;
  for (std::int64_t bytes = 0; bytes < kBytesInTurn; bytes += n * k * 2)
    dense.push_back(random_floats(DType::bf16, n * k, 0, 0.05f));
  const std::int64_t most = kSlabBytes / (k * 2), n_slabs = (n + most - 1) / most, slab_rows = n / n_slabs;
  check(slab_rows * n_slabs == n && slab_rows % kSchemeTileRows == 0, "08_wide: slabs are not whole tiles");
  auto* const slab = allocate<std::byte>(kSlabBytes);
  for (const std::int64_t rows : {160, 192, 256, 512, 1024, 2048, 4096}) {
    std::byte* const x = random_floats(DType::bf16, rows * k, 0, 1);
    auto* const out = allocate<__nv_bfloat16>(rows * n);
    const int n_calls = rows <= 512 ? 48 : rows <= 2048 ? 12 : 4;
    const auto time = [&](const std::function<void(std::size_t)>& call) {
      return time_graph(
                 stream, n_calls, [&](cudaStream_t, int i) { call(static_cast<std::size_t>(i)); }, {}, 5)
          .us;
    };
    const DenseMatmul whole(cublas, workspace, n, k, rows, n);
    const double bf16 = time([&](std::size_t i) { whole.enqueue(stream, dense[i % dense.size()], x, out); });
    std::printf("%-8s %5ld rows: bf16 %7.1f", name, static_cast<long>(rows), bf16);
    for (const auto& weights : packed) {
      const double wide = time([&](std::size_t i) {
        enqueue(machine, *weights[i % weights.size()], {DType::bf16, x, rows, nullptr, out, false, width_for(rows), 0});
      });
      std::printf(" | %s %7.1f (%.2f)", weights[0]->scheme == WeightScheme::f8 ? "e4m3" : "int4", wide, wide / bf16);
      if (rows <= kMostWideWidth) continue;
      const DenseMatmul part(cublas, workspace, slab_rows, k, rows, n);
      const double copied = time([&](std::size_t i) {
        const Weight& weight = *weights[i % weights.size()];
        for (std::int64_t begin = 0; begin < n; begin += slab_rows) {
          widen_rows(machine.device, weight.scheme, weight.view, begin, TensorView{slab, DType::bf16, {slab_rows, k}});
          part.enqueue(stream, slab, x, out + begin);
        }
      });
      std::printf(", dense copies %7.1f (%.2f)", copied, copied / bf16);
    }
    std::printf("\n");
    std::fflush(stdout);
    cudaFree(x);
    cudaFree(out);
  }
  cudaFree(slab);
  for (std::byte* const memory : dense) cudaFree(memory);
}

/// The matmuls of a layer of Llama-3-8B.
void time_all(const Machine& machine) {
  cublasLtHandle_t cublas = nullptr;
  check_cublas(cublasLtCreate(&cublas), "cublasLtCreate");
  auto* const workspace = allocate<std::byte>(kWorkspaceBytes);
  time_weight(machine, cublas, workspace, "qkv", 6144, 4096);
  time_weight(machine, cublas, workspace, "o", 4096, 4096);
  time_weight(machine, cublas, workspace, "gate_up", 28672, 4096);
  time_weight(machine, cublas, workspace, "down", 4096, 14336);
  cudaFree(workspace);
  cublasLtDestroy(cublas);
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "check" && mode != "time") {
    std::fprintf(stderr, "08_wide check | time\n");
    return 2;
  }
  const workshop::Machine machine;
  if (mode == "check") return workshop::check_all(machine) ? 0 : 1;
  workshop::time_all(machine);
  return 0;
}
