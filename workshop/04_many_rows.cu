/// Experiment: attention where products bound. Tiles of 128 or 192 query rows, stages of 64 or 128 keys, scores of the
/// next stage begun before this one's softmax or not, warpgroups that take turns or not. Keys and values are paged in
/// blocks of 16 tokens, in the layout of kv_layout.h. Every variant is checked against a float64 reference first.
///
///     nvcc -std=c++20 -O3 -arch=sm_90a -I src workshop/04_many_rows.cu -o many_rows && ./many_rows
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/kv/kv_layout.h"
#include "many_rows_kernel.cuh"
#include "measure.cuh"

namespace workshop {
namespace {

/// A request, or several equal ones: `n_tokens` new token rows behind `prefix` older keys.
struct Case {
  const char* name;
  int n_tokens;
  int prefix;
  bool is_causal;
  int n_heads = 32;
  int n_kv_heads = 8;
  int kv_begin = 0;
};

__device__ float noise(std::uint64_t i, std::uint64_t seed) {
  std::uint64_t x = i * 0x9e3779b97f4a7c15ull + seed;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) / 9007199254740992.0 * 2 - 1) * 1.7f;
}
__global__ void fill(__nv_bfloat16* to, std::size_t n, std::uint64_t seed, float factor) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = __float2bfloat16(noise(i, seed) * factor);
}
/// NaN in every slot of the last block that holds no token.
__global__ void spoil(__nv_bfloat16* kv, baton::cuda::KvLayout layout, int block, int first_token) {
  for (int part = 0; part < 2; ++part)
    for (int head = 0; head < layout.n_kv_heads; ++head)
      for (int token = first_token; token < 16; ++token)
        for (int d = static_cast<int>(threadIdx.x); d < kDim; d += static_cast<int>(blockDim.x))
          kv[(layout.tile_offset(block, part, head) + layout.byte_in_tile(token, 2 * d)) / 2] = __float2bfloat16(NAN);
}

/// One thread of a warp a row; checks rows at a stride. Returns the largest error over the largest output.
__global__ void check_rows(Problem p, baton::cuda::KvLayout layout, Case c, int row_step, float* worst) {
  const int token = static_cast<int>(blockIdx.x) * row_step;
  const int head = static_cast<int>(blockIdx.y);
  const int d = static_cast<int>(threadIdx.x);
  const int kv_head = head / (c.n_heads / c.n_kv_heads);
  const int end = c.is_causal ? c.prefix + token + 1 : c.prefix + c.n_tokens;
  const auto* q = reinterpret_cast<const __nv_bfloat16*>(p.q) + (static_cast<std::int64_t>(token) * c.n_heads + head) * kDim;
  __shared__ double products[kDim];
  double m = -INFINITY, l = 0, o = 0;
  for (int at = c.kv_begin; at < end; ++at) {
    const int block = p.blocks[at / 16];
    const auto element = [&](int part) {
      return static_cast<double>(__bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(
          p.kv + layout.tile_offset(block, part, kv_head) + layout.byte_in_tile(at % 16, 2 * d))));
    };
    products[d] = static_cast<double>(__bfloat162float(q[d])) * element(0);
    __syncthreads();
    for (int half = kDim / 2; half > 0; half /= 2) {
      if (d < half) products[d] += products[d + half];
      __syncthreads();
    }
    const double score = products[0] * p.score_log2;
    __syncthreads();
    const double new_m = fmax(m, score);
    const double factor = exp2(m - new_m), weight = exp2(score - new_m);
    l = l * factor + weight;
    o = o * factor + weight * element(1);
    m = new_m;
  }
  float found;
  if (p.part_o != nullptr) {  // joins the states of all pieces of this token
    double sum = 0, total = 0;
    for (int i = token; i < p.n_partial_rows; i += c.n_tokens) {
      const std::int64_t index = static_cast<std::int64_t>(i) * c.n_heads + head;
      const double factor = exp2(static_cast<double>(p.part_ml[index].x) - m);
      sum += factor * p.part_o[index * kDim + d];
      total += factor * p.part_ml[index].y;
    }
    found = static_cast<float>(sum / total);
  } else {
    found = __bfloat162float(
        reinterpret_cast<const __nv_bfloat16*>(p.out)[(static_cast<std::int64_t>(token) * c.n_heads + head) * kDim + d]);
  }
  const float error = static_cast<float>(fabs(found - o / l) / (0.2 + fabs(o / l)));  // values are up to 1.7
  atomicMax(reinterpret_cast<int*>(worst), __float_as_int(isnan(error) ? 1e30f : error));
}

template <class T>
T* device_copy(const std::vector<T>& host) {
  T* to = nullptr;
  check_cuda(cudaMalloc(&to, std::max<std::size_t>(host.size(), 1) * sizeof(T)), "malloc");
  check_cuda(cudaMemcpy(to, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return to;
}

double flops_of(const Case& c) {
  const double keys = c.is_causal
                          ? static_cast<double>(c.n_tokens) * (c.prefix - c.kv_begin) + 0.5 * c.n_tokens * (c.n_tokens + 1.0)
                          : static_cast<double>(c.n_tokens) * (c.prefix + c.n_tokens - c.kv_begin);
  return 4.0 * kDim * c.n_heads * keys;
}

/// The tiles of a case, shared out longest first, each to the block with the least work.
struct Work {
  std::vector<Tile> tiles;
  std::vector<int> offsets;
  int n_partial_rows = 0;
};
Work share_out(const Case& c, int tile_rows, int n_blocks) {
  const int group = c.n_heads / c.n_kv_heads;
  const int tile_tokens = tile_rows / group;
  std::vector<Tile> tiles;
  const int end = c.prefix + c.n_tokens;
  const int row_tiles = (c.n_tokens + tile_tokens - 1) / tile_tokens;
  // Where the keys are the same for all rows, they are cut so that every block has about one piece.
  const int n_pieces = c.is_causal ? 1 : std::max(1, n_blocks / (row_tiles * c.n_kv_heads));
  const int piece = ((end + n_pieces - 1) / n_pieces + 127) / 128 * 128;
  Work work;
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head)
    for (int first = 0; first < c.n_tokens; first += tile_tokens) {
      Tile tile;
      tile.first_row = first;
      tile.n_tokens = std::min(tile_tokens, c.n_tokens - first);
      tile.kv_head = kv_head;
      tile.is_causal = c.is_causal;
      tile.first_position = c.prefix + first;
      if (c.is_causal) {
        tile.kv_begin = c.kv_begin;
        tile.kv_end = c.prefix + first + tile.n_tokens;
        tiles.push_back(tile);
        continue;
      }
      int partial = first;
      for (int begin = c.kv_begin; begin < end; begin += piece, partial += c.n_tokens) {
        tile.kv_begin = begin;
        tile.kv_end = std::min(end, begin + piece);
        tile.first_partial = partial;
        tiles.push_back(tile);
        work.n_partial_rows = std::max(work.n_partial_rows, partial + tile.n_tokens);
      }
    }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.kv_end - a.kv_begin > b.kv_end - b.kv_begin; });
  std::vector<std::vector<Tile>> of_block(static_cast<std::size_t>(n_blocks));
  std::vector<int> load(static_cast<std::size_t>(n_blocks), 0);
  for (const Tile& tile : tiles) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    of_block[static_cast<std::size_t>(least)].push_back(tile);
    load[static_cast<std::size_t>(least)] += tile.kv_end - tile.kv_begin + 192;
  }
  work.offsets.push_back(0);
  for (const auto& list : of_block) {
    work.tiles.insert(work.tiles.end(), list.begin(), list.end());
    work.offsets.push_back(static_cast<int>(work.tiles.size()));
  }
  return work;
}

struct Variant {
  const char* name;
  int rows;
  void (*launch)(cudaStream_t, const Problem&, int);
};
template <class S>
Variant variant(const char* name) {
  return {name, S::kRows, [](cudaStream_t stream, const Problem& p, int n_blocks) {
            launch(stream, many_rows_kernel<S>, n_blocks, S::kThreads, S::kSharedBytes, false, p);
          }};
}

bool run_case(const Case& c, const std::vector<Variant>& variants, int n_blocks, bool is_timed, cudaStream_t stream) {
  const int end = c.prefix + c.n_tokens;
  const int n_blocks_kv = (end + 15) / 16;
  baton::cuda::KvLayout layout{16, c.n_kv_heads, kRowBytes};
  std::vector<int> blocks(static_cast<std::size_t>(n_blocks_kv));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
  Problem p;
  p.n_heads = c.n_heads;
  p.n_kv_heads = c.n_kv_heads;
  p.score_log2 = 1.44269504f / std::sqrt(128.0f);
  const std::size_t n_kv = static_cast<std::size_t>(layout.block_bytes()) / 2 * blocks.size();
  const std::size_t n_q = static_cast<std::size_t>(c.n_tokens) * c.n_heads * kDim;
  __nv_bfloat16 *kv = nullptr, *q = nullptr, *out = nullptr;
  float* worst = nullptr;
  check_cuda(cudaMalloc(&kv, n_kv * 2), "malloc");
  check_cuda(cudaMalloc(&q, n_q * 2), "malloc");
  check_cuda(cudaMalloc(&out, n_q * 2), "malloc");
  check_cuda(cudaMalloc(&worst, 4), "malloc");
  fill<<<1024, 256, 0, stream>>>(kv, n_kv, 1, 1.0f);
  fill<<<1024, 256, 0, stream>>>(q, n_q, 2, 1.5f);
  if (end % 16 != 0) spoil<<<1, 128, 0, stream>>>(kv, layout, blocks.back(), end % 16);
  p.blocks = device_copy(blocks);
  p.kv = reinterpret_cast<const std::byte*>(kv);
  p.q = reinterpret_cast<const std::byte*>(q);
  p.out = reinterpret_cast<std::byte*>(out);
  bool is_right = true;
  for (const Variant& v : variants) {
    const Work work = share_out(c, v.rows, n_blocks);
    Problem mine = p;
    mine.tiles = device_copy(work.tiles);
    mine.worker_offsets = device_copy(work.offsets);
    mine.n_partial_rows = work.n_partial_rows;
    if (work.n_partial_rows > 0) {
      const std::size_t states = static_cast<std::size_t>(work.n_partial_rows) * c.n_heads;
      check_cuda(cudaMalloc(&mine.part_o, states * kDim * 4), "malloc");
      check_cuda(cudaMalloc(&mine.part_ml, states * 8), "malloc");
      check_cuda(cudaMemset(mine.part_o, 255, states * kDim * 4), "memset");
    }
    check_cuda(cudaMemsetAsync(out, 255, n_q * 2, stream), "memset");
    check_cuda(cudaMemsetAsync(worst, 0, 4, stream), "memset");
    v.launch(stream, mine, n_blocks);
    const int row_step = std::max(1, c.n_tokens * (end / 256 + 1) / 3000) | 1;
    check_rows<<<dim3(static_cast<unsigned>((c.n_tokens + row_step - 1) / row_step), static_cast<unsigned>(c.n_heads)), kDim, 0,
                 stream>>>(mine, layout, c, row_step, worst);
    float error = 0;
    check_cuda(cudaMemcpyAsync(&error, worst, 4, cudaMemcpyDeviceToHost, stream), "copy");
    check_cuda(cudaStreamSynchronize(stream), v.name);
    const bool ok = error < 0.02f;
    is_right &= ok;
    if (!is_timed || !ok) {
      std::printf("%-26s %-22s error %.2g %s\n", c.name, v.name, error, ok ? "ok" : "WRONG");
    } else {
      const int n_calls = std::max(1, static_cast<int>(2e11 / flops_of(c)) + 1);
      const Timing timing = time_graph(
          stream, n_calls, [&](cudaStream_t s, int) { v.launch(s, mine, n_blocks); }, {}, 15);
      std::printf("%-26s %-22s %9.2f us  %6.1f TFLOP/s  spread %.1f%%  error %.2g\n", c.name, v.name, timing.us,
                  flops_of(c) / timing.us * 1e-6, timing.spread * 100, error);
    }
    std::fflush(stdout);
    cudaFree(const_cast<Tile*>(mine.tiles));
    cudaFree(const_cast<int*>(mine.worker_offsets));
    cudaFree(mine.part_o);
    cudaFree(mine.part_ml);
  }
  cudaFree(kv);
  cudaFree(q);
  cudaFree(out);
  cudaFree(worst);
  cudaFree(const_cast<int*>(p.blocks));
  return is_right;
}

}  // namespace
}  // namespace workshop

int main(int argc, char** argv) {
  using namespace workshop;
  const bool small_only = argc > 1 && std::string(argv[1]) == "small";
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
  const int n_blocks = properties.multiProcessorCount;
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "stream");
  const std::vector<Variant> variants = {
      variant<Shape<2, 128, true, true>>("128x128 overlap turns"), variant<Shape<2, 128, true, false>>("128x128 overlap"),
      variant<Shape<2, 128, false, false>>("128x128 plain"),       variant<Shape<2, 64, true, true>>("128x64 overlap turns"),
      variant<Shape<2, 64, true, false>>("128x64 overlap"),        variant<Shape<2, 64, false, false>>("128x64 plain"),
      variant<Shape<3, 64, true, false>>("192x64 overlap"),        variant<Shape<3, 64, false, false>>("192x64 plain"),
  };
  const std::vector<Case> small = {
      {"small 300", 300, 0, true},
      {"small 77 behind 501", 77, 501, true},
      {"small window 33..", 150, 200, true, 32, 8, 33},
      {"small 7 heads a group", 100, 90, true, 28, 4},
      {"small cut 40 x 1000", 40, 960, false},
  };
  bool is_right = true;
  for (const Case& c : small) is_right &= run_case(c, variants, small_only ? 4 : n_blocks, false, stream);
  if (small_only) return is_right ? 0 : 1;
  const std::vector<Case> timed = {
      {"causal 2048", 2048, 0, true},
      {"causal 4096", 4096, 0, true},
      {"causal 8192", 8192, 0, true},
      {"causal 16384", 16384, 0, true},
      {"512 behind 8192", 512, 8192, true},
      {"2048 behind 16384", 2048, 16384, true},
      {"128 rows x 32768, cut", 128, 32640, false},
  };
  for (const Case& c : timed) is_right &= run_case(c, variants, n_blocks, true, stream);
  std::printf(is_right ? "all right\n" : "SOMETHING IS WRONG\n");
  return is_right ? 0 : 1;
}
