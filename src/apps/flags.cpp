/// The flags of the subcommands as rows: names, help, limits. CLI11 takes seconds to compile, so only the files of flags
/// include it.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/programs.h"
#include "apps/serve.h"
#include "cli/flag_rows.h"
#include "cli/options.h"
#include "kernels/backend.h"

namespace baton {

void add_serve_options(CLI::App& app, ServeCommandOptions& options) {
  add_model_options(app, options.model);
  const auto list = [&](const char* flags, std::vector<std::string>& value, const char* help, const char* group) {
    return app.add_option(flags, value, help)->delimiter(',')->allow_extra_args(false)->group(group);
  };
  list("--served-model-name", options.served_model_names,
       "Names that requests may use for the model, one or more (default: MODEL, which comes first)", "Server")
      ->allow_extra_args(true);
  row(app, "Server", "--host", options.server.address.host, "Address to listen on (default: all interfaces)");
  row(app, "Server", "--port", options.server.address.port, "Port; 0: any free one")->check(CLI::Range(0, 65535));
  row(app, "Server", "--uds", options.server.address.uds, "Unix socket to listen on in place of host and port");
  app.add_option("--api-key", options.server.keys.api_keys,
                 "A key for /v1 (Authorization: Bearer KEY, x-api-key: KEY); may be repeated")
      ->allow_extra_args(false)
      ->group("Server");
  app.add_option("--admin-api-key", options.server.keys.admin_api_keys,
                 "A key that /v1/prefixes asks for, so that other keys do not register, read or delete prefixes; may be "
                 "repeated (default: any key may)")
      ->allow_extra_args(false)
      ->group("Server");
  row(app, "Server", "--api-key-file", options.server.keys.file,
      "JSON file of keys with names, roles, weights, quotas and cache salts of their own; SIGHUP reads it again");
  row(app, "Server", "--ssl-keyfile", options.server.address.ssl_keyfile, "TLS: private key, PEM")->check(CLI::ExistingFile);
  row(app, "Server", "--ssl-certfile", options.server.address.ssl_certfile, "TLS: certificate chain, PEM")
      ->check(CLI::ExistingFile);
  list("--allowed-origins", options.server.routes.cors.origins, "CORS: pages that may call (*)", "Server");
  list("--allowed-methods", options.server.routes.cors.methods, "CORS: methods (*)", "Server");
  list("--allowed-headers", options.server.routes.cors.headers, "CORS: headers (*)", "Server");
  app.add_flag("--allow-credentials", options.server.routes.cors.allows_credentials, "CORS: cookies and keys of pages")
      ->group("Server");
  row(app, "Prefixes", "--prefix-folder", options.server.prefix_folder,
      "Folder whose files NAME.txt and NAME.json are prefixes; they come, change and go with the files")
      ->check(CLI::ExistingDirectory);
  row(app, "Prefixes", "--prefix-store", options.server.prefix_store.folder,
      "Folder that keeps registered prefixes over restarts: definitions, keys and values, states; see docs/prefixes.md");
  parsed_row(app, "Prefixes", "--prefix-store-bytes", options.server.prefix_store.max_bytes,
             "Bytes that its files may have together, with K, M or G (default: what the disk holds)",
             [](const std::string& text) { return parse_bytes(text, "--prefix-store-bytes"); });
  row(app, "Prefixes", "--max-prefixes", options.server.prefix_limits.max_number,
      "Prefixes that may be registered through the API")
      ->transform(count_units())
      ->check(at_least_zero());
  parsed_row(app, "Prefixes", "--max-prefix-bytes", options.server.prefix_limits.max_bytes,
             "Memory for the texts and token ids of these prefixes, with K, M or G (default: 64M)",
             [](const std::string& text) { return parse_bytes(text, "--max-prefix-bytes"); });
  app.add_flag("--allow-prefix-links", options.allows_prefix_links,
               "Follow links in the prefix folder to files outside of it; default: they are refused")
      ->group("Prefixes");
  add_answer_options(app, options.structured_outputs, options.server.routes.max_logprobs);
  parsed_row(app, "Server", "--client-memory-bytes", options.client_memory_bytes,
             "Memory that requests and answers of clients may take, with K, M or G; more gets 503; default: an eighth of what "
             "the machine and the control group allow, at most 4G",
             [](const std::string& text) { return parse_bytes(text, "--client-memory-bytes"); });
  json_row(app, "Server", "--kv-events-config", options.server.kv_events,
           "JSON: enable_kv_cache_events, endpoint, replay_endpoint, topic, ...: tell routers over ZeroMQ what the cache "
           "holds; see docs/kv-events.md",
           parse_kv_events_config);
  app.add_flag("--exclude-tools-when-tool-choice-none", options.excludes_unchosen_tools,
               "Leave tools out of the prompt where tool_choice is \"none\"")
      ->group("Server");
  row(app, "Server", "--max-connections-per-address", options.server.limits.max_connections_per_address,
      "Connections that one client address may have open; 0: no limit. Off by default, because all clients behind a proxy "
      "have its address")
      ->check(CLI::Range(0, 1 << 20));
  row(app, "Server", "--shutdown-timeout", options.shutdown_timeout_s, "Seconds that running requests have after SIGTERM")
      ->check(CLI::Range(0, 86400));
}

void add_generate_options(CLI::App& app, GenerateOptions& options) {
  add_model_options(app, options.model);
  app.add_option("--prompts", options.prompts,
                 "JSON lines {id?, prompt | messages, prefix?, temperature, max_tokens, ...}; - for standard input")
      ->capture_default_str()
      ->group("Prompts");
  app.add_option("--temperature", options.temperature, "For lines that say none")->check(at_least_zero())->group("Prompts");
  app.add_option("--max-tokens", options.max_tokens,
                 "For lines that say none (else 16 for a prompt, what the context has left for messages)")
      ->transform(count_units())
      ->check(at_least_zero(/*or_zero=*/false))
      ->group("Prompts");
}

/// The flags of programs that read a tokenizer or a configuration and no weights. `names`: of the model's flag.
void add_name_options(CLI::App& app, const char* names, ModelOptions& options, const char* help) {
  row(app, "Options", names, options.model, help)->default_str("");
  row(app, "Options", "--revision", options.revision, "Branch, tag or commit of the model");
  row(app, "Options", "--download-dir", options.download_dir, "Folder for downloaded files (default: the Hugging Face cache)");
}

void add_tokenize_options(CLI::App& app, TokenizeOptions& options) {
  add_name_options(app, "MODEL,--model,--tokenizer", options.model,
                   "Folder, Hugging Face id, tokenizer.json, tekken.json, tokenizer.model or tiktoken.model; 'demo' or "
                   "nothing: the demo model");
  row(app, "Options", "--threads", options.model.threads, "Threads; 0: as many as affinity and quota allow")
      ->check(CLI::Range(0, 4096));
  app.add_flag("--no-special-tokens", options.no_special_tokens, "Put no beginning or end token around texts");
  app.add_flag("--decode", options.decode, "Lists of ids in, texts out");
  app.add_flag("--skip-special-tokens", options.skip_special_tokens, "With --decode: leave special tokens out of the texts");
  app.footer(
      "Examples:\n"
      "  echo '\"Hello\"' | baton tokenize MODEL\n"
      "  baton tokenize MODEL --no-special-tokens < texts.jsonl > ids.jsonl\n"
      "  baton tokenize MODEL --decode --skip-special-tokens < ids.jsonl");
}

void add_render_options(CLI::App& app, RenderOptions& options) {
  add_name_options(app, "MODEL,--model", options.model,
                   "Folder or Hugging Face id of the model; 'demo' or nothing: the demo model");
  row(app, "Options", "--chat-template", options.model.chat_template, "File with a chat template that replaces the model's")
      ->check(CLI::ExistingFile);
  row(app, "Options", "--threads", options.model.threads, "Threads; 0: as many as affinity and quota allow")
      ->check(CLI::Range(0, 4096));
  app.add_flag("--tokens", options.tokens, "Write token ids in place of the text");
  app.footer(
      "A line in: {\"messages\": [...], \"tools\"?: [...], \"documents\"?: [...],\n"
      "  \"chat_template_kwargs\"?: {...}, \"add_generation_prompt\"?: true,\n"
      "  \"continue_final_message\"?: false, \"chat_template\"?: name or template}\n"
      "Examples:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | baton render MODEL\n"
      "  baton render MODEL --tokens < conversations.jsonl > ids.jsonl");
}

void add_info_options(CLI::App& app, InfoOptions& options) {
  add_name_options(app, "MODEL,--model", options.model,
                   "Folder or Hugging Face id of the model; 'demo' or nothing: the demo model");
  parsed_row(app, "Memory", "--memory", options.memory_bytes,
             "Memory for weights and cache, with K, M or G; default: what is free on the device",
             [](const std::string& text) { return parse_bytes(text, "--memory"); });
  row(app, "Memory", "--device", options.model.device, "cpu or cuda")->check(CLI::IsMember(choices(kBackendNames)));
  row(app, "Memory", "--gpu-memory-utilization", options.model.memory_utilization,
      "Share of the memory that the weights leave for the cache; on a host without --memory at most a quarter")
      ->check(CLI::Range(0.01, 1.0));
  row(app, "Memory", "--kv-cache-dtype", options.model.kv_cache_dtype, "auto (the weights'), bfloat16, float16, float32, fp8")
      ->check(CLI::IsMember(choices(kKvDtypeNames)));
  row(app, "Memory", "--state-cache-dtype,--mamba-ssm-cache-dtype", options.model.state_cache_dtype,
      "Of the states of recurrent layers: auto (float32), float32, bfloat16 (half the bytes, rounded after each token)")
      ->check(CLI::IsMember(choices(kStateDtypeNames)));
  row(app, "Memory", "--max-num-seqs", options.model.max_num_seqs, "Sequences whose states of recurrent layers are counted")
      ->transform(count_units())
      ->check(CLI::Range(1, 4096));
  add_quantization_options(app, options.model);
  row(app, "Memory", "--context", options.context_len, "Tokens of a context; 0: the model's longest, at most 8192")
      ->transform(count_units())
      ->check(at_least_zero());
  row(app, "Sharing", "--requests", options.workload.n_requests, "Requests at once")
      ->transform(count_units())
      ->check(CLI::Range(1, 1 << 20));
  row(app, "Sharing", "--shared", options.workload.shared_len, "Tokens they share")
      ->transform(count_units())
      ->check(CLI::Range(0, 1 << 24));
  row(app, "Sharing", "--own", options.workload.own_len, "Tokens of each after them")
      ->transform(count_units())
      ->check(CLI::Range(1, 1 << 24));
  app.add_flag("--json", options.as_json, "Write one JSON object");
  app.footer(
      "Examples:\n"
      "  baton info meta-llama/Llama-3.2-1B-Instruct --memory 80G\n"
      "  baton info FOLDER --requests 256 --shared 8000 --own 200 --json");
}

void add_quantize_options(CLI::App& app, QuantizeOptions& options) {
  add_name_options(app, "MODEL,--model", options.model, "Folder or Hugging Face id of a dense model; 'demo': the demo model");
  row(app, "Options", "OUT,--out", options.out, "Folder to write, which must not exist")->required()->default_str("");
  row(app, "Options", "--scheme", options.scheme, "fp8 and int8: a scale for each row; int4: one for a group of columns")
      ->required()
      ->check(CLI::IsMember({"fp8", "int8", "int4"}))
      ->default_str("");
  row(app, "Options", "--group", options.group, "Columns that share a scale of int4, a multiple of 16; 0: 128")
      ->check(CLI::Range(0, 1 << 20));
  app.add_flag("--quantize-lm-head", options.quantize_lm_head, "The output layer too");
  row(app, "Options", "--threads", options.model.threads, "Threads; 0: as many as affinity and quota allow")
      ->check(CLI::Range(0, 4096));
  app.footer(
      "Weights are rounded to nearest, as --quantization does at load. The format is\n"
      "that of compressed-tensors, which other engines read, too.\n"
      "Examples:\n"
      "  baton quantize meta-llama/Llama-3.2-1B-Instruct llama-fp8 --scheme fp8\n"
      "  baton quantize FOLDER llama-int4 --scheme int4 --group 32");
}

void add_pull_options(CLI::App& app, PullOptions& options) {
  add_name_options(app, "MODEL,--model", options.model, "Hugging Face id of the model: ORG/NAME");
  app.footer(
      "HF_HOME or HF_HUB_CACHE name the cache, HF_TOKEN or `hf auth login` opens\n"
      "private models, HF_ENDPOINT is another hub.\n"
      "Example:\n"
      "  baton pull meta-llama/Llama-3.2-1B-Instruct --revision main");
}

void add_list_options(CLI::App& app, ListOptions& options) {
  row(app, "Options", "--download-dir", options.download_dir, "Folder of the models (default: the Hugging Face cache)");
  app.add_flag("--json", options.as_json, "Write a JSON list");
}

void add_chat_options(CLI::App& app, ChatOptions& options) {
  options.model.log_level = "warning";  // log lines would disturb the conversation
  add_model_options(app, options.model);
  app.add_option("--system", options.system, "Text of a system message")->group("Conversation");
  app.add_option("--use-prefix", options.prefix, "Name of the --prefix to begin with, if there are several")
      ->group("Conversation");
  app.add_option("--tools", options.tools, "JSON file with a list of tools, as in the API, that the model is told of")
      ->check(CLI::ExistingFile)
      ->group("Conversation");
  app.add_option("--tool-choice", options.tool_choice,
                 "For answers to texts: auto, none, required or a tool's name (default: auto)")
      ->group("Conversation");
  app.add_flag("--no-history", options.keeps_no_history, "Do not keep the typed lines for later runs (~/.local/state/baton)")
      ->group("Conversation");
  app.add_option("--temperature", options.temperature, "0: the most likely token (default: the model's)")
      ->check(at_least_zero())
      ->group("Conversation");
  app.add_option("--max-tokens", options.max_tokens, "Of an answer (default: what the context has left)")
      ->transform(count_units())
      ->check(at_least_zero(/*or_zero=*/false))
      ->group("Conversation");
}

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  const auto row = [&](const char* flags, auto& value, const char* help) {
    return app.add_option(flags, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->capture_default_str();
  };
  row("TRACE", options.trace,
      "JSON lines {timestamp, input_length, output_length, hash_ids?} (Mooncake) or a table "
      "TIMESTAMP,ContextTokens,GeneratedTokens "
      "(Azure); - for standard input");
  row("--cache-tokens", options.cache_tokens,
      "Tokens that the cache holds, with K, M or G (thousands); 0: all of the trace at once")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, std::int64_t>{{"K", 1000}, {"M", 1000000}, {"G", 1000000000}}));
  row("--block-size", options.replay.block_len, "Tokens a block")->check(CLI::Range(1, 4096));
  row("--eviction", options.eviction, "reuse: what was found again stays longer, as the server does; lru: least recently used")
      ->check(CLI::IsMember({"reuse", "lru"}));
  app.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.replay.enable_prefix_caching,
               "Keep blocks of prompts (on)");
  row("--scheduling-policy", options.scheduling_policy, "fair: short requests need not wait for long ones; fcfs: by arrival")
      ->check(CLI::IsMember({"fair", "fcfs"}));
  row("--max-num-seqs", options.replay.scheduler.max_num_seqs, "Sequences that run at once")
      ->transform(count_units())
      ->check(CLI::Range(1, 4096));
  row("--max-num-batched-tokens", options.replay.scheduler.max_num_batched_tokens, "Tokens of a step")
      ->transform(count_units())
      ->check(CLI::Range(1, 65536));
  row("--max-prefill-tokens", options.replay.scheduler.max_prefill_tokens,
      "Prompt tokens of a step in which others decode; 0: no other limit, with --step-costs as many as these advise")
      ->transform(count_units())
      ->check(at_least_zero());
  CLI::Option* const step_ms = row("--step-ms", options.step_ms, "What a step takes at least")->check(CLI::Range(0.001, 1e6));
  CLI::Option* const speed = row("--tokens-per-second", options.tokens_per_second, "How fast prompts are computed beside that")
                                 ->check(CLI::Range(1.0, 1e12));
  row("--step-costs", options.step_costs_file, "File of baton bench steps --json: what steps take, as measured")
      ->excludes(step_ms)
      ->excludes(speed);
  row("--rate", options.rate, "Arrivals this many times as fast as in the trace")->check(CLI::Range(1e-6, 1e6));
  row("--limit", options.limit, "The first so many requests only; 0: all")->transform(count_units())->check(at_least_zero());
  row("--json", options.json_file, "File for the numbers as JSON");
}

}  // namespace baton
