/// Steps that have runs of recurrent layers and nothing else, for tests of operations on states.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/test_backends.h"

namespace baton::testing {

/// The backends that have recurrent layers, or what else `has` asks for.
inline std::vector<TestBackend> recurrent_backends(
    bool BackendCapabilities::*has = &BackendCapabilities::has_recurrent_layers) {
  std::vector<TestBackend> found;
  for (const TestBackend& test : test_backends()) {
    if (test.backend.capabilities().*has)
      found.push_back(test);
    else
      say_once(test.name + ": skipped: it does not have all kinds of recurrent layers");
  }
  return found;
}

/// A shape without memory, for calls that are refused before anything is computed.
class NoStates final : public StateStorage {
 public:
  explicit NoStates(const StateShape& shape) : StateStorage(shape) {}
  void export_slot(std::int32_t, TensorView, int) const override {}
  void import_slot(std::int32_t, ConstTensorView, int) override {}
  void save_slot(std::int32_t, std::byte*) const override {}
  void load_slot(std::int32_t, const std::byte*) override {}
  void fill_bytes(std::uint8_t) override {}
};

/// A step of `n_rows` rows without runs.
inline StepInput step_of_rows(std::int32_t n_rows) {
  StepInput step;
  step.header().n_rows = n_rows;
  step.finish();
  return step;
}

/// Runs of rows, and a storage of states whose slots hold what `contents` says; the rest of it is NaN.
class StateRuns {
 public:
  StateRuns(Backend& backend, const StateShape& shape, std::vector<StateRun> runs)
      : storage_(std::move(backend.make_state_storage(shape).value())) {
    storage_->fill_bytes(0xff);
    std::int32_t n_rows = 0;
    for (const StateRun& run : runs) n_rows = std::max(n_rows, run.first_row + run.n_rows);
    start(backend, runs, n_rows);
  }

  /// The next step, over the same states.
  void start(Backend& backend, const std::vector<StateRun>& runs, std::int32_t n_rows) {
    backend.synchronize();
    step_ = StepInput();
    step_.header().n_rows = n_rows;
    step_.append(SectionKind::state_runs, runs);
    step_.finish();
    view_ = backend.upload_step(step_);
  }
  StateArgs args(int layer = 0) const { return {view_, layer, storage_.get()}; }

  HostTensor slot(std::int32_t index) const {
    HostTensor contents(DType::f32, {storage_->shape().slot_bytes() / 4});
    storage_->export_slot(index, contents.view(), 0);
    return contents;
  }
  void set_slot(std::int32_t index, const HostTensor& contents) { storage_->import_slot(index, contents.view(), 0); }

 private:
  std::unique_ptr<StateStorage> storage_;
  StepInput step_;
  StepView view_;
};

}  // namespace baton::testing
