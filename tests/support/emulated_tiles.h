/// Emulates the AMX tile registers, for kernels that are templates over them (kernels/cpu/tiles.h).
#pragma once

#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "core/dtype.h"
#include "kernels/cpu/tiles.h"

namespace baton::testing {
namespace {  // as what it is made of: kernels/cpu/tiles.h is each file's own

/// Registers of the calling thread. The test fails if a tile has no shape or shapes do not match.
struct EmulatedTiles {
  static void configure(const cpu::TileShapes& of) {
    shapes() = of;
    tiles() = {};
  }
  static void release() { shapes() = {.palette = 0}; }
  template <int Tile>
  static void zero() {
    EXPECT_GT(n_rows(Tile), 0) << "tile " << Tile;
    tiles()[Tile] = {};
  }
  template <int Tile>
  static void load(const void* from, std::int64_t stride) {
    zero<Tile>();
    for (int row = 0; row < n_rows(Tile); ++row)
      std::memcpy(tiles()[Tile][static_cast<std::size_t>(row)].data(), static_cast<const std::byte*>(from) + row * stride,
                  row_bytes(Tile));
  }
  template <int Tile>
  static void store(void* to, std::int64_t stride) {
    EXPECT_GT(n_rows(Tile), 0) << "tile " << Tile;
    for (int row = 0; row < n_rows(Tile); ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * stride, tiles()[Tile][static_cast<std::size_t>(row)].data(),
                  row_bytes(Tile));
  }
  /// Even and odd elements of a row have separate sums, as on the processor.
  template <int Sums, int A, int B>
  static void multiply_add() {
    const std::size_t n_words = row_bytes(A) / 4;
    EXPECT_EQ(n_rows(Sums), n_rows(A));
    EXPECT_EQ(row_bytes(Sums), row_bytes(B));
    EXPECT_EQ(n_words, static_cast<std::size_t>(n_rows(B)));
    for (std::size_t r = 0; r < static_cast<std::size_t>(n_rows(Sums)); ++r)
      for (std::size_t c = 0; c < row_bytes(Sums) / 4; ++c) {
        std::array<float, 2> sums{};
        for (std::size_t word = 0; word < n_words; ++word)
          for (std::size_t half = 0; half < 2; ++half)
            sums[half] += number_at(A, r, 2 * word + half) * number_at(B, word, 2 * c + half);
        float sum;
        std::memcpy(&sum, tiles()[Sums][r].data() + 4 * c, 4);
        sum += sums[0] + sums[1];
        std::memcpy(tiles()[Sums][r].data() + 4 * c, &sum, 4);
      }
  }

 private:
  using Tile = std::array<std::array<std::byte, cpu::kTileRowBytes>, cpu::kTileRows>;

  static cpu::TileShapes& shapes() {
    static thread_local cpu::TileShapes of{.palette = 0};
    return of;
  }
  static std::array<Tile, 8>& tiles() {
    static thread_local std::array<Tile, 8> of{};
    return of;
  }
  static int n_rows(int tile) { return shapes().palette == 1 ? shapes().rows[static_cast<std::size_t>(tile)] : 0; }
  static std::size_t row_bytes(int tile) { return shapes().row_bytes[static_cast<std::size_t>(tile)]; }
  static float number_at(int tile, std::size_t row, std::size_t index) {
    BFloat16 number(0.0f);
    std::memcpy(&number, tiles()[static_cast<std::size_t>(tile)][row].data() + 2 * index, 2);
    return static_cast<float>(number);
  }
};

}  // namespace
}  // namespace baton::testing
