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
#include "load/byte_text.h"
#include "load/model_files.h"

namespace baton {
namespace {

/// The memory that the weights and the cache share.
struct Memory {
  std::string device = {};  ///< empty: the memory was given
  std::int64_t bytes = 0;   ///< free before the weights are loaded
  double share = 0;         ///< of what the weights leave, for the cache
  bool is_host = false;
};

/// `device`: null: the memory was given.
Memory memory_of(const InfoOptions& options, const Backend* device) {
  const double share = options.model.memory_utilization;
  if (device == nullptr) return {.bytes = options.memory_bytes, .share = share};
  const bool is_host = device->capabilities().shares_host_memory;
  return {device->info().device, device->free_memory_bytes(), is_host ? std::min(share, kHostMemoryShare) : share, is_host};
}

/// 1234567 as 1,234,567.
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

/// 12,345, 12.3 million.
std::string count_text(std::int64_t number) {
  return number < 1'000'000 ? grouped(number) : fmt::format("{:.1f} million", static_cast<double>(number) / 1e6);
}

/// Of what the matrices multiply that can take it; "": all multiply numbers of the model's dtype.
std::string_view activation_name(const ActivationChoice& choice) {
  using Kind = ActivationChoice::Kind;
  return choice.kind == Kind::fp8 ? to_string(DType::f8_e4m3) : choice.kind == Kind::int8 ? "int8" : "";
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

json::Value to_json(const std::string& name, const ModelInfo& info, const Memory& memory, const MemoryFit& fit,
                    const SharedWorkload& workload) {
  const ModelSpec& spec = info.spec;
  const AttentionSpec& attention = spec.layers[0].attention;  // recurrent layers have it, too
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
                    {"weight_bytes", info.weights.held}};
  for (const auto& [scheme, bytes] : info.weights.held_as)
    value["weight_bytes_by_scheme"][scheme == WeightScheme::dense ? to_string(info.dtypes.weights) : to_string(scheme)] = bytes;
  if (info.activations) {
    const std::string_view name = activation_name(*info.activations);
    value["activations"] = name.empty() ? to_string(info.dtypes.weights) : name;
  }
  value["stored_bytes"] = json::Value::object();
  for (const auto& [dtype, bytes] : info.stored_bytes) value["stored_bytes"][dtype] = bytes;
  if (!info.weights_fault.empty()) value["weights_fault"] = info.weights_fault;
  value["kv_cache_dtype"] = to_string(info.dtypes.kv);
  value["kv_bytes_per_token"] = context_bytes(info.groups, 1);
  value["layer_groups"] = json::Value::array();
  for (const KvGroup& group : info.groups)
    value["layer_groups"].push_back({{"layers", group.n_layers},
                                     {"kv_heads", group.n_kv_heads},
                                     {"head_dim", group.head_dim},
                                     {"latent_dim", group.latent_dim},
                                     {"window", group.window},
                                     {"kv_bytes_per_token", group.bytes_per_token}});
  value["recurrent_layers"] = info.n_recurrent_layers;
  value["draft_layer"] = info.spec.mtp.has_value();
  value["draft_layer_used"] = info.spec.uses_mtp;
  if (info.draft_layer && info.draft_layer->fault.empty()) {
    value["draft_layer_weight_bytes"] = info.draft_layer->weight_bytes;
    value["draft_layer_kv_bytes_per_token"] = info.draft_layer->kv_bytes_per_token;
  } else if (info.draft_layer) {
    value["draft_layer_fault"] = info.draft_layer->fault;
  }
  value["state_cache_dtype"] = to_string(info.dtypes.states);
  value["state_bytes_per_sequence"] = info.state_bytes;
  value["max_num_seqs"] = info.max_num_seqs;
  value["state_bytes_per_draft"] = info.draft_bytes;
  value["prefix_caching"] = info.has_prefix_cache();
  value["fits"] = {{"memory_bytes", memory.bytes},
                   {"cache_bytes", fit.cache_bytes},
                   {"context_len", fit.context_len},
                   {"snapshots", fit.n_snapshots},
                   {"tokens", fit.n_tokens}};
  const SharingBytes sharing = sharing_bytes(info.groups, workload);
  value["sharing"] = {{"requests", workload.n_requests},
                      {"shared_tokens", workload.shared_len},
                      {"own_tokens", workload.own_len},
                      {"kv_bytes_apart", sharing.apart},
                      {"kv_bytes_shared", info.has_prefix_cache() ? sharing.shared : sharing.apart}};
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
  const std::string_view dense = to_string(info.dtypes.weights);
  for (const auto& [dtype, bytes] : info.stored_bytes) stored.push_back(fmt::format("{} as {}", byte_text(bytes), dtype));
  std::vector<std::string> schemes;
  for (const auto& [scheme, bytes] : info.weights.held_as)
    if (scheme != WeightScheme::dense) schemes.push_back(fmt::format("{} as {}", byte_text(bytes), to_string(scheme)));
  schemes.push_back(fmt::format("{} as {}", byte_text(info.weights.held_as.at(WeightScheme::dense)), dense));
  const std::string in_memory = schemes.size() == 1
                                    ? fmt::format("{} in memory as {}", byte_text(info.weights.held), dense)
                                    : fmt::format("{} in memory: {}", byte_text(info.weights.held), fmt::join(schemes, ", "));
  if (stored.empty() && info.weights_fault.empty()) stored.emplace_back("no files");
  print_row("weights", stored.empty() ? in_memory : fmt::format("{}; {}", fmt::join(stored, ", "), in_memory));
  if (!info.weights_fault.empty()) print_row("", "cannot be loaded: " + info.weights_fault);
  if (!info.activations) return;
  const std::string_view name = activation_name(*info.activations);
  print_row("activations", name.empty() ? std::string(dense)
                                        : fmt::format("{} where the kernel of a matrix takes it, otherwise {}", name, dense));
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

std::string fit_text(const ModelInfo& info, const Memory& memory, const MemoryFit& fit) {
  if (!info.weights_fault.empty()) return "nothing: the weights cannot be loaded";
  const std::string of = fmt::format("{}{}", byte_text(memory.bytes),
                                     memory.device.empty() ? "" : fmt::format(" that are free ({})", memory.device));
  const std::int32_t n_sequences = info.max_num_seqs;
  const bool has_states = info.n_recurrent_layers > 0;
  if (fit.cache_bytes == 0 && has_states && fit.weight_bytes <= memory.bytes)
    return fmt::format("nothing: weights, the states of {} and of drafts need {}, of {}; lower --max-num-seqs",
                       counted(n_sequences, "sequence"), byte_text(info.weights.held + fit.state_bytes), of);
  if (fit.cache_bytes == 0) return fmt::format("nothing: loading the weights needs {}, of {}", byte_text(fit.weight_bytes), of);
  const std::string beside =
      has_states ? fmt::format("weights and {}", counted(n_sequences + fit.n_snapshots, "state")) : "the weights";
  return fmt::format("{} tokens in contexts of {}: a cache of {}, {:.0f}% of what {} leave of {}", grouped(fit.n_tokens),
                     grouped(fit.context_len), byte_text(fit.cache_bytes), 100 * memory.share, beside, of);
}

std::string heads_text(const AttentionSpec& spec) {
  if (spec.latent) return fmt::format("{}, latent attention", counted(spec.n_heads, "query head"));
  return fmt::format("{}, {}, head size {}", counted(spec.n_heads, "query head"), counted(spec.n_kv_heads, "KV head"),
                     spec.head_dim);
}

/// What a layer keeps of a token.
std::string kept_text(const KvGroup& group) {
  if (group.latent_dim == 0) return fmt::format("{} of {}", counted(group.n_kv_heads, "head"), group.head_dim);
  return fmt::format("a latent vector of {} and {} rotated elements", group.latent_dim, group.head_dim - group.latent_dim);
}

std::string draft_text(const DraftLayerInfo& layer, bool is_used) {
  if (!layer.fault.empty()) return layer.fault;
  return fmt::format("a layer for multi-token prediction, {} of weights and {} bytes a token{}", byte_text(layer.weight_bytes),
                     grouped(layer.kv_bytes_per_token),
                     is_used ? ", is loaded and counted" : ": loaded with --speculative-config, and not counted here");
}

void print_cache(const ModelInfo& info, const Memory& memory, const MemoryFit& fit, const SharedWorkload& workload) {
  print_row("KV cache", fmt::format("{} bytes a token, {}", grouped(context_bytes(info.groups, 1)), to_string(info.dtypes.kv)));
  for (const KvGroup& group : info.groups)
    print_row("", fmt::format("{}{}: {}, {} bytes a token", counted(group.n_layers, "layer"),
                              group.window == 0 ? "" : fmt::format(" with a window of {} tokens", grouped(group.window)),
                              kept_text(group), grouped(group.bytes_per_token)));
  if (info.draft_layer) print_row("drafts", draft_text(*info.draft_layer, info.spec.uses_mtp));
  if (info.n_recurrent_layers > 0) {
    print_row("states",
              fmt::format("{}: {} a sequence, {}; {} for each draft", counted(info.n_recurrent_layers, "recurrent layer"),
                          byte_text(info.state_bytes), to_string(info.dtypes.states), byte_text(info.draft_bytes)));
    print_row("", info.has_prefix_cache()
                      ? fmt::format("room for {} {} of them in the prefix cache, beside those of {}", grouped(fit.n_snapshots),
                                    plural(fit.n_snapshots, "snapshot"), counted(info.max_num_seqs, "sequence"))
                      : "no prefix caching beside sliding windows: each request computes its whole prompt");
  }
  print_row("fits", fit_text(info, memory, fit));
  if (fit.cache_bytes > 0 && fit.cache_bytes < context_bytes(info.groups, info.spec.max_position))
    print_row("", "less than the longest context: serve it with --max-model-len auto, or a length that fits");
  if (!info.has_prefix_cache()) return;  // requests share nothing
  const SharingBytes sharing = sharing_bytes(info.groups, workload);
  print_row("sharing", fmt::format("{} with {} shared and {} own tokens keep {} of KV, and {} without sharing",
                                   counted(workload.n_requests, "request"), grouped(workload.shared_len),
                                   grouped(workload.own_len), byte_text(sharing.shared), byte_text(sharing.apart)));
  print_row("",
            fmt::format("a decode step reads as much: {:.1f} times less with relayed attention",
                        static_cast<double>(sharing.apart) / static_cast<double>(std::max<std::int64_t>(1, sharing.shared))));
}

void print_table(const std::string& name, const ModelInfo& info, const Memory& memory, const MemoryFit& fit,
                 const SharedWorkload& workload) {
  const ModelSpec& spec = info.spec;
  const AttentionSpec& attention = spec.layers[0].attention;
  print_row("model", name);
  print_row("architecture", fmt::format("{}, {} parameters", spec.family, count_text(spec.n_parameters())));
  print_row("layers", fmt::format("{}: width {}, {}", spec.layers.size(), spec.d_model, heads_text(attention)));
  print_row("vocabulary", grouped(spec.n_vocab));
  print_row("longest context", fmt::format("{} tokens", grouped(spec.max_position)));
  print_weights(info);
  print_text_side(info);
  print_cache(info, memory, fit, workload);
}

Result<void> show_info(const InfoOptions& options) {
  BATON_TRY(const ModelFiles files, find_text_files(options.model, download_bar()));
  std::unique_ptr<Backend> device;
  if (options.memory_bytes == 0) {
    BATON_TRY(device, make_backend(options.model.device, {}));
  }
  BATON_TRY(const ModelInfo info, read_model_info(files.folder, options.model, device.get()));
  const Memory memory = memory_of(options, device.get());
  const std::int32_t context_len = options.context_len > 0 ? options.context_len : default_context(info);
  const MemoryFit fit = fit_in(info, memory.bytes, memory.share, context_len, memory.is_host);
  if (options.as_json) {
    print_output("{}\n", json::dump_pretty(to_json(files.name, info, memory, fit, options.workload)));
  } else {
    print_table(files.name, info, memory, fit, options.workload);
  }
  return {};
}

}  // namespace

int info_main(const InfoOptions& options) { return exit_code("baton info", show_info(options)); }

}  // namespace baton
