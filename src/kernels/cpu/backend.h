/// The CPU backend: part of the product, and the executable specification of the CUDA backend.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "core/parallel.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ranks/collectives.h"
#include "kernels/row_packing.h"

namespace baton::cpu {

class MatmulEngine;

/// Runs every operation when it is called, on the caller's threads. The executor delays a step until its results are
/// requested, so that planning is one step ahead here as on a device.
class CpuBackend final : public Backend, public RowPacking {
 public:
  static Result<std::unique_ptr<Backend>> make(const BackendOptions& options);
  ~CpuBackend() override;

  BackendInfo info() const override;
  BackendCapabilities capabilities() const override;
  BackendTuning tuning() const override;
  std::int64_t free_memory_bytes() const override;
  Result<Buffer> allocate(std::size_t size_bytes) override;
  Result<Buffer> allocate_host(std::size_t size_bytes) override { return allocate(size_bytes); }
  void copy_from_host(TensorView device, ConstTensorView host) override;
  void copy_to_host(TensorView host, ConstTensorView device) override;
  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t size_bytes) override;
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t size_bytes) override;
  Result<void> reserve_steps(std::size_t size_bytes) override;
  StepView upload_step(const StepInput& step) override;
  void synchronize() override {}
  /// Stores the function; replay calls it.
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()> operations) override;
  double time_us(const std::function<void()>& operations) override;
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override;
  Result<std::unique_ptr<PackedMatrix>> pack_rows(const StoredMatrix& weight, const ReadValues& read, DType dtype,
                                                  std::string_view name) override;
  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override;
  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override;
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape& shape) override;
  std::int64_t kv_block_bytes(const KvShape& shape) const override;
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape& shape) override;

  void resolve_rows(const ResolveRowsArgs& args) override;
  void embedding(const EmbeddingArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope_append(const RopeAppendArgs& args) override;
  void norm_columns(const NormColumnsArgs& args) override;
  void head_matmul(const HeadMatmulArgs& args) override;
  void latent_append(const LatentAppendArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_merge(const AttentionMergeArgs& args) override;
  void short_conv(const ShortConvArgs& args) override;
  void gated_delta_rule(const GatedDeltaRuleArgs& args) override;
  void mamba2_scan(const Mamba2ScanArgs& args) override;
  void gated_norm(const GatedNormArgs& args) override;
  void sigmoid_gate(const SigmoidGateArgs& args) override;
  void route_experts(const RouteExpertsArgs& args) override;
  void grouped_matmul(const GroupedMatmulArgs& args) override;
  void combine_experts(const CombineExpertsArgs& args) override;
  void activation(const ActivationArgs& args) override;
  void gated_activation(const GatedActivationArgs& args) override;
  void gated_matmul(const GatedMatmulArgs& args) override;
  void scale_logits(const ScaleLogitsArgs& args) override;
  void sample(const SampleArgs& args) override;
  void all_reduce(TensorView x) override;
  void all_gather(const AllGatherArgs& args) override;

 private:
  CpuBackend(CpuIsa isa, int n_threads, const BackendOptions& options);

  CpuIsa isa_;
  Parallel parallel_;
  std::unique_ptr<MatmulEngine> matmuls_;
  Collectives collectives_;
  std::size_t max_step_bytes_ = std::numeric_limits<std::size_t>::max();  ///< the bound set by reserve_steps
};

}  // namespace baton::cpu
