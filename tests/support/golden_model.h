/// Runs models of tests/goldens step by step on a device and compares with results computed elsewhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/source/mtp.h"
#include "model/source/safetensors.h"
#include "model/split.h"
#include "model/weights.h"
#include "ranks/rank_group.h"
#include "support/drawn_golden.h"
#include "support/source_folder.h"
#include "support/step_builder.h"
#include "support/test_backends.h"

namespace baton::testing {

/// What a result holds. Throws its error, with which GoogleTest fails the test: without a model none of it can
/// continue.
template <class T>
T value_of(Result<T> result, const std::filesystem::path& of) {
  if (!result) throw std::runtime_error(of.string() + ": " + result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// How a golden is loaded, besides its dtype.
struct GoldenOptions {
  std::string device = "cpu";
  std::span<const Family> families = shipped_families();
  std::function<void(ModelSpec&)> change = {};  ///< may alter the spec before loading
  std::int32_t max_positions = 0;               ///< of the longest sequence; 0: as many as the cache holds
  bool batch_invariant = false;
  bool uses_mtp = false;           ///< see use_mtp
  DType state_dtype = DType::f32;  ///< of the matrices of recurrent states
  WeightRounding rounding = {};
  bool has_f8_rows = false;  ///< see ModelWeights
  bool has_int8_x = false;   ///< see load_weights
  /// May put a backend of the test before the device's.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap = {};
  std::shared_ptr<RankGroup> ranks = {};  ///< the model is one rank's, on the GPU of the rank's number
};

/// A model on a device, with a cache for one sequence whose blocks are in reverse order. Layer groups share the block
/// table.
class GoldenModel {
 public:
  static constexpr std::int32_t kBlockLen = 16;
  static constexpr std::int32_t kBlocks = 128;
  static constexpr std::int32_t kMaxSamples = 64;  ///< rows of a step whose logits are needed

  /// Draws the weights of a golden. Throws if the folder holds no such model, or the device cannot take it.
  GoldenModel(const std::filesystem::path& golden, DType dtype, const GoldenOptions& options = {}) {
    const test::DrawnGolden drawn(golden);
    const std::filesystem::path& folder = drawn.folder();
    ModelSpec spec = value_of(read_model_spec(folder, options.families), folder);
    if (options.change) options.change(spec);
    const Checkpoint checkpoint = value_of(Checkpoint::open(folder), folder);
    value_of(fit_to_checkpoint(spec, checkpoint), folder);
    if (options.uses_mtp) value_of(use_mtp(spec, &checkpoint), folder);
    const bool is_alone = options.ranks == nullptr;
    backend = value_of(make_backend(options.device, {.n_threads = is_alone ? 2 : 1,
                                                     .batch_invariant = options.batch_invariant,
                                                     .device = is_alone ? 0 : options.ranks->rank(),
                                                     .ranks = options.ranks}),
                       folder);
    if (options.wrap) backend = options.wrap(std::move(backend));
    const ModelSpec of_rank = value_of(split_spec(spec, {backend->info().rank, backend->info().world_size}), folder);
    ModelWeights weights =
        value_of(load_weights(spec, checkpoint, *backend, dtype, 2, options.rounding, options.has_int8_x), folder);
    weights.has_f8_rows = options.has_f8_rows;
    model = std::make_unique<Model>(of_rank, std::move(weights));
    value_of(
        model->prepare(*backend, {.max_rows = kBlocks * kBlockLen,
                                  .max_samples = kMaxSamples,
                                  .max_partials = 4096,
                                  .max_positions = options.max_positions > 0 ? options.max_positions : kBlocks * kBlockLen}),
        folder);
    shapes_ = model->attention_shapes(kBlockLen, dtype);
    for (const KvShape& shape : model->kv_shapes(kBlocks, kBlockLen, dtype)) {
      storages_.push_back(value_of(backend->make_kv_storage(shape), folder));
      storages_.back()->fill_bytes(0xff);
      kv_of_group_.push_back(storages_.back().get());
    }
    if (const StateShape shape = model->state_shape(1, options.state_dtype); shape.n_layers > 0) {
      states_ = value_of(backend->make_state_storage(shape), folder);
      states_->fill_bytes(0xff);
    }
    for (std::int32_t i = kBlocks; i-- > 0;) blocks_.push_back(BlockId{i});
    slots_ = value_of(backend->allocate(sizeof(SlotState)), folder);
    results_ = value_of(backend->allocate(kMaxSamples * sizeof(SampleResult)), folder);
  }

  /// Logits of every row of `tokens`, which follow `n_before` tokens of the sequence, or of the last row only.
  std::vector<float> run(std::span<const TokenId> tokens, std::int32_t n_before, bool every_row, SampleResult* sampled) {
    StepSequence sequence;
    const auto n_rows = static_cast<std::int32_t>(tokens.size());
    sequence.rows = {SlotId{0}, blocks_, n_before + n_rows, n_rows};
    sequence.tokens.assign(tokens.begin(), tokens.end());
    sequence.logits_of_every_row = every_row;
    sequence.is_recurrent = states_ != nullptr;
    sequence.sampling.max_tokens = 1000;
    step_ = pack_groups_step(std::span(&sequence, 1), shapes_, {},
                             n_before == 0 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{});
    const StepView view = backend->upload_step(step_);
    const TensorView table = slots_.view(DType::u8, {1, sizeof(SlotState)});
    const TensorView logits = model->forward(*backend, view, table, kv_of_group_, states_.get());
    std::vector<float> copy(static_cast<std::size_t>(logits.shape.n_elements()));
    backend->copy_to_host(view_of(std::span(copy), logits.shape), logits);
    if (sampled != nullptr) {
      const TensorView out = results_.view(DType::u8, {1, sizeof(SampleResult)});
      sample(*backend, {view, logits, table, out});
      backend->copy_to_host({reinterpret_cast<std::byte*>(sampled), DType::u8, out.shape}, out);
    }
    return copy;
  }

  /// Logits of every row of the layer for drafts, whose rows begin at `position`. `hidden_rows`: see Model::draft.
  std::vector<float> draft(std::span<const TokenId> tokens, std::int32_t position, std::vector<std::int32_t> hidden_rows) {
    StepSequence sequence;
    const auto n_rows = static_cast<std::int32_t>(tokens.size());
    sequence.rows = {SlotId{0}, blocks_, position + n_rows, n_rows};
    sequence.tokens.assign(tokens.begin(), tokens.end());
    sequence.logits_of_every_row = true;
    step_ = pack_groups_step(std::span(&sequence, 1), shapes_, {});
    const Buffer rows = value_of(backend->allocate(hidden_rows.size() * sizeof(std::int32_t)), "rows");
    const TensorView on_device = rows.view(DType::i32, {n_rows});
    backend->copy_from_host(on_device, view_of(std::span(hidden_rows), on_device.shape));
    const TensorView table = slots_.view(DType::u8, {1, sizeof(SlotState)});
    const TensorView logits = model->draft(*backend, backend->upload_step(step_), table, on_device, kv_of_group_);
    std::vector<float> copy(static_cast<std::size_t>(logits.shape.n_elements()));
    backend->copy_to_host(view_of(std::span(copy), logits.shape), logits);
    return copy;
  }

  /// Generates the `n` most likely tokens after `prompt`, one after the other.
  std::vector<TokenId> generate(std::span<const TokenId> prompt, std::size_t n) {
    std::vector<TokenId> generated;
    SampleResult sampled;
    run(prompt, 0, false, &sampled);
    auto n_before = static_cast<std::int32_t>(prompt.size());
    while (true) {
      generated.push_back(sampled.token);
      if (generated.size() == n) return generated;
      const TokenId last = kLastTokenOfSlot;
      run(std::span(&last, 1), n_before++, false, &sampled);
    }
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

 private:
  std::vector<std::unique_ptr<KvStorage>> storages_;
  std::vector<KvStorage*> kv_of_group_;
  std::unique_ptr<StateStorage> states_;  ///< null: the model has no recurrent layers
  std::vector<AttentionShape> shapes_;
  std::vector<BlockId> blocks_;
  Buffer slots_;
  Buffer results_;
  StepInput step_;
};

/// ||got - expected|| / ||expected||.
inline double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// The tensors of one safetensors file. Throws if there is no such file, or no such tensor in it with elements of that size.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& file) : file_(file), text_(value_of(read_file(file), file)) {
    tensors_ = value_of(parse_safetensors(std::as_bytes(std::span(text_)), file.string()), file);
  }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  template <class T>
  std::vector<T> read(std::string_view name) const {
    const auto tensor = tensors_.find(name);
    if (tensor == tensors_.end()) throw std::runtime_error(file_.string() + ": has no tensor " + std::string(name));
    const std::span<const std::byte> bytes = tensor->second.bytes;
    std::int64_t n_elements = 1;
    for (const std::int64_t size : tensor->second.shape) n_elements *= size;
    if (bytes.size() != static_cast<std::size_t>(n_elements) * sizeof(T))
      throw std::runtime_error(file_.string() + ": the elements of " + std::string(name) + " have another size");
    std::vector<T> copy(bytes.size() / sizeof(T));
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    return copy;
  }

 private:
  std::filesystem::path file_;
  std::string text_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

/// A tiny checkpoint of tests/goldens and one file of what Transformers computes with it.
struct GoldenCase {
  std::string name;  ///< of folder and file, in letters, digits and underscores
  std::filesystem::path folder;
  std::filesystem::path file;
  std::filesystem::path bf16_file;  ///< the same in bf16 (tools/goldens/tiny_bf16.py)
};

/// All of them: tests/goldens/FAMILY_tiny_*/golden*.safetensors, by name.
inline std::vector<GoldenCase> golden_cases() {
  namespace fs = std::filesystem;
  std::vector<GoldenCase> cases;
  for (const auto& folder : fs::directory_iterator(test::source_folder() / "tests/goldens")) {
    if (folder.path().filename().string().find("_tiny_") == std::string::npos) continue;
    for (const auto& file : fs::directory_iterator(folder)) {
      const std::string stem = file.path().stem().string();
      if (!stem.starts_with("golden")) continue;
      const std::string end = stem.substr(std::string_view("golden").size());  // "", "_long"
      cases.push_back({folder.path().filename().string() + end, folder, file, folder.path() / ("bf16" + end + ".safetensors")});
    }
  }
  std::ranges::sort(cases, {}, &GoldenCase::name);
  return cases;
}

/// The devices of this machine that multiply bf16. A missing one is logged in one line.
inline std::vector<std::string> devices_with(bool BackendCapabilities::*can_multiply, const std::string& dtype) {
  std::vector<std::string> devices;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto probe = make_backend(device, {.n_threads = 1});
    if (!probe) {
      say_once(device + ": skipped: " + probe.error().message);
    } else if (!((*probe)->capabilities().*can_multiply)) {
      say_once(device + ": skipped: it has no " + dtype + " products");
    } else {
      devices.push_back(device);
    }
  }
  return devices;
}
inline std::vector<std::string> devices_with_bf16() { return devices_with(&BackendCapabilities::has_bf16_matmul, "bf16"); }
inline std::vector<std::string> devices_with_f16() { return devices_with(&BackendCapabilities::has_f16_matmul, "f16"); }

}  // namespace baton::testing
