/// Fuzzes the readers of quantised weights: any text as `quantization_config`, and a checkpoint whose tensors are drawn, give an
/// error or weights whose values are all there, the same for one rank and for two, within a second and in memory that the input
/// explains. The input is the text, "\n--\n" and the bytes of the draws: a model's sizes, how its matrices are stored, damage, and
/// the file that has the text.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sanitizer/allocator_interface.h>

#include "core/check.h"
#include "core/log.h"
#include "model/config.h"
#include "model/quantization.h"
#include "model/source/kv_scales.h"
#include "model/source/safetensors.h"
#include "model/split.h"
#include "model/weights.h"
#include "support/checkpoint_writer.h"
#include "support/drawn.h"
#include "support/fuzz_parts.h"
#include "support/quantised_tensors.h"
#include "support/recording_backend.h"

namespace {

using namespace baton;
using test::Drawn;
using test::filled;
using test::QuantisedForm;
using test::TensorToWrite;
using Sizes = std::vector<std::int64_t>;

constexpr double kMostSeconds = 1;
constexpr std::size_t kMostBytes = 1 << 20;     // beside those of the input
constexpr std::size_t kMostBytesOfAByte = 100;  // a float for each int4, twice, and the parsed JSON
constexpr std::int64_t kVocab = 8, kExperts = 2;

/// Bytes that are allocated, and the most there were.
std::atomic<std::int64_t> allocated = 0, most_allocated = 0;

void count_allocation(const volatile void* memory, std::size_t size) {
  if (memory == nullptr) return;
  const std::int64_t now = allocated += static_cast<std::int64_t>(size);
  if (now > most_allocated) most_allocated = now;
}
void count_release(const volatile void* memory) {
  if (memory != nullptr) allocated -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(memory));
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

QuantisedForm drawn_form(Drawn& draws) {
  using Kind = QuantisedForm::Kind;
  constexpr std::array kKinds{Kind::f8,    Kind::i8,    Kind::packed,         Kind::gptq, Kind::awq,
                              Kind::dense, Kind::nvfp4, Kind::modelopt_nvfp4, Kind::mxfp4};
  QuantisedForm form;
  form.kind = draws.of(kKinds);
  form.bits = draws.is() ? 8 : 4;
  form.group = draws.of(std::array<std::int64_t, 6>{16, 32, 64, 128, 8, 24});
  form.block_rows = draws.of(std::array<std::int64_t, 4>{16, 128, 1, 7});
  form.scales = static_cast<QuantisedForm::Scales>(draws.below(3));
  const std::size_t flags = draws.byte();
  form.has_zeros = (flags & 1) != 0;
  form.has_shape = (flags & 2) != 0;
  form.has_groups = (flags & 4) != 0;
  form.is_permuted = (flags & 8) != 0;
  form.scale_name = (flags & 16) != 0 ? "weight_scale_inv" : "weight_scale";
  form.scale_dtype = draws.of(std::array<std::string_view, 5>{"F32", "BF16", "F16", "F8_E8M0", "U8"});
  return form;
}

enum class Family : std::uint8_t { llama, qwen3_moe, gpt_oss };

/// A tiny model: its sizes, and how it is stored.
struct Case {
  Family family = Family::llama;
  std::int64_t d = 32, d_ff = 32, n_kv_heads = 2;
  std::vector<TensorToWrite> tensors;

  explicit Case(Drawn& draws) {
    family = draws.of(std::array{Family::llama, Family::qwen3_moe, Family::gpt_oss});
    d = draws.of(std::array<std::int64_t, 4>{32, 64, 48, 16});
    d_ff = draws.of(std::array<std::int64_t, 4>{32, 64, 96, 16});
    n_kv_heads = draws.is() ? 1 : 2;
    QuantisedForm usual = drawn_form(draws);
    const bool has_blocks = usual.kind == QuantisedForm::Kind::mxfp4;  // of gpt-oss, which has its other matrices in 16 bits
    if (family == Family::gpt_oss) usual.kind = QuantisedForm::Kind::dense;
    const auto add = [&](const std::string& stem, std::int64_t n, std::int64_t k) {
      test::add_matrix(stem, n, k, draws.one_in(16) ? drawn_form(draws) : usual, tensors);
    };
    const std::string layer = "model.layers.0.";
    const std::int64_t head_dim = d / 2;
    add(layer + "self_attn.q_proj", d, d);
    add(layer + "self_attn.k_proj", n_kv_heads * head_dim, d);
    add(layer + "self_attn.v_proj", n_kv_heads * head_dim, d);
    add(layer + "self_attn.o_proj", d, d);
    const auto add_mlp = [&](const std::string& stem) {
      add(stem + "gate_proj", d_ff, d);
      add(stem + "up_proj", d_ff, d);
      add(stem + "down_proj", d, d_ff);
    };
    const auto add_dense = [&](const std::string& name, const Sizes& shape) {
      tensors.push_back(filled(name + ".weight", "BF16", shape, "\x12\x3c"));
    };
    const auto add_plain = [&](const std::string& name, const Sizes& shape) {
      tensors.push_back(filled(name, "BF16", shape, "\x12\x3c"));
    };
    if (family == Family::gpt_oss) {
      add_plain(layer + "self_attn.sinks", {2});
      add_dense(layer + "mlp.router", {kExperts, d});
      add_plain(layer + "mlp.router.bias", {kExperts});
      const auto add_experts = [&](const std::string& stem, std::int64_t n, std::int64_t k) {
        add_plain(stem + "_bias", {kExperts, n});
        if (!has_blocks) return add_plain(stem, {kExperts, k, n});
        tensors.push_back(filled(stem + "_blocks", "U8", {kExperts, n, k / 32, 16}, "\x12\x34\x56\x70\xab\x3d\x7c"));
        tensors.push_back(filled(stem + "_scales", "U8", {kExperts, n, k / 32}, "\x80"));
      };
      add_experts(layer + "mlp.experts.gate_up_proj", 2 * d_ff, d);
      add_experts(layer + "mlp.experts.down_proj", d, d_ff);
    } else if (family == Family::qwen3_moe) {
      add_dense(layer + "mlp.gate", {kExperts, d});
      for (std::int64_t e = 0; e < kExperts; ++e) add_mlp(layer + "mlp.experts." + std::to_string(e) + ".");
      add_dense(layer + "self_attn.q_norm", {head_dim});
      add_dense(layer + "self_attn.k_norm", {head_dim});
    } else {
      add_mlp(layer + "mlp.");
    }
    for (const char* name : {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"})
      add_dense(name, {d});
    add_dense("model.embed_tokens", {kVocab, d});
    add_dense("lm_head", {kVocab, d});
    if (draws.one_in(8))
      tensors.push_back(filled(layer + "self_attn.k_proj.k_scale", "F32", {}, std::string_view("\0\0\0\x40", 4)));
    for (std::size_t i = draws.count(8); i > 0; --i) damage(draws);
  }

  void damage(Drawn& draws) {
    TensorToWrite& tensor = tensors[draws.below(tensors.size())];
    const auto resize = [&] {
      tensor = filled(tensor.name, tensor.dtype, tensor.shape, tensor.bytes.empty() ? "\1" : tensor.bytes);
    };
    switch (draws.below(8)) {
      case 0: tensors.erase(tensors.begin() + (&tensor - tensors.data())); return;
      case 1:
        tensor.dtype = draws.of(
            std::array<std::string_view, 10>{"F32", "BF16", "F16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "I32", "I64"});
        return resize();
      case 2:
        if (!tensor.shape.empty()) tensor.shape[draws.below(tensor.shape.size())] = static_cast<std::int64_t>(draws.byte());
        return resize();
      case 3: tensor.shape.push_back(static_cast<std::int64_t>(draws.below(3))); return resize();
      case 4:
        if (!tensor.shape.empty()) tensor.shape.pop_back();
        return resize();
      case 5:
        if (!tensor.bytes.empty()) tensor.bytes[draws.below(tensor.bytes.size())] = static_cast<char>(draws.byte());
        return;
      case 6: std::ranges::fill(tensor.bytes, static_cast<char>(draws.byte())); return;
      default: std::ranges::reverse(tensor.shape); return;
    }
  }

  std::string config(std::string_view quantization) const {
    constexpr std::array kFamilies{"LlamaForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"};
    return fmt::format(
        R"({{"architectures":["{}"],"vocab_size":{},"hidden_size":{},"intermediate_size":{},"moe_intermediate_size":{},)"
        R"("num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":{},"head_dim":{},"num_experts":{},)"
        R"("num_local_experts":{},"num_experts_per_tok":1,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":1e4,"attention_bias":false,)"
        R"("torch_dtype":"bfloat16"{}{}}})",
        kFamilies[static_cast<std::size_t>(family)], kVocab, d, d_ff, d_ff, n_kv_heads, d / 2, kExperts, kExperts,
        quantization.empty() ? "" : ",\"quantization_config\":", quantization);
  }
};

/// The rows and columns of the ranks' matrices are those of the whole one.
void check_parts(const ModelWeights& whole, const ModelWeights& first, const ModelWeights& second) {
  const auto values = [](const Linear& linear) { return std::span(test::values_of(linear.weight())); };
  const Linear& out = whole.layers[0].attention_out;
  const std::int64_t k = out.n_in(), half = first.layers[0].attention_out.n_in();
  for (std::int64_t row = 0; row < out.n_out(); ++row) {
    const auto all = values(out).subspan(static_cast<std::size_t>(row * k), static_cast<std::size_t>(k));
    for (const ModelWeights* part : {&first, &second}) {
      const auto own =
          values(part->layers[0].attention_out).subspan(static_cast<std::size_t>(row * half), static_cast<std::size_t>(half));
      const auto expected = all.subspan(part == &first ? 0 : static_cast<std::size_t>(half), static_cast<std::size_t>(half));
      check(std::ranges::equal(own, expected), "a rank has other columns");
    }
  }
  if (whole.layers[0].up.is_empty()) return;
  const auto all = values(whole.layers[0].up);
  const std::size_t quarter = all.size() / 4;
  for (const ModelWeights* part : {&first, &second})
    for (const std::size_t of : {std::size_t{0}, std::size_t{1}}) {
      const auto own = values(part->layers[0].up).subspan(of * quarter, quarter);
      check(std::ranges::equal(own, all.subspan((2 * of + (part == &first ? 0 : 1)) * quarter, quarter)),
            "a rank has other rows");
    }
}

Result<ModelWeights> load(const ModelSpec& spec, const Checkpoint& checkpoint, ModelRank rank) {
  BATON_TRY_VOID(split_spec(spec, rank).map([](const ModelSpec&) {}));
  test::RankBackend backend(rank);
  const WeightBytes bytes = weight_bytes(spec, DType::f32, rank, &checkpoint);
  check(bytes.held > 0 && bytes.staged > 0 && bytes.staged < bytes.held, "weights of no size");
  return load_weights(spec, checkpoint, backend, DType::f32, 1);
}

/// Reads the folder, as one rank and as two.
Result<void> read(const std::filesystem::path& folder) {
  BATON_TRY(ModelSpec spec, read_model_spec(folder));
  BATON_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  BATON_TRY_VOID(fit_to_checkpoint(spec, checkpoint));
  BATON_TRY_VOID(read_kv_scales(spec, checkpoint).map([](const KvScales&) {}));
  const auto checked = check_weights(spec, checkpoint, {}, {});
  auto loaded = load(spec, checkpoint, {});
  check(checked.has_value() || !loaded, "weights that are not there are loaded");
  BATON_TRY(const ModelWeights whole, std::move(loaded));
  BATON_TRY(const ModelWeights first, load(spec, checkpoint, {0, 2}));
  BATON_TRY(const ModelWeights second, load(spec, checkpoint, {1, 2}));
  check_parts(whole, first, second);
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  log::set_level(log::Level::error);
  check(__sanitizer_install_malloc_and_free_hooks(count_allocation, count_release) != 0, "no hooks");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::FuzzFolder folder;
  std::string_view rest = test::fuzz_text(data, size);
  const std::string_view quantization = test::take_part(rest);
  Drawn draws(reinterpret_cast<const std::uint8_t*>(rest.data()), rest.size(), test::BehindBytes::zeros);
  const Case drawn(draws);
  const std::string file = test::safetensors_file(drawn.tensors);
  const std::size_t place = draws.below(quantization_files().size() + 1);
  folder.write("config.json", drawn.config(place == 0 ? quantization : ""));
  for (std::size_t i = 0; i < quantization_files().size(); ++i)
    folder.write_or_remove(quantization_files()[i], place == i + 1 ? quantization : "");
  folder.write("model.safetensors", file);
  const double begin_s = processor_seconds();
  const std::int64_t at_first = allocated;
  most_allocated = at_first;
  const auto done = read(folder.path());
  const auto most = static_cast<std::size_t>(most_allocated - at_first);
  check(processor_seconds() - begin_s <= kMostSeconds, "reading took more than a second");
  check(most <= kMostBytes + kMostBytesOfAByte * (file.size() + size), fmt::format("reading took {} bytes", most));
  if (done) return 0;
  check(!done.error().message.empty() && done.error().code != ErrorCode::internal, "an error without words");
  return 0;
}
