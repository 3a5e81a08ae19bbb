/// The AMX tile registers: eight registers of at most 16 rows of 64 bytes.
///
/// A kernel is a template over a class with the functions of AmxTiles, so that tests can run its loops on processors
/// without AMX. Included only by files whose functions are called after the processor was checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::cpu {
namespace {

inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;

/// The shapes of all registers, in the layout that the processor reads.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::array<std::uint8_t, 14> reserved{};
  std::array<std::uint16_t, 16> row_bytes{};
  std::array<std::uint8_t, 16> rows{};

  /// Register `tile` has n_rows rows of n_bytes bytes.
  void set(int tile, int n_rows, int n_bytes = kTileRowBytes) {
    row_bytes[static_cast<std::size_t>(tile)] = static_cast<std::uint16_t>(n_bytes);
    rows[static_cast<std::size_t>(tile)] = static_cast<std::uint8_t>(n_rows);
  }
};
static_assert(sizeof(TileShapes) == 64);

/// The processor's instructions, in assembler instead of GCC 12's intrinsics: those take only literal register
/// numbers, and their loads do not tell the compiler that they read memory.
struct AmxTiles {
  /// Sets the shapes of the calling thread's registers and zeroes them.
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  /// Ends the use of the registers, so that the system no longer saves them for this thread.
  static void release() { asm volatile("tilerelease"); }
  template <int Tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  /// Reads the tile's rows, `stride` bytes apart.
  template <int Tile>
  static void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  static void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  /// sums[r][c] += sum over words k of a[r][k] times b[k][c], pairs of bf16 into f32.
  template <int Sums, int A, int B>
  static void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
  }
};

}  // namespace
}  // namespace baton::cpu
