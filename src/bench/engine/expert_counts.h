/// A backend that counts the experts which the rows of a step choose: with few rows they decide what a step reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/engine/forwarding_backend.h"
#include "core/result.h"
#include "model/spec.h"

namespace baton {

/// Routes twice in each layer with experts, the second time with offsets that the layers after it leave alone. So steps are
/// a little slower; results are the same. Graphs that are captured count, too.
class ExpertCountBackend final : public ForwardingBackend {
 public:
  /// `layers` are the model's. Errors: out_of_memory.
  static Result<std::unique_ptr<ExpertCountBackend>> make(std::unique_ptr<Backend> inner, std::span<const LayerSpec> layers);

  void embedding(const EmbeddingArgs& args) override;
  void route_experts(const RouteExpertsArgs& args) override;

  /// Experts with at least one row in the last step, for each layer with experts. No step may be in flight.
  std::vector<std::int32_t> n_chosen();

 private:
  struct Layer {
    std::int64_t n_experts = 0;
    Buffer offsets;
  };

  explicit ExpertCountBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  std::vector<Layer> layers_;  ///< those with experts
  std::size_t next_ = 0;       ///< the layer whose experts are chosen next
};

}  // namespace baton
