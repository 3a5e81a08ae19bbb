/// The AMX attention loops, with emulated tiles on every processor and with real ones on processors with AMX.
#include "kernels/cpu/attention/attention_tiles.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"
#include "support/emulated_tiles.h"
#include "support/host_tensor.h"

namespace baton::cpu {
namespace {

using baton::testing::EmulatedTiles;
using baton::testing::epsilon;
using baton::testing::HostTensor;
using baton::testing::random_tensor;
using baton::testing::relative_error;

/// A chunk of random queries, keys, values and weights, and a kernel's results. Tiles outside [first, end) are NaN.
struct Chunk {
  Chunk(std::mt19937& random, int n_rows, int head_dim, int first, int end)
      : q(random_tensor(random, DType::bf16, {n_rows, kStateRow * 2})),
        keys(random_tensor(random, DType::bf16, {kChunkTokens, head_dim})),
        values(random_tensor(random, DType::bf16, {kChunkTokens, head_dim})),
        weights(random_tensor(random, DType::bf16, {n_rows, kChunkTokens * 2})),
        k_parts(DType::bf16, {kChunkTokens, head_dim}),
        v_parts(DType::bf16, {kChunkTokens, head_dim}),
        scores(DType::f32, {n_rows, kChunkTokens}),
        chunk_o(DType::f32, {n_rows, head_dim}) {
    for (int token = first * 16; token < end * 16; ++token)
      for (int i = 0; i < head_dim; ++i) {
        const std::int64_t part = token / 16 * 16 * head_dim;
        const auto from = static_cast<std::int64_t>(token) * head_dim + i;
        k_parts.set(part + i / 2 * 32 + token % 16 * 2 + i % 2, static_cast<float>(keys.at(from)));
        v_parts.set(part + token % 16 / 2 * head_dim * 2 + i * 2 + token % 2, static_cast<float>(values.at(from)));
      }
    for (int tile = 0; tile < kTilesOfChunk; ++tile) {
      k_tiles.push_back(k_parts.bytes.data() + tile * 32 * head_dim);
      v_tiles.push_back(v_parts.bytes.data() + tile * 32 * head_dim);
    }
    task.k_tiles = k_tiles.data();
    task.v_tiles = v_tiles.data();
    task.k_ahead = k_tiles.data();
    task.first_tile = first;
    task.end_tile = end;
    task.n_rows = n_rows;
    task.head_dim = head_dim;
    task.v_dim = head_dim;
    task.q = q.bytes.data();
    task.weights = weights.bytes.data();
    task.scores = scores.view().elements<float>().data();
    task.chunk_o = chunk_o.view().elements<float>().data();
  }

  HostTensor q, keys, values, weights, k_parts, v_parts, scores, chunk_o;
  std::vector<const std::byte*> k_tiles, v_tiles;
  ChunkTask task{};
};

template <class T>
void compare_with_float64(const std::string& name) {
  std::mt19937 random(1);
  for (const int head_dim : {32, 64, 96, 128, 256})
    for (const int n_rows : {1, 7, 16, 17, 32})
      for (const auto& [first, end] : {std::pair{0, kTilesOfChunk}, {3, 8}, {5, 6}, {12, 15}}) {
        const std::string where = fmt::format("{}: {} rows of {}, tiles {} to {}", name, n_rows, head_dim, first, end);
        Chunk chunk(random, n_rows, head_dim, first, end);
        score_by_tiles<T>(chunk.task);
        value_by_tiles<T>(chunk.task);
        T::release();
        const int n_tokens = (end - first) * 16;
        HostTensor scores(DType::f32, {n_rows, n_tokens});
        std::vector<double> expected_scores;
        std::vector<double> expected_o;
        for (int row = 0; row < n_rows; ++row) {
          for (int i = 0; i < n_tokens; ++i) {
            const int token = first * 16 + i;
            double sum = 0;
            for (int d = 0; d < head_dim; ++d)
              sum += chunk.q.at(row * kStateRow * 2 + d) * chunk.keys.at(static_cast<std::int64_t>(token) * head_dim + d);
            expected_scores.push_back(sum);
            scores.set(row * n_tokens + i, static_cast<float>(chunk.scores.at(row * kChunkTokens + token)));
          }
          for (int d = 0; d < head_dim; ++d) {
            double sum = 0;
            for (int token = first * 16; token < end * 16; ++token)
              sum += chunk.weights.at(row * kChunkTokens * 2 + token) *
                     chunk.values.at(static_cast<std::int64_t>(token) * head_dim + d);
            expected_o.push_back(sum);
          }
        }
        // Sums of exact products in f32: c = 4, growth = the root of their number.
        EXPECT_LE(relative_error(scores, expected_scores), 4 * epsilon(DType::f32) * std::sqrt(head_dim)) << where;
        EXPECT_LE(relative_error(chunk.chunk_o, expected_o), 4 * epsilon(DType::f32) * std::sqrt(n_tokens)) << where;
      }
}

TEST(AttentionTiles, scores_and_values_equal_float64) {
  compare_with_float64<EmulatedTiles>("emulated");
  if (best_cpu_isa() >= CpuIsa::amx_bf16) compare_with_float64<AmxTiles>("amx");
}

}  // namespace
}  // namespace baton::cpu
