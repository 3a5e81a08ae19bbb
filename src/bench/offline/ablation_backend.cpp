/// Sampling and copying of results one by one.
#include "bench/offline/ablation_backend.h"

#include <span>
#include <utility>

#include "core/check.h"

namespace baton {

class AblationBackend::Readback final : public AsyncReadback {
 public:
  Readback(AblationBackend& backend, std::unique_ptr<AsyncReadback> inner) : backend_(backend), inner_(std::move(inner)) {}

  void enqueue(ConstTensorView device) override {
    is_copied_ = backend_.ablation_.copies_each;
    if (!is_copied_) return inner_->enqueue(device);
    host_.resize(device.size_bytes());
    const std::int64_t n = device.shape[0];
    for (std::int64_t i = 0; i < n; ++i) {
      const ConstTensorView element = device.rows(i, i + 1);
      backend_.inner().copy_to_host(
          {host_.data() + static_cast<std::size_t>(i) * element.size_bytes(), element.dtype, element.shape}, element);
    }
  }
  std::span<const std::byte> wait() override { return is_copied_ ? std::span<const std::byte>(host_) : inner_->wait(); }

 private:
  AblationBackend& backend_;
  std::unique_ptr<AsyncReadback> inner_;
  std::vector<std::byte> host_;
  bool is_copied_ = false;
};

/// A graph of sampling that calls its operations while samples_each is set.
class AblationBackend::SamplingGraph final : public CapturedGraph {
 public:
  SamplingGraph(const Ablation& ablation, std::unique_ptr<CapturedGraph> inner, std::function<void()> operations)
      : ablation_(ablation), inner_(std::move(inner)), operations_(std::move(operations)) {}
  void replay() override {
    if (ablation_.samples_each)
      operations_();
    else
      inner_->replay();
  }

 private:
  const Ablation& ablation_;
  std::unique_ptr<CapturedGraph> inner_;
  std::function<void()> operations_;
};

Result<std::unique_ptr<AsyncReadback>> AblationBackend::make_readback(std::size_t size_bytes) {
  BATON_TRY(std::unique_ptr<AsyncReadback> readback, inner().make_readback(size_bytes));
  return std::make_unique<Readback>(*this, std::move(readback));
}

StepView AblationBackend::upload_step(const StepInput& step) {
  samples_.clear();
  if (ablation_.samples_each) {
    const StepView view = step.view();
    const auto samples = view.span<SamplingMetadata>(SectionKind::samples);
    samples_.assign(samples.begin(), samples.end());
    n_groups_ = view.header->n_groups;
  }
  return inner().upload_step(step);
}

Result<std::unique_ptr<CapturedGraph>> AblationBackend::capture(std::function<void()> operations) {
  is_capturing_ = true;
  has_captured_sampling_ = false;
  auto graph = inner().capture(operations);
  is_capturing_ = false;
  if (!graph || !has_captured_sampling_) return graph;
  return std::make_unique<SamplingGraph>(ablation_, std::move(*graph), std::move(operations));
}

void AblationBackend::sample(const SampleArgs& args) {
  has_captured_sampling_ |= is_capturing_;
  if (is_capturing_ || !ablation_.samples_each) return inner().sample(args);
  check(static_cast<std::int64_t>(samples_.size()) == args.logits.shape[0],
        "AblationBackend: the samples are not those of the last step");
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const SamplingMetadata& sample = samples_[i];
    check(sample.counts.count + sample.biases.count + sample.bans.count + sample.allowed.count == 0,
          "AblationBackend: a sample with lists");
    StepInput& step = small_steps_[n_small_steps_++ % small_steps_.size()];
    step = StepInput(n_groups_);
    step.append(SectionKind::samples, std::span(&sample, 1));
    step.finish();
    const auto row = static_cast<std::int64_t>(i);
    inner().sample(
        {inner().upload_step(step), args.logits.rows(row, row + 1), args.slots, args.results.rows(row, row + 1), args.masks});
  }
}

}  // namespace baton
