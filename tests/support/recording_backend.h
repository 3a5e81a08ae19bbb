/// A backend that stores packed weights in host memory and computes nothing, for tests of loading.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "kernels/backend.h"
#include "model/spec.h"
#include "support/dense_values.h"

namespace baton::test {

/// The matrix as it was passed to pack_matrix.
class RecordedMatrix : public PackedMatrix {
 public:
  std::string name;
  std::vector<float> values;  ///< [n, k]
};

/// The values of a float tensor.
inline std::vector<float> to_floats(const ConstTensorView& tensor) {
  std::vector<float> values;
  visit_float(tensor.dtype, [&]<class T>(T) {
    for (const T value : tensor.elements<T>()) values.push_back(static_cast<float>(value));
  });
  return values;
}

/// The matrices as they were read for pack_experts.
class RecordedExperts : public PackedExperts {
 public:
  std::string name;
  std::vector<std::vector<float>> values;  ///< [n, k] of each expert
};

/// The matrices that pack_heads got.
class RecordedHeads : public PackedHeads {
 public:
  std::string name;
  std::vector<float> values;  ///< [n_heads, n, k]
};

class RecordingBackend : public Backend {
 public:
  BackendInfo info() const override { return {}; }
  BackendCapabilities capabilities() const override { return {}; }
  BackendTuning tuning() const override { return {}; }
  std::int64_t free_memory_bytes() const override { return 0; }
  Result<Buffer> allocate(std::size_t size_bytes) override {
    void* memory = std::aligned_alloc(64, (size_bytes + 63) / 64 * 64);
    return Buffer(static_cast<std::byte*>(memory), size_bytes, [](std::byte* data, std::size_t) { std::free(data); });
  }
  Result<Buffer> allocate_host(std::size_t) override { not_here(); }
  void copy_from_host(TensorView device, ConstTensorView host) override {
    check(device.dtype == host.dtype && device.shape == host.shape, "copy_from_host: two kinds of tensor");
    std::memcpy(device.data, host.data, host.size_bytes());
  }
  void copy_to_host(TensorView host, ConstTensorView device) override { copy_from_host(host, device); }
  Result<std::unique_ptr<PackedMatrix>> pack_matrix(const StoredMatrix& weight, DType dtype, std::string_view name) override {
    check_stored(weight);
    auto matrix = std::make_unique<RecordedMatrix>();
    matrix->n = weight.shape[0];
    matrix->k = weight.shape[1];
    matrix->dtype = dtype;
    matrix->scheme = weight.scheme;
    matrix->size_bytes = weight.values.size_bytes();
    matrix->name = std::string(name);
    matrix->values = weight.scheme == WeightScheme::dense ? to_floats(weight.values) : dense_values(weight);
    return std::unique_ptr<PackedMatrix>(std::move(matrix));
  }

  Result<std::unique_ptr<PackedExperts>> pack_experts(const Shape& shape, DType dtype, std::string_view name,
                                                      const ReadExpert& read) override {
    auto experts = std::make_unique<RecordedExperts>();
    experts->n_experts = shape[0];
    experts->n = shape[1];
    experts->k = shape[2];
    experts->dtype = dtype;
    experts->size_bytes = TensorView{nullptr, dtype, shape}.size_bytes();
    experts->name = std::string(name);
    for (std::int64_t e = 0; e < shape[0]; ++e) {
      BATON_TRY(const StoredMatrix weight, read(e));
      BATON_TRY(const std::unique_ptr<PackedMatrix> matrix, pack_matrix(weight, dtype, name));
      check(weight.shape == Shape{shape[1], shape[2]}, "pack_experts: another shape");
      check(weight.scheme != WeightScheme::dense || weight.values.dtype == dtype, "pack_experts: another dtype");
      if (e > 0 && weight.scheme != experts->scheme) return fail(ErrorCode::unsupported, "experts in two schemes");
      experts->scheme = weight.scheme;
      experts->values.push_back(dynamic_cast<const RecordedMatrix&>(*matrix).values);
    }
    return std::unique_ptr<PackedExperts>(std::move(experts));
  }

  Result<std::unique_ptr<PackedHeads>> pack_heads(const ConstTensorView& weights, std::string_view name) override {
    auto heads = std::make_unique<RecordedHeads>();
    heads->n_heads = weights.shape[0];
    heads->n = weights.shape[1];
    heads->k = weights.shape[2];
    heads->dtype = weights.dtype;
    heads->size_bytes = weights.size_bytes();
    heads->name = std::string(name);
    heads->values = to_floats(weights);
    return std::unique_ptr<PackedHeads>(std::move(heads));
  }

  Result<std::unique_ptr<AsyncReadback>> make_readback(std::size_t) override { not_here(); }
  Result<std::unique_ptr<AsyncUpload>> make_upload(std::size_t) override { not_here(); }
  Result<void> reserve_steps(std::size_t) override { not_here(); }
  StepView upload_step(const StepInput&) override { not_here(); }
  void synchronize() override {}
  Result<std::unique_ptr<CapturedGraph>> capture(std::function<void()>) override { not_here(); }
  double time_us(const std::function<void()>&) override { not_here(); }
  Result<std::unique_ptr<KvStorage>> make_kv_storage(const KvShape&) override { not_here(); }
  std::int64_t kv_block_bytes(const KvShape&) const override { not_here(); }
  Result<std::unique_ptr<StateStorage>> make_state_storage(const StateShape&) override { not_here(); }
  void resolve_rows(const ResolveRowsArgs&) override { not_here(); }
  void embedding(const EmbeddingArgs&) override { not_here(); }
  void rms_norm(const RmsNormArgs&) override { not_here(); }
  void layer_norm(const LayerNormArgs&) override { not_here(); }
  void gather_rows(const GatherRowsArgs&) override { not_here(); }
  void matmul(const MatmulArgs&) override { not_here(); }
  void rope_append(const RopeAppendArgs&) override { not_here(); }
  void norm_columns(const NormColumnsArgs&) override { not_here(); }
  void head_matmul(const HeadMatmulArgs&) override { not_here(); }
  void latent_append(const LatentAppendArgs&) override { not_here(); }
  void attention(const AttentionArgs&) override { not_here(); }
  void attention_merge(const AttentionMergeArgs&) override { not_here(); }
  void short_conv(const ShortConvArgs&) override { not_here(); }
  void gated_delta_rule(const GatedDeltaRuleArgs&) override { not_here(); }
  void mamba2_scan(const Mamba2ScanArgs&) override { not_here(); }
  void gated_norm(const GatedNormArgs&) override { not_here(); }
  void sigmoid_gate(const SigmoidGateArgs&) override { not_here(); }
  void route_experts(const RouteExpertsArgs&) override { not_here(); }
  void grouped_matmul(const GroupedMatmulArgs&) override { not_here(); }
  void combine_experts(const CombineExpertsArgs&) override { not_here(); }
  void activation(const ActivationArgs&) override { not_here(); }
  void gated_activation(const GatedActivationArgs&) override { not_here(); }
  void gated_matmul(const GatedMatmulArgs&) override { not_here(); }
  void scale_logits(const ScaleLogitsArgs&) override { not_here(); }
  void sample(const SampleArgs&) override { not_here(); }
  void all_reduce(TensorView) override { not_here(); }
  void all_gather(const AllGatherArgs&) override { not_here(); }

 private:
  [[noreturn]] static void not_here() { check_failed("RecordingBackend computes nothing"); }
};

/// A RecordingBackend that is one of several ranks.
class RankBackend : public RecordingBackend {
 public:
  explicit RankBackend(ModelRank rank) : rank_(rank) {}
  BackendInfo info() const override {
    BackendInfo info;
    info.rank = rank_.rank;
    info.world_size = rank_.world_size;
    return info;
  }

 private:
  ModelRank rank_;
};

/// The values of a matrix that a RecordingBackend packed, whatever its scheme.
inline const std::vector<float>& values_of(const PackedMatrix& matrix) {
  return dynamic_cast<const RecordedMatrix&>(matrix).values;
}

/// The values of the matrices of heads that a RecordingBackend packed.
inline const std::vector<float>& values_of(const PackedHeads& heads) {
  return dynamic_cast<const RecordedHeads&>(heads).values;
}

/// The values of one of the experts that a RecordingBackend packed.
inline const std::vector<float>& values_of(const PackedExperts& experts, std::size_t expert) {
  return dynamic_cast<const RecordedExperts&>(experts).values.at(expert);
}

}  // namespace baton::test
