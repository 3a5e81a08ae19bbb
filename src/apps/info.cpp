/// Facts about a model as a table or as JSON.
#include "apps/programs.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output.h"
#include "cli/progress.h"
#include "core/one_line.h"
#include "engine/cache/cache_size.h"
#include "io/json.h"
#include "kernels/backend.h"
#include "load/model_files.h"

namespace baton {
namespace {

constexpr std::int32_t kShownContext = 8192;

/// What a memory has room for beside the weights.
struct Fit {
  std::string device = {};        ///< empty: the memory was given
  std::int64_t memory_bytes = 0;  ///< free before the weights are loaded
  double share = 0;               ///< of what the weights leave, for the cache
  std::int32_t context_len = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t n_tokens = 0;  ///< in contexts of this length
};

Result<Fit> find_fit(const InfoOptions& options, const ModelInfo& info) {
  Fit fit{.memory_bytes = options.memory_bytes, .share = options.model.memory_utilization};
  if (fit.memory_bytes == 0) {
    BATON_TRY(const std::unique_ptr<Backend> backend, make_backend(options.model.device, {}));
    fit.device = backend->info().device;
    fit.memory_bytes = backend->free_memory_bytes();
    if (backend->capabilities().shares_host_memory) fit.share = std::min(fit.share, kHostMemoryShare);
  }
  fit.context_len = options.context_len > 0 ? options.context_len : std::min(info.spec.max_position, kShownContext);
  const auto left = static_cast<double>(std::max<std::int64_t>(0, fit.memory_bytes - info.weight_bytes));
  fit.cache_bytes = static_cast<std::int64_t>(left * fit.share);
  const double of_context = static_cast<double>(context_bytes(info.groups, fit.context_len));
  fit.n_tokens = static_cast<std::int64_t>(static_cast<double>(fit.cache_bytes) / of_context * fit.context_len);
  return fit;
}

std::string bytes_text(std::int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", number / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", number / 1e6);
  return fmt::format("{:.1f} GB", number / 1e9);
}

/// 1234567 as 1,234,567.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

json::Value generation_json(const GenerationConfig& generation) {
  json::Value value = json::Value::object();
  const auto set = [&](const char* name, const auto& field) {
    if (field) value[name] = *field;
  };
  set("do_sample", generation.do_sample);
  set("temperature", generation.temperature);
  set("top_p", generation.top_p);
  set("top_k", generation.top_k);
  set("min_p", generation.min_p);
  set("repetition_penalty", generation.repetition_penalty);
  set("max_new_tokens", generation.max_new_tokens);
  if (!generation.eos_token_ids.empty()) value["eos_token_id"] = generation.eos_token_ids;
  return value;
}

json::Value to_json(const std::string& name, const ModelInfo& info, const Fit& fit, const SharedWorkload& workload) {
  const ModelSpec& spec = info.spec;
  const AttentionSpec& attention = spec.layers[0].attention;
  json::Value value{{"model", name},
                    {"architecture", spec.family},
                    {"parameters", spec.n_parameters()},
                    {"layers", spec.layers.size()},
                    {"hidden_size", spec.d_model},
                    {"heads", attention.n_heads},
                    {"kv_heads", attention.n_kv_heads},
                    {"head_dim", attention.head_dim},
                    {"vocabulary", spec.n_vocab},
                    {"max_position", spec.max_position},
                    {"dtype", to_string(spec.dtype)},
                    {"weight_bytes", info.weight_bytes}};
  for (const auto& [scheme, bytes] : info.held_as)
    value["weight_bytes_by_scheme"][scheme == WeightScheme::dense ? to_string(spec.dtype) : to_string(scheme)] = bytes;
  value["stored_bytes"] = json::Value::object();
  for (const auto& [dtype, bytes] : info.stored_bytes) value["stored_bytes"][dtype] = bytes;
  if (!info.weights_fault.empty()) value["weights_fault"] = info.weights_fault;
  value["kv_cache_dtype"] = to_string(info.kv_dtype);
  value["kv_bytes_per_token"] = context_bytes(info.groups, 1);
  value["layer_groups"] = json::Value::array();
  for (const KvGroup& group : info.groups)
    value["layer_groups"].push_back({{"layers", group.n_layers},
                                     {"kv_heads", group.n_kv_heads},
                                     {"head_dim", group.head_dim},
                                     {"window", group.window},
                                     {"kv_bytes_per_token", group.bytes_per_token}});
  value["fits"] = {{"memory_bytes", fit.memory_bytes},
                   {"cache_bytes", fit.cache_bytes},
                   {"context_len", fit.context_len},
                   {"tokens", fit.n_tokens}};
  const SharingBytes sharing = sharing_bytes(info.groups, workload);
  value["sharing"] = {{"requests", workload.n_requests},
                      {"shared_tokens", workload.shared_len},
                      {"own_tokens", workload.own_len},
                      {"kv_bytes_apart", sharing.apart},
                      {"kv_bytes_shared", sharing.shared}};
  value["tokenizer"] = info.tokenizer;
  if (!info.tokenizer_fault.empty()) value["tokenizer_fault"] = info.tokenizer_fault;
  value["tokenizer_tokens"] = info.n_tokens;
  value["chat_templates"] = info.templates;
  value["generation_config"] = generation_json(info.generation);
  return value;
}

/// Names of tensors, templates and components come from the files.
void print_row(std::string_view title, const std::string& text) {
  print_output("{:<20} {}\n", title, one_line(text, kMaxMessageBytes));
}

void print_weights(const ModelInfo& info) {
  std::vector<std::string> stored;
  for (const auto& [dtype, bytes] : info.stored_bytes) stored.push_back(fmt::format("{} as {}", bytes_text(bytes), dtype));
  std::vector<std::string> schemes;
  for (const auto& [scheme, bytes] : info.held_as)
    if (scheme != WeightScheme::dense) schemes.push_back(fmt::format("{} as {}", bytes_text(bytes), to_string(scheme)));
  schemes.push_back(fmt::format("{} as {}", bytes_text(info.held_as.at(WeightScheme::dense)), to_string(info.spec.dtype)));
  const std::string in_memory =
      schemes.size() == 1 ? fmt::format("{} in memory as {}", bytes_text(info.weight_bytes), to_string(info.spec.dtype))
                          : fmt::format("{} in memory: {}", bytes_text(info.weight_bytes), fmt::join(schemes, ", "));
  if (stored.empty() && info.weights_fault.empty()) stored.emplace_back("no files");
  print_row("weights", stored.empty() ? in_memory : fmt::format("{}; {}", fmt::join(stored, ", "), in_memory));
  if (!info.weights_fault.empty()) print_row("", "not readable: " + info.weights_fault);
}

void print_text_side(const ModelInfo& info) {
  print_row("tokenizer", info.tokenizer.empty() ? "none"
                         : info.tokenizer_fault.empty()
                             ? fmt::format("{}, {} tokens", info.tokenizer, grouped(info.n_tokens))
                             : fmt::format("{}, not readable: {}", info.tokenizer, info.tokenizer_fault));
  print_row("chat templates", info.templates.empty() ? "none" : fmt::format("{}", fmt::join(info.templates, ", ")));
  std::vector<std::string> defaults;
  const json::Value generation = generation_json(info.generation);
  for (auto field = generation.begin(); field != generation.end(); ++field)
    defaults.push_back(fmt::format("{} {}", field.key(), json::dump(field.value())));
  print_row("generation config", defaults.empty() ? "none" : fmt::format("{}", fmt::join(defaults, ", ")));
}

void print_cache(const ModelInfo& info, const Fit& fit, const SharedWorkload& workload) {
  print_row("KV cache", fmt::format("{} bytes a token, {}", grouped(context_bytes(info.groups, 1)), to_string(info.kv_dtype)));
  for (const KvGroup& group : info.groups)
    print_row("", fmt::format("{} layers{}: {} heads of {}, {} bytes a token", group.n_layers,
                              group.window == 0 ? "" : fmt::format(" with a window of {} tokens", grouped(group.window)),
                              group.n_kv_heads, group.head_dim, grouped(group.bytes_per_token)));
  const std::string memory = fmt::format("{}{}", bytes_text(fit.memory_bytes),
                                         fit.device.empty() ? "" : fmt::format(" that are free ({})", fit.device));
  print_row("fits", fit.cache_bytes == 0
                        ? fmt::format("nothing: the weights need {}, of {}", bytes_text(info.weight_bytes), memory)
                        : fmt::format("{} tokens in contexts of {}: a cache of {}, {:.0f}% of what the weights leave of {}",
                                      grouped(fit.n_tokens), grouped(fit.context_len), bytes_text(fit.cache_bytes),
                                      100 * fit.share, memory));
  const SharingBytes sharing = sharing_bytes(info.groups, workload);
  print_row("sharing", fmt::format("{} requests with {} shared and {} own tokens keep {} of KV, and {} without sharing",
                                   workload.n_requests, grouped(workload.shared_len), grouped(workload.own_len),
                                   bytes_text(sharing.shared), bytes_text(sharing.apart)));
  print_row("",
            fmt::format("a decode step reads as much: {:.1f} times less with relayed attention",
                        static_cast<double>(sharing.apart) / static_cast<double>(std::max<std::int64_t>(1, sharing.shared))));
}

void print_table(const std::string& name, const ModelInfo& info, const Fit& fit, const SharedWorkload& workload) {
  const ModelSpec& spec = info.spec;
  const AttentionSpec& attention = spec.layers[0].attention;
  print_row("model", name);
  print_row("architecture",
            fmt::format("{}, {:.1f} million parameters", spec.family, static_cast<double>(spec.n_parameters()) / 1e6));
  print_row("layers", fmt::format("{}: width {}, {} query heads, {} KV heads, head size {}", spec.layers.size(), spec.d_model,
                                  attention.n_heads, attention.n_kv_heads, attention.head_dim));
  print_row("vocabulary", grouped(spec.n_vocab));
  print_row("longest context", fmt::format("{} tokens", grouped(spec.max_position)));
  print_weights(info);
  print_text_side(info);
  print_cache(info, fit, workload);
}

Result<void> show_info(const InfoOptions& options) {
  BATON_TRY(const ModelFiles files, find_text_files(options.model, download_bar()));
  BATON_TRY(const ModelInfo info, read_model_info(files.folder, options.model));
  BATON_TRY(const Fit fit, find_fit(options, info));
  if (options.as_json) {
    print_output("{}\n", json::dump_pretty(to_json(files.name, info, fit, options.workload)));
  } else {
    print_table(files.name, info, fit, options.workload);
  }
  return {};
}

}  // namespace

int info_main(const InfoOptions& options) { return exit_code("baton info", show_info(options)); }

}  // namespace baton
