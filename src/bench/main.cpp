/// The program `baton-bench`, which `baton bench` and `baton demo` start, and its subcommands.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention/attention_bench.h"
#include "bench/demo/demo.h"
#include "bench/engine/decode_bench.h"
#include "bench/engine/grammar_bench.h"
#include "bench/engine/steps_bench.h"
#include "bench/offline/ablation_bench.h"
#include "bench/offline/latency_bench.h"
#include "bench/offline/mmlu_bench.h"
#include "bench/offline/throughput_bench.h"
#include "bench/prefix_cache/prefix_cache_bench.h"
#include "bench/serve/serve_bench.h"
#include "bench/startup/startup_bench.h"
#include "bench/stream/stream_bench.h"
#include "cli/commands.h"

namespace baton {
namespace {

/// The values given to the subcommands. The parser writes them while it reads the command line.
struct BenchOptions {
  AblationBenchOptions ablation;
  AttentionBenchOptions attention;
  DecodeBenchOptions decode;
  GrammarBenchOptions grammar;
  ThroughputBenchOptions throughput;
  LatencyBenchOptions latency;
  MmluBenchOptions mmlu;
  PrefixCacheBenchOptions prefix_cache;
  StartupBenchOptions startup;
  StepsBenchOptions steps;
  StreamBenchOptions stream;
  ServeBenchOptions serve;
};

/// Adds all subcommands; `options` must outlive the parser.
void add_commands(Commands& commands, BenchOptions& options) {
  auto& [ablation, attention, decode, grammar, throughput, latency, mmlu, prefix_cache, startup, steps, stream, serve] =
      options;
  commands.add(
      "ablation", "What each lesson of vLLM's issue 421 is worth, alone",
      [&](CLI::App& sub) { add_ablation_bench_options(sub, ablation); },
      [&] { return ablation_bench_main(ablation, commands.command_line()); });
  commands.add(
      "attention", "The attention of one layer and step: shared prompts read once against read by each request",
      [&](CLI::App& sub) { add_attention_bench_options(sub, attention); },
      [&] { return attention_bench_main(attention, commands.command_line()); });
  commands.add_ranked(
      "decode", "Tokens a second of many requests behind one shared prompt",
      [&](CLI::App& sub) { add_decode_bench_options(sub, decode); },
      [&] { return decode_bench_main(decode, commands.command_line()); }, decode.model.ranks);
  commands.add_ranked(
      "grammar", "Tokens a second of answers that keep to a JSON schema, beside free ones",
      [&](CLI::App& sub) { add_grammar_bench_options(sub, grammar); },
      [&] { return grammar_bench_main(grammar, commands.command_line()); }, grammar.model.ranks);
  commands.add_ranked(
      "throughput", "Requests and tokens a second of a dataset whose requests are all there at once",
      [&](CLI::App& sub) { add_throughput_bench_options(sub, throughput); },
      [&] { return throughput_bench_main(throughput, commands.command_line()); }, throughput.model.ranks);
  commands.add_ranked(
      "latency", "Seconds that one batch of requests takes", [&](CLI::App& sub) { add_latency_bench_options(sub, latency); },
      [&] { return latency_bench_main(latency, commands.command_line()); }, latency.model.ranks);
  commands.add_ranked(
      "mmlu", "Seconds that MMLU's few-shot questions take, and how many answers are right",
      [&](CLI::App& sub) { add_mmlu_bench_options(sub, mmlu); }, [&] { return mmlu_bench_main(mmlu, commands.command_line()); },
      mmlu.model.ranks);
  commands.add_ranked(
      "prefix-cache", "Tokens that requests compute again, beside what keys and values alone would need",
      [&](CLI::App& sub) { add_prefix_cache_bench_options(sub, prefix_cache); },
      [&] { return prefix_cache_bench_main(prefix_cache, commands.command_line()); }, prefix_cache.model.ranks);
  commands.add(
      "startup", "Seconds from the start of a process to its first token, cold and warm",
      [&](CLI::App& sub) { add_startup_bench_options(sub, startup); },
      [&] { return startup_bench_main(startup, commands.command_line()); });
  commands.add_ranked(
      "steps", "Milliseconds of a step, by decodes and prompt tokens",
      [&](CLI::App& sub) { add_steps_bench_options(sub, steps); },
      [&] { return steps_bench_main(steps, commands.command_line()); }, steps.model.ranks);
  commands.add(
      "stream", "Many clients that read streams of a running server, and what they cost it",
      [&](CLI::App& sub) { add_stream_bench_options(sub, stream); },
      [&] { return stream_bench_main(stream, commands.command_line()); });
  commands.add(
      "serve", "A load of requests on a running server, by rate or trace: throughput, latencies, goodput",
      [&](CLI::App& sub) { add_serve_bench_options(sub, serve); },
      [&] { return serve_bench_main(serve, commands.command_line()); });
}

/// `baton demo`, if the first word that is not a flag asks for it.
bool is_demo(const std::vector<std::string>& words) {
  const auto first = std::ranges::find_if(words, [](const std::string& word) { return !word.starts_with("-"); });
  return first != words.end() && *first == "demo";
}

int run_demo(int argc, char** argv) {
  DemoOptions demo;
  Commands commands("baton", "Shows what Baton does.");
  commands.add_ranked(
      "demo", "What sharing a prompt saves, then 64 questions about one catalogue over HTTP",
      [&](CLI::App& sub) { add_demo_options(sub, demo); }, [&] { return demo_main(demo); }, demo.ranks);
  return commands.run(argc, argv);
}

int run(int argc, char** argv) {
  if (is_demo({argv + 1, argv + argc})) return run_demo(argc, argv);
  BenchOptions options;
  Commands commands("baton bench", "Measure this machine");
  add_commands(commands, options);
  return commands.run(argc, argv);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::run(argc, argv); }
