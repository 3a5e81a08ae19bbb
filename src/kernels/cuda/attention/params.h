/// The parameters of one launch of attention or merging: device addresses and sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/batch.h"

namespace baton::cuda {

struct AttentionParams {
  const std::byte* step =
      nullptr;  ///< the uploaded step; its StepHeader comes first, so a graph finds new counts in old places
  int group = 0;
  const TokenRow* rows = nullptr;
  const std::byte* q = nullptr;  ///< [rows, n_heads, head_dim], 16-bit
  std::byte* out = nullptr;      ///< the same shape, 16-bit or f32
  float* part_o = nullptr;
  float* part_m = nullptr;
  float* part_l = nullptr;
  const std::byte* kv = nullptr;  ///< the layer's keys and values, see kv_layout.h
  std::int64_t block_bytes = 0;
  std::int64_t tile_bytes = 0;
  int block_shift = 0;  ///< log2 of the number of tokens in a block
  int n_rows = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float score_scale = 0;  ///< first factor of the scores: scale * k_scale, divided by the soft-cap if there is one
  float score_log2 = 0;   ///< second factor, after the soft-cap's tanh: log2 e, times the soft-cap
  bool has_softcap = false;
  bool out_is_f32 = false;
  /// Two kernels share the work list: the one with wide tiles is launched first, and the other runs beside it.
  bool has_both_kernels = false;
  float v_scale = 1;
  const float* sinks = nullptr;       ///< [n_heads], or null
  std::byte* chunk_states = nullptr;  ///< MemoryPlan::device_bytes, or null
};

}  // namespace baton::cuda
