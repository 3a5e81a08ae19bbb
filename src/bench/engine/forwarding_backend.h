/// A backend that passes every call to another one: the base of backends that watch or change a few calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/backend.h"

namespace baton {

/// Thread: as Backend.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  BackendInfo info() const override { return inner().info(); }
  BackendCapabilities capabilities() const override { return inner().capabilities(); }
  BackendTuning tuning() const override { return inner().tuning(); }
  std::int64_t free_memory_bytes() const override { return inner().free_memory_bytes(); }
  Result<Buffer> allocate(std::size_t size_bytes) override { return inner().allocate(size_bytes); }
  Result<Buffer> allocate_host(std::size_t size_bytes) override { return inner().allocate_host(size_bytes); }
  void copy_from_host(TensorView device, ConstTensorView host) override { inner().copy_from_host(device, host); }
  void copy_to_host(TensorView host, ConstTensorView device) override { inner().copy_to_host(host, device); }
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override {
    return inner().make_readback(size_bytes);
  }
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override { return inner().make_upload(size_bytes); }
  Result<void> reserve_steps(std::size_t size_bytes) override { return inner().reserve_steps(size_bytes); }
  StepView upload_step(const StepInput& step) override { return inner().upload_step(step); }
  void synchronize() override { inner().synchronize(); }
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override {
    return inner().capture(std::move(operations));
  }
  double time_us(const std::function<void()>& operations) override { return inner().time_us(operations); }
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override {
    return inner().pack_matrix(weight, dtype, name);
  }
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override {
    return inner().pack_experts(shape, dtype, name, read);
  }
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override {
    return inner().pack_heads(weights, name);
  }
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override { return inner().make_kv_storage(shape); }
  std::int64_t kv_block_bytes(const KvShape& shape) const override { return inner().kv_block_bytes(shape); }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) override {
    return inner().make_state_storage(shape);
  }

  void resolve_rows(const ResolveRowsArgs& args) override { inner().resolve_rows(args); }
  void embedding(const EmbeddingArgs& args) override { inner().embedding(args); }
  void rms_norm(const RmsNormArgs& args) override { inner().rms_norm(args); }
  void layer_norm(const LayerNormArgs& args) override { inner().layer_norm(args); }
  void gather_rows(const GatherRowsArgs& args) override { inner().gather_rows(args); }
  void matmul(const MatmulArgs& args) override { inner().matmul(args); }
  void rope_append(const RopeAppendArgs& args) override { inner().rope_append(args); }
  void norm_columns(const NormColumnsArgs& args) override { inner().norm_columns(args); }
  void head_matmul(const HeadMatmulArgs& args) override { inner().head_matmul(args); }
  void latent_append(const LatentAppendArgs& args) override { inner().latent_append(args); }
  void attention(const AttentionArgs& args) override { inner().attention(args); }
  void attention_merge(const AttentionMergeArgs& args) override { inner().attention_merge(args); }
  void short_conv(const ShortConvArgs& args) override { inner().short_conv(args); }
  void gated_delta_rule(const GatedDeltaRuleArgs& args) override { inner().gated_delta_rule(args); }
  void mamba2_scan(const Mamba2ScanArgs& args) override { inner().mamba2_scan(args); }
  void gated_norm(const GatedNormArgs& args) override { inner().gated_norm(args); }
  void sigmoid_gate(const SigmoidGateArgs& args) override { inner().sigmoid_gate(args); }
  void route_experts(const RouteExpertsArgs& args) override { inner().route_experts(args); }
  void grouped_matmul(const GroupedMatmulArgs& args) override { inner().grouped_matmul(args); }
  void combine_experts(const CombineExpertsArgs& args) override { inner().combine_experts(args); }
  void activation(const ActivationArgs& args) override { inner().activation(args); }
  void gated_activation(const GatedActivationArgs& args) override { inner().gated_activation(args); }
  void gated_matmul(const GatedMatmulArgs& args) override { inner().gated_matmul(args); }
  void scale_logits(const ScaleLogitsArgs& args) override { inner().scale_logits(args); }
  void sample(const SampleArgs& args) override { inner().sample(args); }
  void all_reduce(TensorView x) override { inner().all_reduce(x); }
  void all_gather(const AllGatherArgs& args) override { inner().all_gather(args); }

 protected:
  Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace baton
