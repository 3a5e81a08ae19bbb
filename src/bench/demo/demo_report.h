/// What `baton demo` prints: first what reading a shared prompt once saves, then the answers of the small model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/demo/demo_answer.h"
#include "bench/engine/decode_bench.h"

namespace baton {

/// The results of one arm over HTTP.
struct DemoArm {
  std::string attention;
  std::vector<DemoAnswer> answers;
  std::int64_t n_right = 0;
  std::int64_t n_tokens = 0;
  double seconds = 0;
  double median_first_token_s = 0;
  std::int64_t kv_bytes_requested = 0;
  std::int64_t kv_bytes_saved = 0;
  std::int32_t prefix_tokens = 0;

  double tokens_per_s() const { return static_cast<double>(n_tokens) / seconds; }
};

/// Requests that decode behind a shared prompt of `n_shared` tokens, with relayed and with paged attention, in this order: the rates,
/// the keys and values that were read, and in a sentence how far the first is ahead.
std::string sharing_text(std::span<const DecodeRun> runs, std::int32_t n_shared);

/// The answers of the small model: how many are right, what was read, and the times, with why they are about the same in both arms.
/// `is_large_known`: sharing_text stands above it.
std::string answers_text(const DemoArm& relay, const DemoArm& paged, bool is_large_known);

}  // namespace baton
