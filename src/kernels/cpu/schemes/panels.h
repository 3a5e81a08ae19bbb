/// How weights in 8 and 4 bits lie in memory: panels of kPanelColumns outputs, step after step, in the order in which
/// vectors of each arithmetic take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/check.h"
#include "core/dtype.h"
#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/stored_matrix.h"

namespace baton::cpu {

/// What a 4-byte word of a row of x holds: one f32, two bf16, or four integers of 8 bits (int8.h).
enum class PanelWords : std::uint8_t { f32, bf16, int8 };

/// A step of a panel meets one word of each row of x, as in PanelMatrix: value 0 of each of its 64 columns in f32, values
/// 0 and 1 in bf16, values 0 to 3 in int8, which f8 and f4 do not have.
///
///     f32   8 bits  byte c                          column c
///           4 bits  half byte j of 4-byte word i    column 8 j + i
///     bf16  8 bits  byte 64 t + 16 q + 8 h + 2 m + v    value v of column 32 t + 16 h + 4 q + m
///           4 bits  half byte j of 2-byte word 2 i + v    value v of column 16 j + i
///     int8  8 bits  byte 4 c + v                        value v of column c
///           4 bits  half byte j of byte 64 h + 4 m + v  value v of column 32 h + 16 j + m
///
/// Half bytes count from the low bits. What the bits mean:
///
///     f8, f4, all of int8    as in StoredMatrix
///     i4                     value - 8 in two's complement
///     i8, f32                value - 128 in two's complement
///     i8, bf16               value - 127.5: sign, and a number m of 7 bits that stands for m + 0.5
constexpr std::int64_t values_per_word(PanelWords words) {
  return words == PanelWords::f32 ? 1 : words == PanelWords::bf16 ? 2 : 4;
}

/// Bytes of a packed step.
constexpr std::int64_t packed_step_bytes(WeightScheme scheme, PanelWords words) {
  return row_value_bytes(scheme, kPanelColumns * values_per_word(words));
}

/// Rows of StoredMatrix::values that become a panel.
struct PanelRows {
  const std::uint8_t* values = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t n_rows = 0;  ///< at most kPanelColumns; missing ones are read as zero bits
};

/// Writes a panel of n_steps steps.
void pack_panel(const PanelRows& rows, WeightScheme scheme, PanelWords words, std::int64_t n_steps, std::byte* panel);

/// What a kernel multiplies: one panel and any number of rows.
///
///     sums[r, c] += over groups g: scale[g, c] * (sum over the group's steps of x's word times the weight's word
///                                                  + (middle - zero[g, c]) * x_sums[r, g])
/// `middle` is the value whose packed bits stand for 0. Each sum of a group runs over its steps in order in one f32
/// accumulator, whatever the number of other rows.
struct SchemeTask {
  const std::byte* values = nullptr;  ///< n_steps packed steps
  std::int64_t n_steps = 0;
  std::int64_t group_steps = 0;       ///< steps that share a scale; the last group may have fewer
  const std::byte* scales = nullptr;  ///< [groups, kPanelColumns] of scale_dtype, as in StoredMatrix
  DType scale_dtype = DType::f32;
  const std::uint8_t* zeros = nullptr;  ///< [groups, kPanelColumns], or null: the middle of the integers
  const std::byte* x = nullptr;         ///< n_rows rows of n_steps words, x_stride bytes apart
  std::int64_t x_stride = 0;
  std::int64_t n_rows = 0;
  const float* x_sums = nullptr;  ///< [n_rows, groups]: sums of x over the columns of a scale, where they are needed
  float* sums = nullptr;          ///< [n_rows, kPanelColumns]
  float* partial = nullptr;       ///< [n_rows, kPanelColumns], scratch memory
  std::byte* tile = nullptr;      ///< kTileSteps * kStepBytes, scratch memory
};

/// Steps that are widened at once: half of a first-level cache of 32 KB.
inline constexpr std::int64_t kTileSteps = 64;

struct SchemeKernel {
  void (*run)(const SchemeTask& task) = nullptr;
  float middle = 0;

  /// Whether x_sums are read.
  bool needs_sums(WeightScheme scheme, bool has_zeros) const {
    if (scheme == WeightScheme::f8 || scheme == WeightScheme::f4) return false;
    return has_zeros || middle != (scheme == WeightScheme::i4 ? 8.0f : 128.0f);
  }
};

/// Kernels of one instruction set, or none for bf16.
struct SchemeKernels {
  const char* name;
  SchemeKernel f8, i8, i4, f4;

  const SchemeKernel& of(WeightScheme scheme) const {
    switch (scheme) {
      case WeightScheme::f8: return f8;
      case WeightScheme::i8: return i8;
      case WeightScheme::i4: return i4;
      case WeightScheme::f4: return f4;
      case WeightScheme::dense: break;
    }
    check_failed("scheme_kernels: dense weights have other kernels");
  }
};

extern const SchemeKernels kSchemeF32Baseline, kSchemeF32Avx2, kSchemeF32Avx512, kSchemeBf16, kSchemeBf16Vbmi;

/// The kernels for x of `dtype`: bf16 from avx512_bf16 on. `has_vbmi` is whether the processor looks up bytes
/// (AVX-512 VBMI); it changes no bit of a result.
const SchemeKernels& scheme_kernels(CpuIsa isa, bool has_vbmi, DType dtype);

}  // namespace baton::cpu
