/// Makes words of a skinny GEMM from the values of a packed StoredMatrix, a tile at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/skinny_gemm.h"
#include "kernels/stored_matrix.h"

namespace baton::cpu {

/// Steps of one panel: in f32 a step has 64 values, in bf16 128, in the order of PanelMatrix. Packed, a value takes a
/// byte,
/// or with WeightScheme::i4 half a byte: byte i of a pair of steps has value i of the first step in its low bits and
/// of
/// the second in its high bits.
struct PackedSteps {
  WeightScheme scheme = WeightScheme::f8;
  DType dtype = DType::f32;  ///< of the words: f32 or bf16
  const std::byte* values = nullptr;
  const std::uint8_t* zeros = nullptr;  ///< for each value of a step; f8 has none
  std::int64_t n_steps = 0;             ///< even for i4
};

/// Bytes of a packed step.
constexpr std::int64_t packed_step_bytes(WeightScheme scheme, DType dtype) {
  return kPanelColumns * (dtype == DType::bf16 ? 2 : 1) / (scheme == WeightScheme::i4 ? 2 : 1);
}

/// Factor that the words lack: f8 is widened through float16, whose exponents are 8 smaller.
constexpr float factor_of_words(WeightScheme scheme) { return scheme == WeightScheme::f8 ? 0x1p8f : 1.0f; }

/// Writes the words of `steps`, kStepBytes for each: value minus zero, divided by factor_of_words. Exact.
void widen(const PackedSteps& steps, std::byte* words);

}  // namespace baton::cpu
