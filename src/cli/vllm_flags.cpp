/// Flags of vLLM's command line that change nothing here, so that a command line written for it starts.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/options.h"
#include "core/log.h"

namespace baton {
namespace {

constexpr std::string_view kAny = "*";
constexpr std::string_view kModel = "MODEL";

struct NeutralFlag {
  std::string_view name;
  std::string_view
      values;  ///< what is accepted, with "|" between; kAny; kModel: the model's own name; empty: the flag takes no value
  std::string_view reason;
};
constexpr std::array kNeutralFlags = std::to_array<NeutralFlag>({
    {"--api-server-count", "1", "one process answers"},
    {"--async-scheduling", "", "steps are always planned ahead"},
    {"--attention-backend", kAny, "there is one for each device; --attention chooses how shared prompts are read"},
    {"--chat-template-content-format", "auto|string|openai", "the template shows whether it takes lists of parts"},
    {"--code-revision", kAny, "no code of a model is ever run"},
    {"--compilation-config", kAny, "nothing is compiled at the start"},
    {"-O", kAny, "nothing is compiled at the start"},
    {"--config-format", "auto|hf", "config.json is read"},
    {"--convert", "auto|none", "the model generates"},
    {"--cpu-offload-gb", "0", "weights stay on the device"},
    {"--data-parallel-size", "1", "one engine"},
    {"-dp", "1", "one engine"},
    {"--disable-custom-all-reduce", "", "the size of what ranks add chooses the way"},
    {"--disable-fastapi-docs", "", "there are none"},
    {"--disable-frontend-multiprocessing", "", "one process answers"},
    {"--disable-hybrid-kv-cache-manager", "", "every layer group has its own blocks"},
    {"--disable-log-requests", "", "prompts are never logged"},
    {"--disable-log-stats", "", "statistics are in /metrics"},
    {"--disable-uvicorn-access-log", "", "--log-level says what is logged"},
    {"--distributed-executor-backend", "mp|uni", "--tensor-parallel-size starts the processes"},
    {"--enable-auto-tool-choice", "", "the model may always choose among the tools of a request"},
    {"--enable-chunked-prefill", "", "prompts are always computed in chunks"},
    {"--enable-prompt-tokens-details", "", "cached_tokens is always reported"},
    {"--enable-reasoning", "", "--reasoning-parser says how it is found"},
    {"--guided-decoding-backend", "auto|xgrammar|guidance|outlines|lm-format-enforcer", "there is one"},
    {"--hf-overrides", "{}", "config.json is taken as it is"},
    {"--ignore-patterns", kAny, "only the files that are read are downloaded"},
    {"--limit-mm-per-prompt", kAny, "prompts are texts"},
    {"--logprobs-mode", "raw_logprobs", "log-probabilities are the model's own"},
    {"--max-long-partial-prefills", "1", "--scheduling-policy says whose turn it is"},
    {"--max-num-partial-prefills", "1", "--scheduling-policy says whose turn it is"},
    {"--max-parallel-loading-workers", kAny, "--threads load the weights"},
    {"--max-seq-len-to-capture", kAny, "decode steps of every length are captured"},
    {"--model-impl", "auto", "there is one"},
    {"--no-enable-log-outputs", "", "answers are never logged"},
    {"--no-enable-log-requests", "", "prompts are never logged"},
    {"--no-enable-lora", "", "there are no adapters"},
    {"--no-trust-remote-code", "", "no code of a model is ever run"},
    {"--num-lookahead-slots", "0", "blocks are taken as they are needed"},
    {"--num-scheduler-steps", "1", "steps are always planned ahead"},
    {"--pipeline-parallel-size", "1", "one device"},
    {"-pp", "1", "one device"},
    {"--prefix-caching-hash-algo", kAny, "blocks are found by their tokens"},
    {"--runner", "auto|generate", "the model generates"},
    {"--swap-space", kAny, "nothing is swapped; --kv-offloading-size keeps evicted blocks in host memory"},
    {"--task", "auto|generate", "the model generates"},
    {"--tokenizer", kModel, "the tokenizer is the model's"},
    {"--tokenizer-mode", "auto|hf|mistral|slow", "there is one tokenizer"},
    {"--trust-remote-code", "", "no code of a model is ever run"},
    {"--use-tqdm-on-load", "", "a terminal sees the progress"},
    {"--use-v2-block-manager", "", "there is one"},
    {"--uvicorn-log-level", kAny, "--log-level says what is logged"},
});

/// The model that a command line names.
std::string model_of(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--model=")) return words[i].substr(words[i].find('=') + 1);
    if (words[i] == "--model" && i + 1 < words.size()) return words[i + 1];
  }
  return words.empty() || words[0].starts_with("-") ? "" : words[0];
}

bool is_among(std::string_view value, std::string_view values) {
  for (std::size_t begin = 0; begin <= values.size();) {
    const std::size_t end = std::min(values.find('|', begin), values.size());
    if (values.substr(begin, end - begin) == value) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words,
                                                       const std::function<bool(const std::string& flag)>& is_own) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = words[i].substr(0, words[i].find('='));
    const auto* known = std::ranges::find(kNeutralFlags, flag, &NeutralFlag::name);
    if (known == kNeutralFlags.end() || (is_own && is_own(flag))) {
      // The parser takes one dash and two letters for two flags.
      rest.push_back(flag == "-tp" ? "--tensor-parallel-size" + words[i].substr(flag.size()) : words[i]);
      continue;
    }
    if (!known->values.empty()) {
      std::string value;
      if (flag.size() < words[i].size())
        value = words[i].substr(flag.size() + 1);
      else if (i + 1 < words.size())
        value = words[++i];
      const std::string accepted = known->values == kModel ? model_of(words) : std::string(known->values);
      if (accepted != kAny && !is_among(value, accepted))
        return fail(ErrorCode::unsupported,
                    fmt::format("{} {}: only {} is supported: {}", flag, value, accepted, known->reason));
    }
    log::info("flag={} effect=none reason=\"{}\"", flag, known->reason);
  }
  return rest;
}

}  // namespace baton
