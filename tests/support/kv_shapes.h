/// The keys and values that each backend stores: dtypes and head sizes for tests that try all of them.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "support/test_backends.h"

namespace baton::testing {

inline std::vector<DType> stored_dtypes(const TestBackend& test) {
  return test.is_cuda() ? std::vector{DType::bf16, DType::f16, DType::f8_e4m3} : std::vector{DType::f32, DType::bf16};
}

/// Head sizes with and without padding, including each padded size.
inline std::vector<int> stored_head_dims(const TestBackend& test, DType dtype) {
  if (!test.is_cuda()) return {2, 8, 64, 66, 80, 96, 128, 256};
  if (dtype != DType::f8_e4m3) return {8, 40, 64, 80, 96, 112, 128, 160, 256};
  return {8, 40, 64, 112, 128};
}

/// Keys whose beginnings are values: KvShape::latent_dim, and the elements after it.
struct LatentKeys {
  int latent_dim;
  int rotary_dim;

  int head_dim() const { return latent_dim + rotary_dim; }
};

/// The latent keys that a backend stores in a dtype; the first two are those of CUDA.
inline std::vector<LatentKeys> stored_latents(const TestBackend& test, DType dtype) {
  if (!test.is_cuda()) return {{512, 64}, {256, 64}, {64, 32}, {48, 16}, {30, 2}};
  if (dtype == DType::f8_e4m3 || test.backend.info().features != "sm_90") return {};
  return {{512, 64}, {256, 64}};
}

}  // namespace baton::testing
