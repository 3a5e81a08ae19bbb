/// Compares every form of the streaming GEMM with float64, and the bits of a row alone and in company.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "streaming_machine.cuh"

namespace workshop {
namespace {

/// x W^T in float64, and the sum of the terms' magnitudes.
__global__ void reference(const __nv_bfloat16* x, const __nv_bfloat16* w, int m, int n, int k, double* y, double* magnitude) {
  const int column = blockIdx.x * blockDim.x / 32 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (column >= n) return;
  for (int row = blockIdx.y; row < m; row += gridDim.y) {
    double sum = 0, sum_of_magnitudes = 0;
    for (int i = lane; i < k; i += 32) {
      const double product =
          double(__bfloat162float(x[std::int64_t(row) * k + i])) * __bfloat162float(w[std::int64_t(column) * k + i]);
      sum += product, sum_of_magnitudes += fabs(product);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(~0u, sum, distance);
      sum_of_magnitudes += __shfl_xor_sync(~0u, sum_of_magnitudes, distance);
    }
    if (lane == 0) y[std::int64_t(row) * n + column] = sum, magnitude[std::int64_t(row) * n + column] = sum_of_magnitudes;
  }
}
struct Worst {
  unsigned long long over_bound;  ///< bits of the largest error / bound (a non-negative double orders as its bits)
  unsigned n_wrong, first_wrong;
  double error2, norm2;
};
/// Bound: half a unit of bf16 (at most 2^-8 of the number, 1% more), plus k / 16 additions of 2^-23 of the magnitudes'
/// sum; carried through silu(gate) * up where these are joined.
__global__ void compare(const double* y, const double* magnitude, const __nv_bfloat16* residual, const void* out, int m, int n,
                        int k, int end, Worst* worst) {
  const int n_out = end == 2 ? n / 2 : n;
  const double steps = k / 16 * std::ldexp(1.0, -23);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < m * n_out; i += gridDim.x * blockDim.x) {
    const int row = i / n_out, column = i % n_out;
    double expected, bound;
    if (end == 2) {
      const double g = y[row * n + column], u = y[row * n + n_out + column];
      const double eg = steps * magnitude[row * n + column], eu = steps * magnitude[row * n + n_out + column];
      const double silu_g = g / (1 + exp(-g));
      expected = silu_g * u;
      bound = 1.1 * eg * (fabs(u) + eu) + fabs(silu_g) * eu + fabs(expected) * ldexp(1.0, -18) + 1e-30;
    } else {
      expected = y[row * n + column];
      bound = steps * magnitude[row * n + column];
    }
    bound += (fabs(expected) + bound) * 1.01 * ldexp(1.0, -8);
    // The residual is f32 and of size 1: what was added is known to 2^-23 of it.
    double found = 0;
    if (end == 1) {
      const double before = __bfloat162float(residual[i]);
      found = double(static_cast<const float*>(out)[i]) - before;
      bound += (fabs(found) + fabs(before)) * ldexp(1.0, -23);
    } else {
      found = __bfloat162float(static_cast<const __nv_bfloat16*>(out)[i]);
    }
    const double error = fabs(found - expected);
    if (!(error <= bound) && atomicAdd(&worst->n_wrong, 1u) == 0) worst->first_wrong = i;
    if (error == error) atomicMax(&worst->over_bound, __double_as_longlong(error / bound));
    atomicAdd(&worst->error2, error * error);
    atomicAdd(&worst->norm2, expected * expected);
  }
}
__global__ void widen(const __nv_bfloat16* from, float* to, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = __bfloat162float(from[i]);
}
__global__ void count_not_ones(const std::uint32_t* words, std::int64_t n, unsigned* count) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < n; i += std::int64_t{gridDim.x} * blockDim.x)
    if (words[i] != ~0u) atomicAdd(count, 1u);
}

/// The largest errors of all runs.
struct Found {
  double over_bound = 0, relative = 0;
};

int check_one(const Machine& machine, const Plan& plan, int m, const double* y, const double* magnitude, Worst* worst_device,
              Found& found) {
  const int n_out = plan.variant.end == 2 ? plan.n / 2 : plan.n;
  const std::size_t out_bytes = static_cast<std::size_t>(m) * n_out * (plan.variant.end == 1 ? 4 : 2);
  const std::size_t guard = 4096;
  check_cuda(cudaMemsetAsync(machine.y, 0xff, out_bytes + guard, machine.stream), "memset");
  check_cuda(cudaMemsetAsync(machine.y2, 0xff, out_bytes + guard, machine.stream), "memset");
  check_cuda(cudaMemsetAsync(worst_device, 0, sizeof(Worst), machine.stream), "memset");
  check_cuda(cudaMemsetAsync(machine.words, 0, 4, machine.stream), "memset");
  if (plan.variant.end == 1)
    for (__nv_bfloat16* to : {machine.y, machine.y2})
      widen<<<264, 256, 0, machine.stream>>>(machine.residual, reinterpret_cast<float*>(to), m * n_out);
  const CUtensorMap map = map_of(machine, machine.x, m, plan.k, plan.variant.n / plan.variant.share);
  const unsigned char* const packed = (plan.flags & kRowMajor) != 0 ? machine.weights : machine.weights + (1024LL << 20);
  enqueue(machine, plan, machine.stream, map, packed, machine.y, m);
  enqueue(machine, plan, machine.stream, map, packed, machine.y2, m);
  compare<<<264, 256, 0, machine.stream>>>(y, magnitude, machine.residual, machine.y, m, plan.n, plan.k, plan.variant.end,
                                           worst_device);
  count_not_ones<<<264, 256, 0, machine.stream>>>(reinterpret_cast<const std::uint32_t*>(machine.partials), kPartialBytes / 4,
                                                  machine.words);
  Worst worst{};
  unsigned n_left = 0;
  std::vector<std::uint16_t> first(out_bytes / 2 + guard / 2), second(first.size());
  check_cuda(cudaMemcpyAsync(&worst, worst_device, sizeof worst, cudaMemcpyDeviceToHost, machine.stream), "copy");
  check_cuda(cudaMemcpyAsync(&n_left, machine.words, 4, cudaMemcpyDeviceToHost, machine.stream), "copy");
  check_cuda(cudaMemcpyAsync(first.data(), machine.y, out_bytes + guard, cudaMemcpyDeviceToHost, machine.stream), "copy");
  check_cuda(cudaMemcpyAsync(second.data(), machine.y2, out_bytes + guard, cudaMemcpyDeviceToHost, machine.stream), "copy");
  const cudaError_t error = cudaStreamSynchronize(machine.stream);
  if (error != cudaSuccess) std::printf("in %s, %d rows, %d x %d:\n", plan.label().c_str(), m, plan.n, plan.k);
  check_cuda(error, "check");
  bool guard_whole = true;
  for (std::size_t i = out_bytes / 2; i < first.size(); ++i) guard_whole &= first[i] == 0xffff;
  const bool repeats = first == second;
  double over = 0;
  std::memcpy(&over, &worst.over_bound, 8);
  const double relative = std::sqrt(worst.error2 / worst.norm2);
  const bool good = worst.n_wrong == 0 && guard_whole && repeats && n_left == 0 && relative < 3e-3;
  if (!good)
    std::printf(
        "WRONG %s, %d rows, %d x %d: %u beyond the bound (first at row %u, column %u), worst %.3g of it, relative %.2e%s%s, %u "
        "words left\n",
        plan.label().c_str(), m, plan.n, plan.k, worst.n_wrong, worst.first_wrong / n_out, worst.first_wrong % n_out, over,
        relative, guard_whole ? "" : ", WROTE BEHIND THE END", repeats ? "" : ", OTHER BITS AGAIN", n_left);
  found.over_bound = std::max(found.over_bound, over), found.relative = std::max(found.relative, relative);
  if (!good && n_left != 0) check_cuda(cudaMemset(machine.partials, 0xff, kPartialBytes), "memset");
  return good ? 0 : 1;
}

int run_check(const Machine& machine, const Options& options) {
  double *y = allocate<double>(kMaxRows * 4096LL), *magnitude = allocate<double>(kMaxRows * 4096LL);
  Worst* worst = allocate<Worst>(1);
  int n_bad = 0, n_run = 0;
  Found found;
  std::map<std::string, int> bad_of;
  struct Weight {
    int n, k;
  };
  for (const Weight& weight : {Weight{4096, 4096}, Weight{1536, 11008}, Weight{768, 256}}) {
    if (options.quick && weight.k != 256) continue;
    reference<<<dim3((weight.n + 7) / 8, 64), 256, 0, machine.stream>>>(
        machine.x, reinterpret_cast<const __nv_bfloat16*>(machine.weights), kMaxRows, weight.n, weight.k, y, magnitude);
    for (const int end : {0, 1, 2}) {
      pack<<<1024, 256, 0, machine.stream>>>(reinterpret_cast<const std::uint16_t*>(machine.weights),
                                             machine.weights + (1024LL << 20), weight.n, weight.k, end == 2);
      for (const int width : kWidths)
        for (const Variant& variant : variants_of_width(width)) {
          if (variant.end != end) continue;
          for (const int cluster : {0, 2, 4})
            for (const int m : {1, 2, 8, 9, 16, 17, 32, 33, 64, 100, 128, 129, 200, 256}) {
              if (m > width || (m <= width / 2 && m != 1)) continue;
              for (const int flags : {0, kEvictFirst | kLateDependents, int(kDirectStores), int(kWaitFirst),
                                      kRowMajor | kEvictFirst, int(kRowMajor)})
                for (const int ring_kb : {227, 96}) {
                  if ((flags & kRowMajor) != 0 && end == 2) continue;  // the check's weight is not interleaved there
                  if ((flags != 0 && m != width) || (ring_kb != 227 && (flags != 0 || m != width))) continue;
                  Plan plan;
                  if (!make_plan(machine, variant, weight.n, weight.k, cluster, ring_kb, flags, true, plan)) continue;
                  if (!is_named(options, plan, true)) continue;
                  ++n_run;
                  const int bad = check_one(machine, plan, m, y, magnitude, worst, found);
                  n_bad += bad;
                  if (bad) ++bad_of[plan.label()];
                  if (n_bad > 40) goto done;
                }
            }
        }
    }
  }
done:
  for (const auto& [label, n] : bad_of) std::printf("  wrong: %s, %d times\n", label.c_str(), n);
  std::printf("check: %d runs, %d wrong; worst error %.3f of its bound, worst relative %.2e\n", n_run, n_bad, found.over_bound,
              found.relative);
  return n_bad == 0 ? 0 : 1;
}

/// Bits of the first rows, of all widths and numbers of rows, of each (T, C, U, chains, cluster).
int run_bits(const Machine& machine, const Options& options) {
  int n_families = 0, n_unequal = 0;
  for (const auto& [n, k] : {std::pair{4096, 4096}, std::pair{4096, 11008}}) {
    pack<<<1024, 256, 0, machine.stream>>>(reinterpret_cast<const std::uint16_t*>(machine.weights),
                                           machine.weights + (1024LL << 20), n, k, false);
    std::map<std::string, std::vector<std::uint16_t>> firsts;
    std::map<std::string, std::string> widths;
    for (int w = 5; w >= 0; --w)
      for (const Variant& variant : variants_of_width(kWidths[w])) {
        if (variant.end != 0) continue;
        for (const int cluster : {0, 2, 4}) {
          Plan plan;
          if (!make_plan(machine, variant, n, k, cluster, 227, 0, true, plan) || !is_named(options, plan, false)) continue;
          char family[64];
          std::snprintf(family, sizeof family, "T%dC%dU%dx%d q%d h%d", variant.t, variant.c, variant.u, variant.chains, cluster,
                        variant.share);
          for (const int m : {256, 200, 129, 128, 100, 64, 33, 32, 17, 16, 9, 8, 2, 1}) {
            if (m > variant.n || (m <= variant.n / 2 && m != 1)) continue;
            const CUtensorMap map = map_of(machine, machine.x, m, k, variant.n / variant.share);
            enqueue(machine, plan, machine.stream, map, machine.weights + (1024LL << 20), machine.y, m);
            std::vector<std::uint16_t> got(static_cast<std::size_t>(m) * n);
            check_cuda(cudaMemcpyAsync(got.data(), machine.y, got.size() * 2, cudaMemcpyDeviceToHost, machine.stream), "copy");
            check_cuda(cudaStreamSynchronize(machine.stream), "bits");
            const auto found = firsts.find(family);
            if (found == firsts.end()) {
              firsts[family] = got;
              ++n_families;
              continue;
            }
            std::size_t n_other = 0;
            const std::size_t shared = std::min(got.size(), found->second.size());
            for (std::size_t i = 0; i < shared; ++i) n_other += got[i] != found->second[i];
            if (n_other > 0) {
              ++n_unequal;
              std::printf("OTHER BITS %s: width %d, %d rows, %d x %d: %zu of %zu\n", family, variant.n, m, n, k, n_other,
                          shared);
            }
            // The same rows behind others: row 0 of this run is row 3 of the first.
            if (m < 9 && m + 3 <= static_cast<int>(found->second.size()) / n) {
              const CUtensorMap behind = map_of(machine, machine.x + 3LL * k, m, k, variant.n / variant.share);
              enqueue(machine, plan, machine.stream, behind, machine.weights + (1024LL << 20), machine.y, m);
              check_cuda(cudaMemcpyAsync(got.data(), machine.y, got.size() * 2, cudaMemcpyDeviceToHost, machine.stream),
                         "copy");
              check_cuda(cudaStreamSynchronize(machine.stream), "bits");
              if (std::memcmp(got.data(), found->second.data() + 3LL * n, got.size() * 2) != 0) {
                ++n_unequal;
                std::printf("OTHER BITS %s: width %d, rows 3 to %d alone, %d x %d\n", family, variant.n, 2 + m, n, k);
              }
            }
          }
          widths[family].append(1, ' ').append(std::to_string(variant.n));
        }
      }
    for (const auto& [family, list] : widths) std::printf("%d x %d %s: widths%s\n", n, k, family.c_str(), list.c_str());
  }
  std::printf("bits: %d families, %d unequal\n", n_families, n_unequal);
  return n_unequal == 0 ? 0 : 1;
}

}  // namespace
}  // namespace workshop
