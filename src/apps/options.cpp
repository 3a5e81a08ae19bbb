/// Command-line flags: their rows, the environment, the configuration file, and vLLM's flags.
#include "apps/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "core/log.h"
#include "io/json.h"
#include "kernels/backend.h"
#include "server/speculative_config.h"

namespace baton {
namespace {

/// Flags of vLLM that ask for something that Baton always does; only `value` is accepted.
struct NeutralFlag {
  std::string_view name;
  std::string_view value;  ///< empty: the flag takes none
  std::string_view reason;
};
constexpr std::array kNeutralFlags = std::to_array<NeutralFlag>({
    {"--enable-chunked-prefill", "", "prompts are always computed in chunks"},
    {"--enable-prompt-tokens-details", "", "cached_tokens is always reported"},
    {"--tensor-parallel-size", "1", "one device"},
    {"-tp", "1", "one device"},
    {"--pipeline-parallel-size", "1", "one device"},
    {"-pp", "1", "one device"},
    {"--data-parallel-size", "1", "one engine"},
    {"-dp", "1", "one engine"},
    {"--scheduling-policy", "fcfs", "a request's priority always counts; equal priorities are served in the order of arrival"},
    {"--scheduling-policy", "priority",
     "a request's priority always counts; equal priorities are served in the order of arrival"},
    {"--async-scheduling", "", "steps are always planned ahead"},
    {"--disable-log-requests", "", "prompts are never logged"},
    {"--no-enable-log-requests", "", "prompts are never logged"},
    {"--tokenizer-mode", "auto", "there is one tokenizer"},
});

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string nearest_flag(const CLI::App& app, std::string_view flag) {
  std::string best;
  int best_distance = std::numeric_limits<int>::max();
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const int distance = edit_distance(flag, "--" + name);
      if (distance < best_distance) {
        best = "--" + name;
        best_distance = distance;
      }
    }
  }
  return best;
}

/// Adds an option to a group of the help text; if it is given several times, the last one counts.
template <class Value>
CLI::Option* row(CLI::App& app, const char* group, const char* flags, Value& value, const char* help) {
  return app.add_option(flags, value, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->capture_default_str()
      ->group(group);
}

/// Adds an option whose text `parse` turns into the value; a text that it refuses is a usage error.
template <class Value, class Parse>
void parsed_row(CLI::App& app, const char* group, const char* flags, Value& value, const char* help, Parse parse) {
  app.add_option_function<std::string>(
         flags,
         [&value, parse](const std::string& text) {
           Result<Value> parsed = parse(text);
           if (!parsed) throw CLI::ValidationError(parsed.error().message);
           value = std::move(*parsed);
         },
         help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(group);
}

Result<SpeculationOptions> parse_speculation(const std::string& text) {
  constexpr std::string_view kFlag = "--speculative-config";
  BATON_TRY(const json::Value config, json::parse(text, kFlag));
  return parse_speculative_config(config, kFlag);
}

void add_scheduler_options(CLI::App& app, ModelFlags& options) {
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.enable_prefix_caching,
               "Keep the blocks of prompts for later requests that begin alike (on)")
      ->group("Cache and scheduler");
  row(app, "Cache and scheduler", "--block-size", options.block_size, "Tokens in a block of the cache")
      ->check(CLI::IsMember({16, 32, 64, 128, 256}));
  row(app, "Cache and scheduler", "--kv-cache-dtype", options.kv_cache_dtype, "auto (the weights'), bfloat16, float32")
      ->check(CLI::IsMember(choices(kDtypeNames)));
  parsed_row(app, "Cache and scheduler", "--kv-cache-memory-bytes", options.kv_cache_memory_bytes,
             "Size of the cache, with K, M or G; default: as much as the requests can use, at most a share of free memory",
             [](const std::string& text) { return parse_bytes(text, "--kv-cache-memory-bytes"); });
  row(app, "Cache and scheduler", "--gpu-memory-utilization", options.gpu_memory_utilization,
      "Share of free memory that the cache may use")
      ->check(CLI::Range(0.01, 1.0));
  row(app, "Cache and scheduler", "--max-num-seqs", options.max_num_seqs, "Sequences that run at the same time")
      ->check(CLI::Range(1, 4096));
  row(app, "Cache and scheduler", "--max-num-batched-tokens", options.max_num_batched_tokens, "Most tokens in a step")
      ->check(CLI::Range(1, 65536));
  row(app, "Cache and scheduler", "--max-prefill-tokens", options.max_prefill_tokens,
      "Most prompt tokens in a step in which other requests decode; 0: 128 on a CPU, otherwise no separate limit")
      ->check(CLI::NonNegativeNumber);
  row(app, "Cache and scheduler", "--step-timeout", options.step_timeout_s,
      "Seconds after which an unfinished step is logged and /health answers 503; 0: never")
      ->check(CLI::Range(0.0, 86400.0));
  row(app, "Cache and scheduler", "--max-num-queued-reqs", options.max_num_queued_reqs,
      "Requests that may wait; further requests get 503; 0: no limit")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

std::vector<std::string> choices(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

void add_model_options(CLI::App& app, ModelFlags& options) {
  row(app, "Options", "MODEL,--model", options.model,
      "Folder or Hugging Face id of the model; 'demo' or nothing: the demo model")
      ->default_str("");
  row(app, "Model", "--revision", options.revision, "Branch, tag or commit of the model");
  row(app, "Model", "--download-dir", options.download_dir, "Folder for downloaded models (default: the Hugging Face cache)");
  row(app, "Model", "--load-format", options.load_format, "auto, safetensors, or dummy: random weights from config.json alone")
      ->check(CLI::IsMember(choices(kLoadFormats)));
  row(app, "Model", "--dtype", options.dtype, "Data type of the weights: auto (the checkpoint's), bfloat16, float32")
      ->check(CLI::IsMember(choices(kDtypeNames)));
  row(app, "Model", "--max-model-len", options.max_model_len, "Longest prompt plus answer in tokens; 0: the model's limit")
      ->check(CLI::NonNegativeNumber);
  row(app, "Model", "--chat-template", options.chat_template, "File with a chat template that replaces the model's")
      ->check(CLI::ExistingFile);
  row(app, "Model", "--generation-config", options.generation_config,
      "auto: the model's generation_config.json sets sampling defaults; vllm: it is ignored")
      ->check(CLI::IsMember(choices(kGenerationConfigs)));
  row(app, "Model", "--seed", options.seed, "Seed for requests without one");

  row(app, "Device", "--device", options.device, "cpu or cuda")->check(CLI::IsMember(choices(kBackendNames)));
  row(app, "Device", "--threads", options.threads, "Threads of the CPU backend; 0: as many as CPU affinity and quota allow")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--enforce-eager", options.enforce_eager,
               "Launch the operations of a decode step one by one instead of as a CUDA graph; no effect on a CPU")
      ->group("Device");

  row(app, "Attention", "--attention", options.attention,
      "relay: shared prompts are read once per step for all requests; paged: each request reads them")
      ->check(CLI::IsMember(choices(kAttentionNames)));
  app.add_flag("--batch-invariant", options.batch_invariant,
               "Bit-identical answers alone or in a batch, with a cold or warm cache, relay or paged; slower")
      ->group("Attention");

  add_scheduler_options(app, options);

  parsed_row(app, "Speculation", "--speculative-config", options.speculation,
             "JSON, as {\"method\": \"ngram\", \"num_speculative_tokens\": 4}: draft the tokens that followed "
             "the same prompt_lookup_min (2) to prompt_lookup_max (4) tokens earlier; same answers, sooner",
             parse_speculation);
  app.add_option("--prefix", options.prefixes,
                 "NAME=FILE: a shared prompt (a text file is a system message, a .json file a list of "
                 "messages), computed and pinned before the first request")
      ->take_all()
      ->allow_extra_args(false)
      ->group("Prefixes");
  row(app, "Prefixes", "--max-pinned-blocks", options.max_pinned_blocks,
      "Cache blocks that registered prompts may keep; 0: all except those of one longest sequence")
      ->check(CLI::NonNegativeNumber);

  row(app, "Log", "--log-level", options.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--config", "YAML file with flags (`max-num-seqs: 64`); the command line wins")
      ->check(CLI::ExistingFile)
      ->group("Log");
}

void use_log_level(const ModelFlags& options) {
  if (const auto level = log::level_from_name(options.log_level)) log::set_level(*level);
}

void name_environment_variables(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_lnames()[0] == "config") continue;
    std::string name = "BATON_" + option->get_lnames()[0];
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
    option->envname(name);
  }
}

Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = words[i].substr(0, words[i].find('='));
    const auto* known =
        std::find_if(kNeutralFlags.begin(), kNeutralFlags.end(), [&](const NeutralFlag& row) { return row.name == flag; });
    if (known == kNeutralFlags.end()) {
      rest.push_back(words[i]);
      continue;
    }
    if (!known->value.empty()) {
      std::string value;
      if (flag.size() < words[i].size())
        value = words[i].substr(flag.size() + 1);
      else if (i + 1 < words.size())
        value = words[++i];
      std::string accepted;
      bool is_accepted = false;
      for (const NeutralFlag& row : kNeutralFlags) {
        if (row.name != flag) continue;
        is_accepted |= row.value == value;
        accepted += fmt::format("{}{}", accepted.empty() ? "" : " or ", row.value);
      }
      if (!is_accepted) return fail(ErrorCode::unsupported, fmt::format("{} {}: only {} is supported", flag, value, accepted));
    }
    log::info("flag={} effect=none reason=\"{}\"", flag, known->reason);
  }
  return rest;
}

Result<void> refuse_unknown_flags(const CLI::App& app, const std::vector<std::string>& extras) {
  if (extras.empty()) return {};
  // An unknown flag is named rather than an unknown word, because the word is probably its value.
  const auto flag = std::find_if(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (flag == extras.end()) return fail(ErrorCode::invalid_request, fmt::format("unexpected argument '{}'", extras[0]));
  const std::string name = flag->substr(0, flag->find('='));
  return fail(ErrorCode::invalid_request,
              fmt::format("unknown flag {}; the nearest there is: {}", name, nearest_flag(app, name)));
}

Result<std::vector<std::string>> with_config_file(std::vector<std::string> arguments) {
  std::string file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].starts_with("--config=")) file = arguments[i].substr(9);
  }
  if (file.empty()) return arguments;
  std::vector<std::string> from_file;
  std::string model;
  try {
    const YAML::Node root = YAML::LoadFile(file);
    if (!root.IsMap()) return fail(ErrorCode::invalid_data, fmt::format("{}: not a mapping of flags to values", file));
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      if (key == "model") {
        model = entry.second.as<std::string>();
      } else if (entry.second.IsSequence()) {
        for (const auto& value : entry.second) from_file.insert(from_file.end(), {"--" + key, value.as<std::string>()});
      } else if (!entry.second.IsScalar()) {
        return fail(ErrorCode::invalid_data, fmt::format("{}: {} is neither a value nor a list", file, key));
      } else if (const auto text = entry.second.as<std::string>(); text == "true") {
        from_file.push_back("--" + key);
      } else if (text == "false") {
        from_file.push_back("--no-" + key);
      } else {
        from_file.insert(from_file.end(), {"--" + key, text});
      }
    }
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::invalid_data, fmt::format("{}: {}", file, error.what()));
  }
  // The file's model counts only if the command line names none, as the first word or by --model.
  const bool names_model = !arguments.empty() && (!arguments[0].starts_with("-") ||
                                                  std::find(arguments.begin(), arguments.end(), "--model") != arguments.end());
  if (!model.empty() && !names_model) from_file.insert(from_file.end(), {"--model", model});
  // MODEL stays first: a flag of the file that takes several words would take it too.
  const auto n_first = static_cast<std::ptrdiff_t>(!arguments.empty() && !arguments[0].starts_with("-") ? 1 : 0);
  arguments.insert(arguments.begin() + n_first, from_file.begin(), from_file.end());
  return arguments;
}

Result<std::int64_t> parse_bytes(const std::string& text, const std::string& flag) {
  std::size_t end = 0;
  double number = -1;
  const std::string digits = text.substr(0, text.find_first_not_of("0123456789."));
  if (!digits.empty() && digits.size() < 16) {
    number = std::strtod(digits.c_str(), nullptr);
    end = digits.size();
  }
  std::string unit = text.substr(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  double factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "K" || unit == "KIB" || unit == "KB") factor = 0x1p10;
  if (unit == "M" || unit == "MIB" || unit == "MB") factor = 0x1p20;
  if (unit == "G" || unit == "GIB" || unit == "GB") factor = 0x1p30;
  if (number < 0 || factor == 0 || number * factor > 0x1p50)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} {}: not a size; write a number with K, M, G or nothing behind it", flag, text));
  return static_cast<std::int64_t>(std::llround(number * factor));
}

}  // namespace baton
