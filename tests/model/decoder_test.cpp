#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "support/source_folder.h"
#include "support/step_builder.h"
#include "support/test_backends.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kBlockLen = 16;
constexpr std::int32_t kMaxRows = 2048;
constexpr std::int32_t kMaxSamples = 64;

/// A model of tests/goldens on a device, with a cache for one sequence whose blocks stand in reverse order.
class GoldenModel {
 public:
  GoldenModel(const fs::path& folder, DType dtype, const std::string& device = "cpu") {
    auto config = read_model_config(folder);
    EXPECT_TRUE(config) << config.error().message;
    auto checkpoint = Checkpoint::open(folder);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    auto made = make_backend(device, {.n_threads = 2});
    EXPECT_TRUE(made) << made.error().message;
    backend = std::move(*made);
    auto weights = load_weights(*config, *checkpoint, *backend, dtype);
    EXPECT_TRUE(weights) << weights.error().message;
    model = std::make_unique<Model>(*config, std::move(*weights));
    EXPECT_TRUE(model->prepare(*backend, {kMaxRows, kMaxSamples, 4096, 1}));
    const std::int32_t n_blocks = 128;
    shape = model->attention_shapes(kBlockLen, dtype)[0];
    storage = std::move(*backend->make_kv_storage(model->kv_shapes(n_blocks, kBlockLen, dtype)[0]));
    storage->fill_bytes(0xff);
    for (std::int32_t i = n_blocks; i-- > 0;) blocks.push_back(BlockId{i});
    slots = std::move(*backend->allocate(sizeof(SlotState)));
    results = std::move(*backend->allocate(kMaxSamples * sizeof(SampleResult)));
  }

  /// Logits of every row of `tokens`, which follow `n_before` tokens of the sequence.
  std::vector<float> run(std::span<const TokenId> tokens, std::int32_t n_before, bool every_row, SampleResult* sampled) {
    testing::StepSequence sequence;
    const auto n_rows = static_cast<std::int32_t>(tokens.size());
    sequence.rows = {SlotId{0}, blocks, n_before + n_rows, n_rows};
    sequence.tokens.assign(tokens.begin(), tokens.end());
    sequence.logits_of_every_row = every_row;
    sequence.sampling.max_tokens = 1000;
    step = testing::pack_step(std::span(&sequence, 1), shape, {},
                              n_before == 0 ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{});
    const StepView view = backend->upload_step(step);
    KvStorage* const kv = storage.get();
    const TensorView table = slots.view(DType::u8, {1, sizeof(SlotState)});
    const TensorView logits = model->forward(*backend, view, table, std::span(&kv, 1));
    std::vector<float> copy(static_cast<std::size_t>(logits.shape.n_elements()));
    backend->copy_to_host(view_of(std::span(copy), logits.shape), logits);
    if (sampled != nullptr) {
      const TensorView out = results.view(DType::u8, {1, sizeof(SampleResult)});
      sample(*backend, {view, logits, table, out});
      backend->copy_to_host({reinterpret_cast<std::byte*>(sampled), DType::u8, out.shape}, out);
    }
    return copy;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvStorage> storage;
  AttentionShape shape;
  std::vector<BlockId> blocks;
  Buffer slots;
  Buffer results;
  StepInput step;
};

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// The tensors of one safetensors file.
class Golden {
 public:
  explicit Golden(const fs::path& file) : text_(read_file(file).value()) {
    tensors_ = parse_safetensors(std::as_bytes(std::span(text_)), file.string()).value();
  }
  template <class T>
  std::vector<T> read(std::string_view name) const {
    const std::span<const std::byte> bytes = tensors_.find(name)->second.bytes;
    std::vector<T> copy(bytes.size() / sizeof(T));
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    return copy;
  }

 private:
  std::string text_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

std::vector<fs::path> golden_folders() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "tests/goldens"))
    if (entry.path().filename().string().starts_with("llama_tiny_")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

// float32 weights, cache and arithmetic against Transformers in float32: the bound of the issue.
TEST(Decoder, logits_equal_those_of_transformers_in_float32) {
  const auto folders = golden_folders();
  ASSERT_GE(folders.size(), 5u);
  for (const fs::path& folder : folders) {
    SCOPED_TRACE(folder.filename());
    GoldenModel model(folder, DType::f32);
    const Golden golden(folder / "golden.safetensors");
    const auto ids = golden.read<std::int32_t>("input_ids");
    const auto expected = golden.read<float>("logits");
    const auto whole = model.run(ids, 0, true, nullptr);
    EXPECT_LE(relative_error(whole, expected), 1e-4) << "prefill in one step";

    // The same rows in three steps: 17 tokens, 1, the rest.
    std::vector<float> parts;
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 17}, {17, 18}, {18, ids.size()}}) {
      const auto part = model.run(std::span(ids).subspan(begin, end - begin), static_cast<std::int32_t>(begin), true, nullptr);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_LE(relative_error(parts, expected), 1e-4) << "prefill in three steps";
  }
}

TEST(Decoder, greedy_generations_equal_those_of_transformers) {
  for (const fs::path& folder : golden_folders()) {
    SCOPED_TRACE(folder.filename());
    GoldenModel model(folder, DType::f32);
    const Golden golden(folder / "golden.safetensors");
    const auto ids = golden.read<std::int32_t>("input_ids");
    const auto expected = golden.read<std::int32_t>("greedy_ids");
    std::vector<TokenId> generated;
    SampleResult sampled;
    model.run(ids, 0, false, &sampled);
    auto n_before = static_cast<std::int32_t>(ids.size());
    while (generated.size() < expected.size()) {
      generated.push_back(sampled.token);
      const TokenId last = kLastTokenOfSlot;
      model.run(std::span(&last, 1), n_before++, false, &sampled);
    }
    EXPECT_EQ(generated, expected);
  }
}

/// The devices of this machine that multiply bf16; one that is missing is said in a line.
std::vector<std::string> devices_with_bf16() {
  std::vector<std::string> devices;
  for (const std::string device : {"cpu", "cuda"}) {
    const auto probe = make_backend(device, {.n_threads = 1});
    if (!probe) {
      testing::say_once(device + ": skipped: " + probe.error().message);
    } else if (!(*probe)->capabilities().has_bf16_matmul) {
      testing::say_once(device + ": skipped: this processor has no bf16 products");
    } else {
      devices.push_back(device);
    }
  }
  return devices;
}

/// The trained model behind a catalogue of about 1,840 tokens: logits within `bound` of those of Transformers in float32, and
/// the same greedy tokens. The golden's positions are the last ones of each prompt.
void expect_the_demo_golden(const std::string& device, DType dtype, double bound) {
  const fs::path source = test::source_folder();
  GoldenModel model(source / "models/demo", dtype, device);
  const Golden golden(source / "tests/goldens/demo/golden.safetensors");
  for (const int n : {0, 4, 8}) {
    SCOPED_TRACE(n);
    const auto name = [&](const char* what) { return std::to_string(n) + "." + what; };
    const auto ids = golden.read<std::int32_t>(name("input_ids"));
    const auto positions = golden.read<std::int32_t>(name("positions"));
    const auto expected = golden.read<float>(name("logits"));
    // Everything but the last tokens in one step, then the rest with logits of every row.
    const auto n_last = std::min<std::size_t>(kMaxSamples, ids.size() - 1);
    const auto n_before = static_cast<std::int32_t>(ids.size() - n_last);
    SampleResult sampled;
    model.run(std::span(ids).first(static_cast<std::size_t>(n_before)), 0, false, nullptr);
    const auto last = model.run(std::span(ids).last(n_last), n_before, true, nullptr);
    const std::size_t n_vocab = last.size() / n_last;
    int n_compared = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (positions[i] < n_before) continue;
      const auto row = static_cast<std::size_t>(positions[i] - n_before);
      EXPECT_LE(
          relative_error(std::span(last).subspan(row * n_vocab, n_vocab), std::span(expected).subspan(i * n_vocab, n_vocab)),
          bound)
          << "position " << positions[i];
      ++n_compared;
    }
    EXPECT_GE(n_compared, 1);

    const auto greedy = golden.read<std::int32_t>(name("greedy_ids"));
    std::vector<TokenId> generated;
    model.run(ids, 0, false, &sampled);
    auto n_tokens = static_cast<std::int32_t>(ids.size());
    while (generated.size() < greedy.size()) {
      generated.push_back(sampled.token);
      const TokenId next = kLastTokenOfSlot;
      model.run(std::span(&next, 1), n_tokens++, false, &sampled);
    }
    EXPECT_EQ(generated, greedy);
  }
}

TEST(Decoder, the_demo_model_equals_transformers_in_float32) { expect_the_demo_golden("cpu", DType::f32, 1e-4); }

// bf16 weights, activations and cache carry 8 bits: a few layers of products of some hundred terms stay within 3 percent.
constexpr double kBf16Bound = 3e-2;

TEST(Decoder, the_demo_model_gives_the_tokens_of_float32_in_bf16) {
  for (const std::string& device : devices_with_bf16()) {
    SCOPED_TRACE(device);
    expect_the_demo_golden(device, DType::bf16, kBf16Bound);
  }
}

TEST(Decoder, bf16_stays_near_float32) {
  for (const std::string& device : devices_with_bf16()) {
    for (const fs::path& folder : golden_folders()) {
      SCOPED_TRACE(device + ", " + folder.filename().string());
      GoldenModel model(folder, DType::bf16, device);
      const Golden golden(folder / "golden.safetensors");
      const auto whole = model.run(golden.read<std::int32_t>("input_ids"), 0, true, nullptr);
      const double error = relative_error(whole, golden.read<float>("logits"));
      EXPECT_LE(error, kBf16Bound);
      EXPECT_GT(error, 1e-5) << "bf16 that equals float32 was not computed in bf16";
      testing::say_once(device + ", " + folder.filename().string() + ": relative error " + std::to_string(error));
    }
  }
}

}  // namespace
}  // namespace baton
