/// Counts of chosen experts.
#include "bench/engine/expert_counts.h"

#include <utility>

#include "core/check.h"

namespace baton {

Result<std::unique_ptr<ExpertCountBackend>> ExpertCountBackend::make(std::unique_ptr<Backend> inner,
                                                                     std::span<const LayerSpec> layers) {
  std::unique_ptr<ExpertCountBackend> made(new ExpertCountBackend(std::move(inner)));
  for (const LayerSpec& layer : layers) {
    if (!layer.feed_forward.has_experts()) continue;
    const std::int64_t n_experts = layer.feed_forward.n_experts;
    BATON_TRY(Buffer offsets, made->allocate(static_cast<std::size_t>(n_experts + 1) * sizeof(std::int32_t)));
    made->layers_.push_back({n_experts, std::move(offsets)});
  }
  return made;
}

void ExpertCountBackend::embedding(const EmbeddingArgs& args) {
  next_ = 0;
  inner().embedding(args);
}

void ExpertCountBackend::route_experts(const RouteExpertsArgs& args) {
  inner().route_experts(args);
  check(next_ < layers_.size(), "ExpertCountBackend: more layers with experts than the model has");
  Layer& layer = layers_[next_++];
  RouteExpertsArgs counted = args;
  counted.choices.offsets = layer.offsets.view(DType::i32, {layer.n_experts + 1});
  inner().route_experts(counted);
}

std::vector<std::int32_t> ExpertCountBackend::n_chosen() {
  synchronize();
  std::vector<std::int32_t> counts;
  for (Layer& layer : layers_) {
    std::vector<std::int32_t> offsets(static_cast<std::size_t>(layer.n_experts + 1));
    const TensorView host{reinterpret_cast<std::byte*>(offsets.data()), DType::i32, {layer.n_experts + 1}};
    copy_to_host(host, layer.offsets.view(DType::i32, {layer.n_experts + 1}));
    std::int32_t count = 0;
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) count += offsets[e + 1] > offsets[e];
    counts.push_back(count);
  }
  return counts;
}

}  // namespace baton
