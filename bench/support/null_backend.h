/// A device that computes nothing and returns every result at once, so that only the host's time remains.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "support/attention_makespan.h"

namespace baton::bench {

/// Every token is 0; a sequence ends at its max_tokens. Memory is the host's and zeroed; a KV storage has no memory.
class NullBackend final : public Backend {
 public:
  static constexpr std::int64_t kMemoryBytes = std::int64_t{64} << 30;

  /// Microseconds that calls of this backend took so far; they do not count as the engine's time.
  double own_us() const { return own_us_; }

  BackendInfo info() const override {
    BackendInfo info;
    info.name = "null";
    info.device = "computes nothing";
    info.memory_bytes = kMemoryBytes;
    return info;
  }
  BackendCapabilities capabilities() const override { return {.is_asynchronous = true, .deals_pairs = true}; }
  BackendTuning tuning() const override {
    return {.attention_costs = testing::costs_of_132_blocks(), .max_captured_rows = 512};
  }
  std::int64_t free_memory_bytes() const override { return kMemoryBytes; }
  Result<Buffer> allocate(std::size_t size_bytes) override {
    return Buffer(static_cast<std::byte*>(std::calloc(1, size_bytes)), size_bytes,
                  [](std::byte* data, std::size_t) { std::free(data); });
  }
  Result<Buffer> allocate_host(std::size_t size_bytes) override { return allocate(size_bytes); }
  void copy_from_host(TensorView, ConstTensorView) override {}
  void copy_to_host(TensorView, ConstTensorView) override {}
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override {
    return std::make_unique<Readback>(*this, size_bytes / sizeof(SampleResult));
  }
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override {
    return std::make_unique<Upload>(size_bytes);
  }
  Result<void> reserve_steps(std::size_t) override { return {}; }
  std::int64_t kv_block_bytes(const KvShape& shape) const override { return shape.block_bytes(); }
  StepView upload_step(const StepInput& step) override {
    const auto begin = Clock::now();
    const StepView view = step.view();
    if (n_generated_.empty()) n_generated_.resize(1 << 16, 0);
    for (const std::int32_t slot : view.span<std::int32_t>(SectionKind::reset_slots))
      n_generated_[static_cast<std::size_t>(slot)] = 0;
    results_.clear();
    if (view.section(SectionKind::samples).offset > 0) {  // not in a step to capture for
      for (const SamplingMetadata& sample : view.span<SamplingMetadata>(SectionKind::samples)) {
        const std::int32_t n = ++n_generated_[static_cast<std::size_t>(sample.slot)];
        results_.push_back(n - sample.max_tokens);
      }
    }
    own_us_ += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    return view;
  }
  void synchronize() override {}
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override {
    operations();
    return std::make_unique<Graph>();
  }
  double time_us(const std::function<void()>&) override { return 0; }
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view) override {
    auto matrix = std::make_unique<PackedMatrix>();
    matrix->n = weight.shape[0];
    matrix->k = weight.shape[1];
    matrix->dtype = dtype;
    return matrix;
  }
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view,
                                                      const ReadExpert&) override {
    auto experts = std::make_unique<PackedExperts>();
    experts->n_experts = shape[0];
    experts->n = shape[1];
    experts->k = shape[2];
    experts->dtype = dtype;
    return experts;
  }
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView&, std::string_view) override {
    return std::make_unique<PackedHeads>();
  }
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override { return std::make_unique<Storage>(shape); }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape&) override {
    return fail(ErrorCode::unsupported, "the null backend has no recurrent layers", "device");
  }

  void resolve_rows(const ResolveRowsArgs&) override {}
  void embedding(const EmbeddingArgs&) override {}
  void rms_norm(const RmsNormArgs&) override {}
  void layer_norm(const LayerNormArgs&) override {}
  void gather_rows(const GatherRowsArgs&) override {}
  void matmul(const MatmulArgs&) override {}
  void rope_append(const RopeAppendArgs&) override {}
  void norm_columns(const NormColumnsArgs&) override {}
  void head_matmul(const HeadMatmulArgs&) override {}
  void latent_append(const LatentAppendArgs&) override {}
  void attention(const AttentionArgs&) override {}
  void attention_merge(const AttentionMergeArgs&) override {}
  void short_conv(const ShortConvArgs&) override {}
  void gated_delta_rule(const GatedDeltaRuleArgs&) override {}
  void mamba2_scan(const Mamba2ScanArgs&) override {}
  void gated_norm(const GatedNormArgs&) override {}
  void sigmoid_gate(const SigmoidGateArgs&) override {}
  void route_experts(const RouteExpertsArgs&) override {}
  void grouped_matmul(const GroupedMatmulArgs&) override {}
  void combine_experts(const CombineExpertsArgs&) override {}
  void activation(const ActivationArgs&) override {}
  void gated_activation(const GatedActivationArgs&) override {}
  void gated_matmul(const GatedMatmulArgs&) override {}
  void scale_logits(const ScaleLogitsArgs&) override {}
  void sample(const SampleArgs&) override {}
  void all_reduce(TensorView) override {}
  void all_gather(const AllGatherArgs&) override {}

 private:
  using Clock = std::chrono::steady_clock;

  class Readback final : public AsyncReadback {
   public:
    Readback(NullBackend& backend, std::size_t n_results) : backend_(backend), results_(n_results) {}
    void enqueue(ConstTensorView device) override {
      const auto begin = Clock::now();
      n_bytes_ = device.size_bytes();
      for (std::size_t i = 0; i < backend_.results_.size(); ++i) {
        const std::int32_t n_over = backend_.results_[i];
        results_[i].finished = n_over == 0 ? FinishedBy::length : FinishedBy::not_finished;
        results_[i].was_finished = n_over > 0 ? 1 : 0;
      }
      backend_.own_us_ += std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
    std::span<const std::byte> wait() override { return std::as_bytes(std::span(results_)).first(n_bytes_); }

   private:
    NullBackend& backend_;
    std::vector<SampleResult> results_;
    std::size_t n_bytes_ = 0;
  };
  class Upload final : public AsyncUpload {
   public:
    explicit Upload(std::size_t size_bytes) : memory_(size_bytes) {}
    std::span<std::byte> host() override { return memory_; }
    void enqueue(std::size_t) override {}
    const std::byte* device() const override { return memory_.data(); }

   private:
    std::vector<std::byte> memory_;
  };
  class Graph final : public CapturedGraph {
   public:
    void replay() override {}
  };
  class Storage final : public KvStorage {
   public:
    explicit Storage(const KvShape& shape) : KvStorage(shape) {}
    void copy_blocks(std::span<const BlockId>, std::span<const BlockId>) override {}
    void export_block(BlockId, TensorView) const override {}
    void import_block(BlockId, ConstTensorView) override {}
    void save_block(BlockId, std::byte*) const override {}
    void load_block(BlockId, const std::byte*) override {}
    void fill_bytes(std::uint8_t) override {}
  };

  std::vector<std::int32_t> n_generated_;  ///< of each slot
  std::vector<std::int32_t> results_;      ///< of each sample of the last step: tokens beyond its end
  double own_us_ = 0;
};

}  // namespace baton::bench
