/// Samples with hand-written metadata on a backend, and computes the exact distribution in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/batch.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton::testing {

/// A CPU with its best instruction set, and CUDA if it is available. Other tests cover the differences between
/// instruction sets.
inline std::vector<TestBackend> one_of_each_device() {
  std::vector<TestBackend> chosen;
  for (const TestBackend& on : test_backends())
    if (chosen.empty() || chosen.back().device != on.device) chosen.push_back(on);
  return chosen;
}

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// A row of logits.
inline std::vector<float> normal_logits(std::uint32_t seed, std::size_t n, float deviation = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// A sample with its lists.
struct AskedSample {
  SamplingMetadata sampling = {};
  std::vector<TokenCount> counts = {};
  std::vector<TokenBias> biases = {};
  std::vector<TokenBan> bans = {};
  std::vector<TokenId> allowed = {};
  std::vector<TokenId> mask = {};  ///< the tokens that a mask allows
  bool has_mask = false;
};

/// Samples from rows of logits, with a slot table of its own.
class Sampler {
 public:
  Sampler(Backend& backend, std::int32_t n_slots) : backend_(backend), slots_(static_cast<std::size_t>(n_slots)) {}
  SlotState& slot(std::int32_t index) { return slots_[static_cast<std::size_t>(index)]; }

  std::vector<SampleResult> run(const std::vector<std::vector<float>>& logits, std::vector<AskedSample> asked) {
    StepInput step;
    std::vector<SamplingMetadata> samples;
    std::vector<TokenCount> counts;
    std::vector<TokenBias> biases;
    std::vector<TokenBan> bans;
    std::vector<TokenId> allowed;
    const auto add = [](auto& all, const auto& own) {
      const Range range{static_cast<std::int32_t>(all.size()), static_cast<std::int32_t>(own.size())};
      all.insert(all.end(), own.begin(), own.end());
      return range;
    };
    rows_of_masks_.clear();
    words_of_masks_.clear();
    for (AskedSample& one : asked) {
      if (one.sampling.max_tokens == 0) one.sampling.max_tokens = 1 << 30;
      if (one.has_mask) one.sampling.mask = add_mask(one.mask, logits[0].size());
      one.sampling.counts = add(counts, one.counts);
      one.sampling.biases = add(biases, one.biases);
      one.sampling.bans = add(bans, one.bans);
      one.sampling.allowed = add(allowed, one.allowed);
      samples.push_back(one.sampling);
    }
    step.append(SectionKind::samples, samples);
    step.append(SectionKind::token_counts, counts);
    step.append(SectionKind::token_biases, biases);
    step.append(SectionKind::token_bans, bans);
    step.append(SectionKind::allowed_ids, allowed);
    step.finish();
    return run(logits, step);
  }
  std::vector<SampleResult> run(const std::vector<std::vector<float>>& logits, const std::vector<SamplingMetadata>& samples) {
    std::vector<AskedSample> asked;
    for (const SamplingMetadata& sampling : samples) asked.push_back({.sampling = sampling});
    return run(logits, std::move(asked));
  }
  SampleResult run_one(const std::vector<float>& logits, const AskedSample& asked) { return run({logits}, {asked})[0]; }
  SampleResult run_one(const std::vector<float>& logits, const SamplingMetadata& sampling) {
    return run_one(logits, AskedSample{.sampling = sampling});
  }

 private:
  /// Adds a mask; equal ones next to each other share a row of bits, as in the engine.
  std::int32_t add_mask(std::span<const TokenId> tokens, std::size_t n_vocab) {
    const std::size_t n_words = (n_vocab + 31) / 32;
    std::vector<std::int32_t> words(n_words, 0);
    for (const TokenId token : tokens) {
      const auto id = static_cast<std::uint32_t>(token);
      words[id / 32] = static_cast<std::int32_t>(static_cast<std::uint32_t>(words[id / 32]) | std::uint32_t{1} << (id % 32));
    }
    if (words_of_masks_.empty() || !std::ranges::equal(std::span(words_of_masks_).last(n_words), words))
      words_of_masks_.insert(words_of_masks_.end(), words.begin(), words.end());
    rows_of_masks_.push_back(static_cast<std::int32_t>(words_of_masks_.size() / n_words) - 1);
    return static_cast<std::int32_t>(rows_of_masks_.size()) - 1;
  }
  std::vector<SampleResult> run(const std::vector<std::vector<float>>& logits, const StepInput& step) {
    const auto n_samples = static_cast<std::int64_t>(logits.size());
    const auto n_vocab = static_cast<std::int64_t>(logits[0].size());
    HostTensor flat(DType::f32, {n_samples, n_vocab});
    for (std::size_t r = 0; r < logits.size(); ++r)
      std::memcpy(flat.bytes.data() + r * logits[r].size() * 4, logits[r].data(), logits[r].size() * 4);
    std::vector<SampleResult> results(logits.size());
    const auto table = [](auto& elements) {
      return TensorView{reinterpret_cast<std::byte*>(elements.data()),
                        DType::u8,
                        {static_cast<std::int64_t>(elements.size()), static_cast<std::int64_t>(sizeof(elements[0]))}};
    };
    const TensorView host_slots = table(slots_);
    const TensorView host_results = table(results);
    auto device_logits = backend_.allocate(flat.bytes.size());
    auto device_slots = backend_.allocate(host_slots.size_bytes());
    auto device_results = backend_.allocate(host_results.size_bytes());
    EXPECT_TRUE(device_logits && device_slots && device_results);
    const TensorView logits_view = device_logits->view(DType::f32, flat.view().shape);
    const TensorView slots_view = device_slots->view(DType::u8, host_slots.shape);
    const TensorView results_view = device_results->view(DType::u8, host_results.shape);
    backend_.copy_from_host(logits_view, flat.view());
    backend_.copy_from_host(slots_view, host_slots);
    const auto on_device = [&](const std::vector<std::int32_t>& numbers, Shape shape) {
      HostTensor host(DType::i32, shape);
      std::ranges::copy(std::as_bytes(std::span(numbers)), host.bytes.data());
      return OnDevice(backend_, host);
    };
    const std::int64_t n_words = (n_vocab + 31) / 32;
    const OnDevice row_of = on_device(rows_of_masks_, {std::ssize(rows_of_masks_)});
    const OnDevice bits = on_device(words_of_masks_, {std::ssize(words_of_masks_) / n_words, n_words});
    const TokenMasks masks = rows_of_masks_.empty() ? TokenMasks{} : TokenMasks{row_of.view(), bits.view()};
    sample(backend_, {backend_.upload_step(step), logits_view, slots_view, results_view, masks});
    backend_.synchronize();
    backend_.copy_to_host(host_slots, slots_view);
    backend_.copy_to_host(host_results, results_view);
    return results;
  }

  Backend& backend_;
  std::vector<SlotState> slots_;
  std::vector<std::int32_t> rows_of_masks_;
  std::vector<std::int32_t> words_of_masks_;
};

/// Probabilities of all tokens by the definition in ops.h, without the methods of any backend. With temperature 0 the
/// chosen token has probability 1.
inline std::vector<double> exact_distribution(const std::vector<float>& logits, const AskedSample& asked, TokenId last_token,
                                              std::int32_t n_generated) {
  const SamplingMetadata& sampling = asked.sampling;
  std::vector<double> x(logits.begin(), logits.end());
  const auto at = [&](TokenId id) -> double& { return x[static_cast<std::size_t>(id)]; };
  if (asked.has_mask) {
    for (std::size_t id = 0; id < x.size(); ++id)
      if (std::ranges::find(asked.mask, static_cast<TokenId>(id)) == asked.mask.end()) x[id] = kMinusInfinity;
  }
  for (const TokenBias& bias : asked.biases) at(bias.id) += static_cast<double>(bias.bias);
  std::map<TokenId, int> counts;
  for (const TokenCount& count : asked.counts) counts[count.id] = count.count;
  if (sampling.counts_last_token != 0) ++counts[last_token];
  for (const auto& [id, count] : counts) {
    const auto repetition = static_cast<double>(sampling.repetition_penalty);
    at(id) = at(id) > 0 ? at(id) / repetition : at(id) * repetition;
    if (count > 0)
      at(id) -= static_cast<double>(sampling.presence_penalty) + static_cast<double>(sampling.frequency_penalty) * count;
  }
  for (const TokenBan& ban : asked.bans)
    if (ban.after < 0 || ban.after == last_token) at(ban.banned) = kMinusInfinity;
  for (std::int32_t i = 0; i < sampling.n_stop_ids && n_generated < sampling.min_tokens; ++i)
    at(sampling.stop_ids[static_cast<std::size_t>(i)]) = kMinusInfinity;
  if (!asked.allowed.empty()) {
    for (std::size_t id = 0; id < x.size(); ++id)
      if (std::ranges::find(asked.allowed, static_cast<TokenId>(id)) == asked.allowed.end()) x[id] = kMinusInfinity;
  }

  std::vector<std::size_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  std::vector<double> p(x.size(), 0);
  const auto temperature = static_cast<double>(sampling.temperature);
  if (temperature == 0) {
    p[ids[0]] = 1;
    return p;
  }
  for (std::size_t id = 0; id < x.size(); ++id) p[id] = std::exp((x[id] - x[ids[0]]) / temperature);
  std::erase_if(ids, [&](std::size_t id) { return p[id] == 0 || p[id] < static_cast<double>(sampling.min_p); });
  if (sampling.top_k > 0 && ids.size() > static_cast<std::size_t>(sampling.top_k))
    ids.resize(static_cast<std::size_t>(sampling.top_k));
  double total = 0;
  for (const std::size_t id : ids) total += p[id];
  if (sampling.top_p < 1) {
    double mass = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      mass += p[ids[i]];
      if (mass < static_cast<double>(sampling.top_p) * total) continue;
      ids.resize(i + 1);
      total = mass;
      break;
    }
  }
  std::vector<double> kept(x.size(), 0);
  for (const std::size_t id : ids) kept[id] = p[id] / total;
  return kept;
}

/// Samples 20,000 tokens and compares their counts with `expected` by chi-square. `slot` is the slot before each
/// sample.
inline void expect_drawn(Backend& backend, const std::vector<float>& logits, AskedSample asked,
                         const std::vector<double>& expected, const SlotState& slot = {}) {
  constexpr int kDraws = 20000;
  constexpr int kBatch = 500;
  std::vector<double> counts(logits.size(), 0);
  for (int draw = 0; draw < kDraws; draw += kBatch) {
    Sampler sampler(backend, kBatch);
    std::vector<AskedSample> all;
    for (std::int32_t i = 0; i < kBatch; ++i) {
      sampler.slot(i) = slot;
      asked.sampling.slot = i;
      asked.sampling.seed = static_cast<std::uint64_t>(draw + i) * 7919 + 5;
      all.push_back(asked);
    }
    for (const SampleResult& result : sampler.run(std::vector<std::vector<float>>(kBatch, logits), all))
      counts[static_cast<std::size_t>(result.token)] += 1;
  }
  double chi_square = 0;
  double n_cells = 0;
  double rare = 0;  // tokens that are expected fewer than five times form one cell
  double rare_expected = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "token " << id << " should never be chosen";
      continue;
    }
    const double wanted = kDraws * expected[id];
    if (wanted < 5) {
      rare += counts[id];
      rare_expected += wanted;
      continue;
    }
    n_cells += 1;
    chi_square += std::pow(counts[id] - wanted, 2) / wanted;
  }
  if (rare_expected >= 1) {
    n_cells += 1;
    chi_square += std::pow(rare - rare_expected, 2) / rare_expected;
  }
  // The distribution has mean n and variance 2n: five standard deviations above the mean.
  const double n_free = n_cells - 1;
  EXPECT_LE(chi_square, n_free + 5 * std::sqrt(2.0 * n_free) + 5);
}

}  // namespace baton::testing
