/// The table of vLLM's flags that Baton does not have, and the removal of flags that change nothing.
#include "cli/flags/vllm_flags.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"

namespace baton {
namespace {

constexpr std::array kVllmFlags = std::to_array<VllmFlag>({
    {"--additional-config", "{}", "there are no plug-ins"},
    {"--aggregate-engine-logging", kOnOrOff, "one engine"},
    {"--all2all-backend", kAnyValue, "--tensor-parallel-size splits experts"},
    {"--allow-deprecated-quantization", kOnOrOff, "weights are read in the format of the checkpoint"},
    {"--allowed-local-media-path", kAnyValue, "prompts are texts"},
    {"--allowed-media-domains", kAnyValue, "prompts are texts"},
    {"--api-server-count", "1", "one process answers"},
    {"--async-scheduling", kOnOrOff, "steps are always planned ahead"},
    {"--attention-backend", kAnyValue, "there is one for each device; --attention chooses how shared prompts are read"},
    {"--attention-config", kAnyValue, "there is one for each device; --attention chooses how shared prompts are read"},
    {"--calculate-kv-scales", kOff, "an fp8 cache has no scales"},
    {"--chat-template-content-format", "auto|string|openai", "the template shows whether it takes lists of parts"},
    {"--code-revision", kAnyValue, "no code of a model is ever run"},
    {"--collect-detailed-traces", kNothing, "there are no traces; /metrics says what takes time"},
    {"--compilation-config", kAnyValue, "nothing is compiled at the start"},
    {"--config-format", "auto|hf", "config.json is read"},
    {"--convert", "auto|none", "the model generates"},
    {"--cp-kv-cache-interleave-size", kAnyValue, "contexts are not split"},
    {"--cpu-offload-gb", "0", "weights stay on the device"},
    {"--cudagraph-capture-sizes", kAnyValue, "decode steps of every length are captured"},
    {"--cudagraph-metrics", kOff, "they are not measured"},
    {"--data-parallel-address", kNothing, "one engine"},
    {"--data-parallel-backend", kAnyValue, "one engine"},
    {"--data-parallel-external-lb", kOff, "one engine"},
    {"--data-parallel-hybrid-lb", kOff, "one engine"},
    {"--data-parallel-rank", kNothing, "one engine"},
    {"--data-parallel-rpc-port", kNothing, "one engine"},
    {"--data-parallel-size", "1", "one engine"},
    {"--data-parallel-size-local", "1", "one engine"},
    {"--data-parallel-start-rank", kNothing, "one engine"},
    {"--dbo-decode-token-threshold", kAnyValue, "steps are not cut in two"},
    {"--dbo-prefill-token-threshold", kAnyValue, "steps are not cut in two"},
    {"--dcp-kv-cache-interleave-size", kAnyValue, "contexts are not split"},
    {"--decode-context-parallel-size", "1", "contexts are not split"},
    {"--default-mm-loras", kAnyValue, "there are no adapters"},
    {"--disable-async-output-proc", kOnOrOff, "answers always become text beside the steps"},
    {"--disable-cascade-attn", kOnOrOff, "--attention says how shared prompts are read"},
    {"--disable-chunked-mm-input", kOnOrOff, "prompts are texts"},
    {"--disable-custom-all-reduce", kOnOrOff, "the size of what ranks add chooses the way"},
    {"--disable-fastapi-docs", kOnOrOff, "there are none"},
    {"--disable-frontend-multiprocessing", kOnOrOff, "one process answers"},
    {"--disable-hybrid-kv-cache-manager", kOnOrOff, "every layer group has its own blocks"},
    {"--disable-log-requests", kOn, "prompts are never logged"},
    {"--disable-log-stats", kOnOrOff, "statistics are in /metrics and in outputs"},
    {"--disable-mm-preprocessor-cache", kOnOrOff, "prompts are texts"},
    {"--disable-nccl-for-dp-synchronization", kOnOrOff, "one engine"},
    {"--disable-sliding-window", kOff, "windows are part of the model; --max-model-len shortens contexts"},
    {"--disable-uvicorn-access-log", kOnOrOff, "--log-level says what is logged"},
    {"--distributed-executor-backend", "mp|uni", "--tensor-parallel-size starts the processes"},
    {"--ec-transfer-config", kNothing, "caches are not sent to other engines"},
    {"--enable-auto-tool-choice", kOn, "the model may always choose among the tools of a request"},
    {"--enable-chunked-prefill", kOn, "prompts are always computed in chunks"},
    {"--enable-dbo", kOff, "steps are not cut in two"},
    {"--enable-eplb", kOff, "--tensor-parallel-size splits experts"},
    {"--enable-expert-parallel", kOff, "--tensor-parallel-size splits experts"},
    {"--enable-layerwise-nvtx-tracing", kOff, "there are no traces; /metrics says what takes time"},
    {"--enable-log-outputs", kOff, "answers are never logged"},
    {"--enable-log-requests", kOff, "prompts are never logged"},
    {"--enable-logging-iteration-details", kOff, "steps are not logged; /metrics counts them"},
    {"--enable-lora", kOff, "there are no adapters"},
    {"--enable-lora-bias", kOff, "there are no adapters"},
    {"--enable-mfu-metrics", kOff, "they are not measured"},
    {"--enable-mm-embeds", kOff, "prompts are texts"},
    {"--enable-mm-processor-stats", kOff, "prompts are texts"},
    {"--enable-prompt-embeds", kOff, "prompts are texts or token ids"},
    {"--enable-prompt-tokens-details", kOnOrOff, "cached_tokens is always reported"},
    {"--enable-reasoning", kOn, "--reasoning-parser says how it is found"},
    {"--enable-return-routed-experts", kOff, "outputs hold no routing"},
    {"--enable-sleep-mode", kOff, "a model that is not needed is closed"},
    {"--eplb-config", kAnyValue, "--tensor-parallel-size splits experts"},
    {"--expert-placement-strategy", kAnyValue, "--tensor-parallel-size splits experts"},
    {"--fully-sharded-loras", kOnOrOff, "there are no adapters"},
    {"--guided-decoding-backend", "auto|xgrammar|guidance|outlines|lm-format-enforcer", "there is one"},
    {"--hf-config-path", kNothing, "config.json is the model's"},
    {"--hf-overrides", "{}", "config.json is taken as it is"},
    {"--hf-token", "true", "HF_TOKEN or `hf auth login` gives the token"},
    {"--ignore-patterns", kAnyValue, "only the files that are read are downloaded"},
    {"--interleave-mm-strings", kOnOrOff, "prompts are texts"},
    {"--io-processor-plugin", kNothing, "there are no plug-ins"},
    {"--kv-cache-metrics", kOff, "/metrics has Baton's own"},
    {"--kv-cache-metrics-sample", kAnyValue, "/metrics has Baton's own"},
    {"--kv-events-config", kNothing, "`baton serve` tells routers what the cache holds"},
    {"--kv-sharing-fast-prefill", kOff, "every layer computes its own keys and values"},
    {"--kv-transfer-config", kNothing, "caches are not sent to other engines; --kv-offloading-size keeps evicted blocks"},
    {"--limit-mm-per-prompt", kAnyValue, "prompts are texts"},
    {"--logits-processor-pattern", kNothing, "no code of others runs in a step"},
    {"--logits-processors", kNothing, "no code of others runs in a step; logit_bias, bad_words and grammars act on logits"},
    {"--logprobs-mode", "raw_logprobs", "log-probabilities are the model's own"},
    {"--long-prefill-token-threshold", "0", "--max-prefill-tokens bounds prompts beside answers"},
    {"--lora-dtype", kAnyValue, "there are no adapters"},
    {"--lora-extra-vocab-size", kAnyValue, "there are no adapters"},
    {"--lora-modules", kNothing, "there are no adapters"},
    {"--mamba-block-size", kAnyValue, "the prefix cache keeps states where they save most, at the end of any block"},
    {"--mamba-cache-dtype", "auto|float32", "inputs of convolutions are float32; --state-cache-dtype says what matrices are"},
    {"--mamba-cache-mode", kAnyValue, "the prefix cache keeps states where they save most, at the end of any block"},
    {"--max-cpu-loras", kAnyValue, "there are no adapters"},
    {"--max-cudagraph-capture-size", kAnyValue, "decode steps of every length are captured"},
    {"--max-long-partial-prefills", "1", "--scheduling-policy says whose turn it is"},
    {"--max-lora-rank", kAnyValue, "there are no adapters"},
    {"--max-loras", kAnyValue, "there are no adapters"},
    {"--max-num-partial-prefills", "1", "--scheduling-policy says whose turn it is"},
    {"--max-parallel-loading-workers", kAnyValue, "--threads load the weights"},
    {"--max-seq-len-to-capture", kAnyValue, "decode steps of every length are captured"},
    {"--media-io-kwargs", kAnyValue, "prompts are texts"},
    {"--mm-encoder-attn-backend", kAnyValue, "prompts are texts"},
    {"--mm-encoder-only", kOff, "prompts are texts"},
    {"--mm-encoder-tp-mode", kAnyValue, "prompts are texts"},
    {"--mm-processor-cache-gb", kAnyValue, "prompts are texts"},
    {"--mm-processor-cache-type", kAnyValue, "prompts are texts"},
    {"--mm-processor-kwargs", kAnyValue, "prompts are texts"},
    {"--mm-shm-cache-max-object-size-mb", kAnyValue, "prompts are texts"},
    {"--model-impl", "auto|vllm", "there is one"},
    {"--model-loader-extra-config", "{}", "safetensors need none"},
    {"--nnodes", "1", "--rank and --world-size say so"},
    {"--node-rank", "0", "--rank and --world-size say so"},
    {"--num-gpu-blocks-override", kNothing, "--kv-cache-memory-bytes says how large the cache is"},
    {"--num-lookahead-slots", "0", "blocks are taken as they are needed"},
    {"--num-scheduler-steps", "1", "steps are always planned ahead"},
    {"--offload-group-size", "0", "weights stay on the device"},
    {"--offload-num-in-group", kAnyValue, "weights stay on the device"},
    {"--offload-params", kAnyValue, "weights stay on the device"},
    {"--offload-prefetch-step", kAnyValue, "weights stay on the device"},
    {"--optimization-level", kAnyValue, "nothing is compiled at the start"},
    {"--otlp-traces-endpoint", kNothing, "there are no traces; /metrics says what takes time"},
    {"--override-attention-dtype", kNothing, "attention adds up in float32"},
    {"--override-generation-config", "{}", "--generation-config names another"},
    {"--override-pooler-config", kNothing, "the model generates"},
    {"--pipeline-parallel-size", "1", "one device"},
    {"--pooler-config", kNothing, "the model generates"},
    {"--prefill-context-parallel-size", "1", "contexts are not split"},
    {"--prefix-caching-hash-algo", kAnyValue, "blocks are found by their tokens"},
    {"--profiler-config", "{}", "there is no profiler"},
    {"--pt-load-map-location", kAnyValue, "safetensors are read"},
    {"--ray-workers-use-nsight", kOff, "there is no profiler"},
    {"--reasoning-parser-plugin", kNothing, "there are no plug-ins"},
    {"--rope-scaling", kNothing, "config.json is taken as it is"},
    {"--rope-theta", kNothing, "config.json is taken as it is"},
    {"--runner", "auto|generate", "the model generates"},
    {"--scheduler-cls", kNothing, "--scheduling-policy chooses among the schedulers there are"},
    {"--scheduler-delay-factor", "0", "requests start as soon as there is room"},
    {"--served-model-name", kAnyValue, "names are for requests to a server"},
    {"--show-hidden-metrics-for-version", kAnyValue, "there are none"},
    {"--skip-mm-profiling", kOnOrOff, "prompts are texts"},
    {"--skip-tokenizer-init", kOff, "the engine needs the tokenizer; detokenize=False leaves texts out"},
    {"--specialize-active-lora", kOnOrOff, "there are no adapters"},
    {"--stream-interval", "1", "news come as soon as there are any"},
    {"--swap-space", kAnyValue, "nothing is swapped; --kv-offloading-size keeps evicted blocks in host memory"},
    {"--task", "auto|generate", "the model generates"},
    {"--tokenizer", kModelName, "the tokenizer is the model's"},
    {"--tokenizer-mode", "auto|hf|mistral|slow", "there is one tokenizer"},
    {"--tokenizer-pool-size", kAnyValue, "one tokenizer is enough"},
    {"--tokenizer-revision", kNothing, "the tokenizer is the model's; --revision counts for both"},
    {"--tokens-only", kOff, "texts are part of answers"},
    {"--tool-parser-plugin", kNothing, "there are no plug-ins"},
    {"--trust-remote-code", kOnOrOff, "no code of a model is ever run"},
    {"--ubatch-size", "0", "steps are not cut in two"},
    {"--use-tqdm-on-load", kOnOrOff, "a terminal sees the progress"},
    {"--use-v2-block-manager", kOnOrOff, "there is one"},
    {"--uvicorn-log-level", kAnyValue, "--log-level says what is logged"},
    {"--video-pruning-rate", kAnyValue, "prompts are texts"},
    {"--weight-transfer-config", kNothing, "weights are those of the checkpoint"},
    {"--worker-cls", "auto", "there is one"},
    {"--worker-extension-cls", kNothing, "no code of others runs in a step"},
    {"-O", kAnyValue, "nothing is compiled at the start"},
    {"-dp", "1", "one engine"},
    {"-pp", "1", "one device"},
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

/// The row of a flag as it is written, of a switch also with "no-"; null: there is none.
const VllmFlag* find_row(std::string_view flag) {
  constexpr std::string_view kNo = "--no-";
  const auto row_of = [](std::string_view name) -> const VllmFlag* {
    const auto* row = std::ranges::find(kVllmFlags, name, &VllmFlag::name);
    return row == kVllmFlags.end() ? nullptr : row;
  };
  const VllmFlag* row = row_of(flag);
  if (row != nullptr || !flag.starts_with(kNo)) return row;
  row = row_of("--" + std::string(flag.substr(kNo.size())));
  return row != nullptr && row->is_switch() ? row : nullptr;
}

tl::unexpected<Error> refuse(const VllmFlag& row, std::string_view written) {
  return fail(ErrorCode::unsupported, fmt::format("{} is not supported: {}", written, row.reason));
}

}  // namespace

std::span<const VllmFlag> vllm_flags() { return kVllmFlags; }

std::string in_own_spelling(const std::string& word) {
  std::string own = word;
  const std::size_t end = std::min(word.find('='), word.size());
  if (own.starts_with("--")) std::replace(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  if (own.substr(0, end) == "-tp") own.replace(0, end, "--tensor-parallel-size");
  if (own.size() == 3 && own.starts_with("-O") && own[2] >= '0' && own[2] <= '9') own.insert(2, "=");
  return own;
}

Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words,
                                                       const std::function<bool(const std::string& flag)>& is_own) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = in_own_spelling(words[i]);
    const std::string flag = word.substr(0, word.find('='));
    const VllmFlag* row = find_row(flag);
    if (row == nullptr || (is_own && is_own(flag))) {
      rest.push_back(word);
      continue;
    }
    if (row->values == kNothing || (row->is_switch() && !is_among(flag == row->name ? kOn : kOff, row->values)))
      return refuse(*row, flag);
    if (!row->is_switch()) {
      std::string value;
      if (flag.size() < word.size())
        value = word.substr(flag.size() + 1);
      else if (i + 1 < words.size())
        value = words[++i];
      const std::string accepted = row->values == kModelName ? model_of(words) : std::string(row->values);
      if (accepted != kAnyValue && !is_among(value, accepted))
        return fail(ErrorCode::unsupported, fmt::format("{} {}: only {} is supported: {}", flag, value, accepted, row->reason));
    }
    log::info("flag={} effect=none reason=\"{}\"", flag, row->reason);
  }
  return rest;
}

}  // namespace baton
