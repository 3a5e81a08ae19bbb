/// One step from its buffer to its results.
#include "engine/executor.h"

#include <utility>

#include "core/check.h"
#include "kernels/ops.h"

namespace baton {
namespace {

template <class T>
TensorView table_of(const Buffer& buffer, std::int64_t n) {
  return buffer.view(DType::u8, {n, static_cast<std::int64_t>(sizeof(T))});
}

template <class T>
TensorView table_of(std::vector<T>& elements) {
  return {reinterpret_cast<std::byte*>(elements.data()),
          DType::u8,
          {static_cast<std::int64_t>(elements.size()), static_cast<std::int64_t>(sizeof(T))}};
}

}  // namespace

Executor::Executor(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model, const StepLimits& limits)
    : backend_(std::move(backend)), model_(std::move(model)), limits_(limits) {}

Executor::~Executor() { backend_->synchronize(); }

Result<std::unique_ptr<Executor>> Executor::create(std::unique_ptr<Backend> backend, std::unique_ptr<Model> model,
                                                   const StepLimits& limits) {
  check(backend != nullptr && model != nullptr, "Executor: no backend or no model");
  std::unique_ptr<Executor> executor(new Executor(std::move(backend), std::move(model), limits));
  BATON_TRY_VOID(executor->allocate());
  return executor;
}

Result<void> Executor::allocate() {
  BATON_TRY_VOID(model_->prepare(*backend_, limits_));
  BATON_TRY(slots_, backend_->allocate(static_cast<std::size_t>(limits_.max_slots) * sizeof(SlotState)));
  BATON_TRY(results_, backend_->allocate(static_cast<std::size_t>(limits_.max_orders) * sizeof(SampleResult)));
  std::vector<SlotState> empty(static_cast<std::size_t>(limits_.max_slots));
  backend_->copy_from_host(table_of<SlotState>(slots_, limits_.max_slots), table_of(empty));
  return {};
}

Result<void> Executor::allocate_cache(std::int32_t n_blocks, std::int32_t block_len, DType dtype) {
  check(storages_.empty(), "Executor: the cache is allocated twice");
  for (const KvShape& shape : model_->kv_shapes(n_blocks, block_len, dtype)) {
    BATON_TRY(std::unique_ptr<KvStorage> storage, backend_->make_kv_storage(shape));
    storage_pointers_.push_back(storage.get());
    storages_.push_back(std::move(storage));
  }
  return {};
}

void Executor::submit(StepInput step) {
  const StepHeader& header = step.header();
  check(header.n_rows <= limits_.max_rows && header.orders.count <= limits_.max_orders, "Executor: a step over its limits");
  submitted_.push_back(std::move(step));
}

std::span<const SampleResult> Executor::wait() {
  check(!submitted_.empty(), "Executor: wait without a submitted step");
  check(!storages_.empty(), "Executor: a step before the cache is allocated");
  const StepView view = backend_->upload_step(submitted_.front());
  const std::int32_t n_orders = view.header->orders.count;
  const TensorView slots = table_of<SlotState>(slots_, limits_.max_slots);
  const TensorView logits = model_->forward(*backend_, view, slots, storage_pointers_);
  host_results_.resize(static_cast<std::size_t>(n_orders));
  if (n_orders > 0) {
    const TensorView results = table_of<SampleResult>(results_, n_orders);
    sample(*backend_, {view, logits, slots, results});
    backend_->synchronize();
    backend_->copy_to_host(table_of(host_results_), results);
  } else {
    backend_->synchronize();
  }
  submitted_.pop_front();
  return host_results_;
}

}  // namespace baton
