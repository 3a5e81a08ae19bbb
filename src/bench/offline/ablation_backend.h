/// A backend that does on purpose what vLLM's issue 421 found slow, so that the cost of each habit can be measured
/// over one model: sampling by one call a sequence, results copied one by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace baton {

/// What is done the slow way. May be changed while no step is in flight.
struct Ablation {
  bool samples_each = false;  ///< a sampling call, with an upload of its parameters, for each sample of a step
  bool copies_each = false;   ///< each result is copied to the host by a call of its own, which waits for it
};

/// Passes every call to another backend, except what `Ablation` names. A graph that samples is not replayed while
/// samples_each is set: its operations are called instead. Results are the same in every setting; sequences may use no
/// lists (penalties, biases, bans, allowed ids) while samples_each is set. Thread: as Backend.
class AblationBackend final : public Backend {
 public:
  /// `ablation` must outlive the backend.
  AblationBackend(std::unique_ptr<Backend> inner, const Ablation& ablation) : inner_(std::move(inner)), ablation_(ablation) {}

  BackendInfo info() const override { return inner_->info(); }
  BackendCapabilities capabilities() const override { return inner_->capabilities(); }
  BackendTuning tuning() const override { return inner_->tuning(); }
  std::int64_t free_memory_bytes() const override { return inner_->free_memory_bytes(); }
  Result<Buffer> allocate(std::size_t size_bytes) override { return inner_->allocate(size_bytes); }
  Result<Buffer> allocate_host(std::size_t size_bytes) override { return inner_->allocate_host(size_bytes); }
  void copy_from_host(TensorView device, ConstTensorView host) override { inner_->copy_from_host(device, host); }
  void copy_to_host(TensorView host, ConstTensorView device) override { inner_->copy_to_host(host, device); }
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override;
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override { return inner_->make_upload(size_bytes); }
  Result<void> reserve_steps(std::size_t size_bytes) override { return inner_->reserve_steps(size_bytes); }
  StepView upload_step(const StepInput& step) override;
  void synchronize() override { inner_->synchronize(); }
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override;
  double time_us(const std::function<void()>& operations) override { return inner_->time_us(operations); }
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override {
    return inner_->pack_matrix(weight, dtype, name);
  }
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override {
    return inner_->pack_experts(shape, dtype, name, read);
  }
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override {
    return inner_->pack_heads(weights, name);
  }
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override { return inner_->make_kv_storage(shape); }
  std::int64_t kv_block_bytes(const KvShape& shape) const override { return inner_->kv_block_bytes(shape); }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) override {
    return inner_->make_state_storage(shape);
  }

  void resolve_rows(const ResolveRowsArgs& args) override { inner_->resolve_rows(args); }
  void embedding(const EmbeddingArgs& args) override { inner_->embedding(args); }
  void rms_norm(const RmsNormArgs& args) override { inner_->rms_norm(args); }
  void layer_norm(const LayerNormArgs& args) override { inner_->layer_norm(args); }
  void gather_rows(const GatherRowsArgs& args) override { inner_->gather_rows(args); }
  void matmul(const MatmulArgs& args) override { inner_->matmul(args); }
  void rope_append(const RopeAppendArgs& args) override { inner_->rope_append(args); }
  void norm_columns(const NormColumnsArgs& args) override { inner_->norm_columns(args); }
  void head_matmul(const HeadMatmulArgs& args) override { inner_->head_matmul(args); }
  void latent_append(const LatentAppendArgs& args) override { inner_->latent_append(args); }
  void attention(const AttentionArgs& args) override { inner_->attention(args); }
  void attention_merge(const AttentionMergeArgs& args) override { inner_->attention_merge(args); }
  void short_conv(const ShortConvArgs& args) override { inner_->short_conv(args); }
  void gated_delta_rule(const GatedDeltaRuleArgs& args) override { inner_->gated_delta_rule(args); }
  void gated_norm(const GatedNormArgs& args) override { inner_->gated_norm(args); }
  void sigmoid_gate(const SigmoidGateArgs& args) override { inner_->sigmoid_gate(args); }
  void route_experts(const RouteExpertsArgs& args) override { inner_->route_experts(args); }
  void grouped_matmul(const GroupedMatmulArgs& args) override { inner_->grouped_matmul(args); }
  void combine_experts(const CombineExpertsArgs& args) override { inner_->combine_experts(args); }
  void gelu(const GeluArgs& args) override { inner_->gelu(args); }
  void gated_activation(const GatedActivationArgs& args) override { inner_->gated_activation(args); }
  void scale_logits(const ScaleLogitsArgs& args) override { inner_->scale_logits(args); }
  void sample(const SampleArgs& args) override;
  void all_reduce(TensorView x) override { inner_->all_reduce(x); }
  void all_gather(const AllGatherArgs& args) override { inner_->all_gather(args); }

 private:
  class Readback;
  class SamplingGraph;

  std::unique_ptr<Backend> inner_;
  const Ablation& ablation_;
  std::vector<SamplingMetadata> samples_;  ///< of the last step that was uploaded
  std::int32_t n_groups_ = 1;              ///< its layer groups
  std::array<StepInput, 2> small_steps_;   ///< uploads of one sample, which must live until the next but one
  std::size_t n_small_steps_ = 0;
  bool is_capturing_ = false;
  bool has_captured_sampling_ = false;
};

}  // namespace baton
