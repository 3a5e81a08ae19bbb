// How fast does attention over latent vectors (multi-head latent attention, keys of 576 whose first 512 are the values) get?
//
//     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr --diag-suppress=554 -Isrc
//          -cudart static -o 07_latent workshop/07_latent.cu
//     ./07_latent
//
// Checks the product's kernel (src/kernels/cuda/attention/latent) against float64, then times steps of several requests behind
// a shared prompt: paged, each request reads all its keys, and relayed, the prompt is read for all requests together.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cuda/attention/latent/kernel.cuh"

namespace {

using namespace baton;
using namespace baton::cuda;

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T* device_copy(const std::vector<T>& from) {
  T* to = nullptr;
  require(cudaMalloc(&to, from.size() * sizeof(T)), "cudaMalloc");
  require(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return to;
}

struct Work {
  int n_requests = 1, n_heads = 20, shared = 0, own = 0;
  bool relays = false;
  int piece = 1 << 20;      ///< positions of an item, at most
  int rows_an_item = 1000;  ///< token rows of a relayed item, at most
};

/// One item and the partial states that it writes.
struct Plan {
  std::vector<AttentionItem> items;
  std::vector<std::int32_t> blocks;
  std::vector<TokenRow> rows;
  std::vector<std::vector<int>> states;  ///< of each row
  int n_partials = 0;
};

constexpr int kBlock = 16;

Plan plan_of(const Work& work) {
  Plan plan;
  const int shared_blocks = work.shared / kBlock;
  const int own_blocks = (work.own + kBlock - 1) / kBlock;
  const auto block_of = [&](int request, int position) {
    return position < work.shared ? position / kBlock
                                  : shared_blocks + request * own_blocks + (position - work.shared) / kBlock;
  };
  for (int i = 0; i < work.n_requests; ++i) {
    TokenRow row{};
    row.position = work.shared + work.own - 1;
    row.kv_lo = 0;
    row.kv_hi = work.shared + work.own - i % 3;  // masks differ
    plan.rows.push_back(row);
  }
  plan.states.resize(static_cast<std::size_t>(work.n_requests));
  const auto add = [&](int first_row, int n_rows, int begin, int end, bool direct) {
    AttentionItem item{};
    item.first_row = first_row;
    item.n_rows = n_rows;
    item.kv_begin = begin;
    item.kv_end = end;
    item.block_list = static_cast<std::int32_t>(plan.blocks.size());
    item.flags = direct ? AttentionItem::direct : 0;
    for (int at = begin / kBlock * kBlock; at < end; at += kBlock) plan.blocks.push_back(block_of(first_row, at));
    if (!direct) {
      item.first_partial = plan.n_partials;
      for (int i = 0; i < n_rows; ++i) plan.states[static_cast<std::size_t>(first_row + i)].push_back(plan.n_partials++);
    }
    plan.items.push_back(item);
  };
  const int begin = work.relays ? work.shared : 0;
  if (work.relays)
    for (int at = 0; at < work.shared; at += work.piece)
      for (int row = 0; row < work.n_requests; row += work.rows_an_item)
        add(row, std::min(work.rows_an_item, work.n_requests - row), at, std::min(work.shared, at + work.piece), false);
  const int end = work.shared + work.own;
  for (int at = begin; at < end; at += work.piece)
    for (int row = 0; row < work.n_requests; ++row)
      add(row, 1, at, std::min(end, at + work.piece), begin == 0 && work.piece >= end);
  return plan;
}

template <int kLatent>
void run(const Work& work, bool checks) {
  constexpr int kDim = kLatent + kLatentRotaryDim;
  const Plan plan = plan_of(work);
  const int n_blocks = work.shared / kBlock + work.n_requests * ((work.own + kBlock - 1) / kBlock);
  const int n_layers =
      checks ? 1 : std::max(1, static_cast<int>((std::int64_t{400} << 20) / (std::int64_t{n_blocks} * kBlock * kDim * 2)));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> keys(static_cast<std::size_t>(n_blocks) * kBlock * kDim);
  if (checks)
    for (auto& x : keys) x = __float2bfloat16(normal(random));
  else
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = __float2bfloat16(static_cast<float>(i * 2654435761u % 1000) / 500 - 1);
  std::vector<__nv_bfloat16> laid_out(keys.size());
  for (int block = 0; block < n_blocks; ++block)
    for (int token = 0; token < kBlock; ++token)
      for (int d = 0; d < kDim; ++d) {
        const int panel = d / 64;
        const int chunk = (d % 64 / 8) ^ (token & 7);
        laid_out[static_cast<std::size_t>(block) * kBlock * kDim + panel * kBlock * 64 + token * 64 + chunk * 8 + d % 8] =
            keys[(static_cast<std::size_t>(block) * kBlock + token) * kDim + d];
      }
  // Tokens that no row sees may be NaN.
  std::vector<__nv_bfloat16> q(static_cast<std::size_t>(work.n_requests) * work.n_heads * kDim);
  for (auto& x : q) x = __float2bfloat16(normal(random) * 0.3f);
  StepInput input(1);
  input.header().n_rows = work.n_requests;
  input.append(SectionKind::items, plan.items);
  input.append(SectionKind::block_lists, plan.blocks);
  input.group(0).n_partials = plan.n_partials;
  input.group(0).n_item_major = static_cast<int>(plan.items.size());
  input.finish();
  std::vector<std::byte> step(input.bytes().begin(), input.bytes().end());

  AttentionParams p;
  p.step = device_copy(step);
  p.rows = device_copy(plan.rows);
  p.q = reinterpret_cast<const std::byte*>(device_copy(q));
  std::byte* layers = nullptr;
  const std::int64_t layer_bytes = static_cast<std::int64_t>(keys.size()) * 2;
  require(cudaMalloc(&layers, layer_bytes * n_layers), "cudaMalloc of layers");
  for (int layer = 0; layer < n_layers; ++layer)
    require(cudaMemcpy(layers + layer * layer_bytes, laid_out.data(), static_cast<std::size_t>(layer_bytes),
                       cudaMemcpyHostToDevice),
            "keys");
  const std::size_t n_out = static_cast<std::size_t>(work.n_requests) * work.n_heads * kLatent;
  const std::size_t n_states = static_cast<std::size_t>(std::max(1, plan.n_partials)) * work.n_heads;
  require(cudaMalloc(&p.out, n_out * 4), "out");
  require(cudaMemset(p.out, 0xff, n_out * 4), "out");
  require(cudaMalloc(&p.part_o, n_states * kLatent * 4), "states");
  require(cudaMalloc(&p.part_m, n_states * 4), "states");
  require(cudaMalloc(&p.part_l, n_states * 4), "states");
  p.kv = layers;
  p.block_bytes = kBlock * kDim * 2;
  p.tile_bytes = p.block_bytes;
  p.block_shift = 4;
  p.n_rows = work.n_requests;
  p.n_heads = work.n_heads;
  p.n_kv_heads = 1;
  p.head_dim = kLatent;
  p.score_scale = 1 / std::sqrt(192.0f);
  p.score_log2 = p.score_scale * 1.44269504f;
  Device device{};
  int n_sm = 0;
  require(cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, 0), "attribute");
  device.compute_capability = 90;
  require(cudaStreamCreate(&device.stream), "stream");
  launch_latent_attention<__nv_bfloat16, kLatent>(p, device, n_sm);
  require(cudaDeviceSynchronize(), "the kernel");

  if (checks) {
    std::vector<__nv_bfloat16> out(n_out);
    std::vector<float> o(n_states * kLatent), m(n_states), l(n_states);
    require(cudaMemcpy(out.data(), p.out, n_out * 2, cudaMemcpyDeviceToHost), "out");
    require(cudaMemcpy(o.data(), p.part_o, o.size() * 4, cudaMemcpyDeviceToHost), "o");
    require(cudaMemcpy(m.data(), p.part_m, m.size() * 4, cudaMemcpyDeviceToHost), "m");
    require(cudaMemcpy(l.data(), p.part_l, l.size() * 4, cudaMemcpyDeviceToHost), "l");
    double worst = 0;
    const int own_blocks = (work.own + kBlock - 1) / kBlock;
    for (int row = 0; row < work.n_requests; ++row)
      for (int head = 0; head < work.n_heads; head += 1 + work.n_heads / 7) {
        const int hi = plan.rows[static_cast<std::size_t>(row)].kv_hi;
        std::vector<double> s(static_cast<std::size_t>(hi)), y(kLatent, 0.0);
        const auto key = [&](int t) {
          const int block = t < work.shared ? t / kBlock : work.shared / kBlock + row * own_blocks + (t - work.shared) / kBlock;
          return &keys[(static_cast<std::size_t>(block) * kBlock + (t < work.shared ? t : t - work.shared) % kBlock) * kDim];
        };
        double most = -1e30, sum = 0;
        for (int t = 0; t < hi; ++t) {
          double x = 0;
          for (int d = 0; d < kDim; ++d)
            x += static_cast<double>(__bfloat162float(q[(static_cast<std::size_t>(row) * work.n_heads + head) * kDim + d])) *
                 __bfloat162float(key(t)[d]);
          s[static_cast<std::size_t>(t)] = x * p.score_scale;
          most = std::max(most, x * p.score_scale);
        }
        for (int t = 0; t < hi; ++t) {
          const double w = std::exp(s[static_cast<std::size_t>(t)] - most);
          sum += w;
          for (int d = 0; d < kLatent; ++d) y[static_cast<std::size_t>(d)] += w * __bfloat162float(key(t)[d]);
        }
        const auto& states = plan.states[static_cast<std::size_t>(row)];
        for (int d = 0; d < kLatent; ++d) {
          double got = 0;
          if (states.empty()) {
            got = __bfloat162float(out[(static_cast<std::size_t>(row) * work.n_heads + head) * kLatent + d]);
          } else {
            double top = -1e30, sum_l = 0;
            for (const int state : states)
              top = std::max(top, static_cast<double>(m[static_cast<std::size_t>(state) * work.n_heads + head]));
            for (const int state : states) {
              const std::size_t at = static_cast<std::size_t>(state) * work.n_heads + head;
              if (std::isinf(m[at])) continue;
              const double w = std::exp2(m[at] - top);
              sum_l += w * l[at];
              got += w * o[at * kLatent + d];
            }
            got /= sum_l;
          }
          const double difference = std::abs(got - y[static_cast<std::size_t>(d)] / sum);
          if (!(difference <= worst)) worst = difference;
        }
      }
    std::printf("check latent %d, %d requests x %d heads, %d shared, %d own, %s, pieces of %d: largest difference %.2e %s\n",
                kLatent, work.n_requests, work.n_heads, work.shared, work.own, work.relays ? "relayed" : "paged", work.piece,
                worst, worst < 2e-2 ? "ok" : "WRONG");
  } else {
    cudaEvent_t begin, end;
    require(cudaEventCreate(&begin), "event");
    require(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int round = 0; round < 7; ++round) {
      constexpr int kLaunches = 20;
      require(cudaEventRecord(begin, device.stream), "event");
      for (int i = 0; i < kLaunches; ++i) {
        p.kv = layers + (i % n_layers) * layer_bytes;
        launch_latent_attention<__nv_bfloat16, kLatent>(p, device, n_sm);
      }
      require(cudaEventRecord(end, device.stream), "event");
      require(cudaEventSynchronize(end), "events");
      float ms = 0;
      require(cudaEventElapsedTime(&ms, begin, end), "time");
      times.push_back(ms * 1000 / kLaunches);
    }
    std::sort(times.begin(), times.end());
    const double us = times[3];
    double n_keys = 0, n_products = 0;
    for (const AttentionItem& item : plan.items) {
      n_keys += item.kv_end - item.kv_begin;
      n_products += static_cast<double>(item.kv_end - item.kv_begin) * item.n_rows * work.n_heads;
    }
    std::printf("| %d | %3d | %3d | %5d | %4d | %-7s | %4d | %3d | %8.1f | %5.2f to %5.2f | %5.0f | %4.0f |\n", kLatent,
                work.n_heads, work.n_requests, work.shared, work.own, work.relays ? "relayed" : "paged", work.piece,
                static_cast<int>(plan.items.size()), us, times.front() / us, times.back() / us, n_keys * kDim * 2 / us / 1e3,
                n_products * 2 * (kDim + kLatent) / us / 1e6);
  }
  for (const void* memory :
       {static_cast<const void*>(p.step), static_cast<const void*>(p.rows), static_cast<const void*>(p.q),
        static_cast<const void*>(layers), static_cast<const void*>(p.out), static_cast<const void*>(p.part_o),
        static_cast<const void*>(p.part_m), static_cast<const void*>(p.part_l)})
    cudaFree(const_cast<void*>(memory));
}

}  // namespace

int main() {
  for (const bool relays : {false, true})
    for (const int piece : {1 << 20, 112, 64}) {
      run<512>({3, 20, 96, 77, relays, piece}, true);
      run<512>({5, 16, 160, 33, relays, piece}, true);
      run<256>({4, 32, 128, 50, relays, piece}, true);
      run<512>({2, 128, 256, 17, relays, piece, 1}, true);
      run<512>({7, 1, 64, 19, relays, piece}, true);
    }
  std::printf(
      "\n| latent | heads | requests | shared | own | arm | piece | items | us | spread | GB/s | TFLOP/s "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int heads : {20, 128}) {
    run<512>({1, heads, 8192, 192, false, 64}, false);
    run<512>({32, heads, 8192, 192, false, 2112}, false);
    for (const int piece : {256, 768, 1024}) run<512>({32, heads, 8192, 192, true, piece, 3}, false);
  }
  run<512>({1, 20, 32768, 192, false, 256}, false);
  run<512>({32, 20, 8192, 64, true, 768, 3}, false);
  run<512>({128, 20, 2048, 192, false, 2240}, false);
  run<512>({128, 20, 2048, 192, true, 512, 3}, false);
  run<256>({32, 32, 8192, 192, false, 2112}, false);
  run<256>({32, 32, 8192, 192, true, 512, 2}, false);
  return 0;
}
