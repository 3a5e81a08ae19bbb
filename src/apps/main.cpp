/// The program `baton` and its subcommands.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "apps/bench/ablation_bench.h"
#include "apps/bench/attention_bench.h"
#include "apps/bench/decode_bench.h"
#include "apps/bench/grammar_bench.h"
#include "apps/bench/latency_bench.h"
#include "apps/bench/mmlu_bench.h"
#include "apps/bench/serve_bench.h"
#include "apps/bench/startup_bench.h"
#include "apps/bench/stream_bench.h"
#include "apps/bench/throughput_bench.h"
#include "apps/cached_models.h"
#include "apps/chat.h"
#include "apps/demo.h"
#include "apps/generate.h"
#include "apps/help_text.h"
#include "apps/info.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/rank_session.h"
#include "apps/render.h"
#include "apps/serve.h"
#include "apps/simulate.h"
#include "apps/tokenize.h"
#include "apps/version.h"
#include "core/log.h"

namespace baton {
namespace {

constexpr const char* kIntroduction =
    "Baton serves language models to many requests behind long shared prompts: a shared prompt is computed once, stored once, "
    "and read from memory once a step for the whole batch (RelayAttention).\n\n"
    "  baton demo                     shows what Baton does, in a minute\n"
    "  baton serve MODEL              an OpenAI-compatible server;\n"
    "        --prefix shop=prompt.txt with a registered prompt\n"
    "  baton chat MODEL               talk to a model on the terminal\n"
    "  baton generate MODEL --prompts file.jsonl\n"
    "                                 answers for a file of prompts\n"
    "  baton pull ORG/NAME            download a model; baton list shows all\n"
    "  baton info MODEL               sizes, what fits in memory, what sharing saves\n"
    "  baton bench attention          what relayed attention does on this machine\n"
    "  baton simulate trace.jsonl     what a trace would find in the cache";

/// A word with more errors is not taken for a mistyped subcommand.
constexpr int kMostTypingErrors = 2;

/// A subcommand and the function that runs it.
struct Command {
  CLI::App* app;
  std::function<int()> run;
  std::shared_ptr<RankGroup>* ranks = nullptr;  ///< where its options keep the ranks; null: it makes no engine
};

std::string join_words(const std::vector<std::string>& words) {
  std::string text = "baton";
  for (const std::string& word : words) text += " " + word;
  return text;
}

/// The words after the program's name. A subcommand's configuration file is inserted after the subcommand.
Result<std::vector<std::string>> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::size_t n_commands = 0;
  while (n_commands < words.size() && n_commands < 2 && !words[n_commands].starts_with("-") &&
         (n_commands == 0 || words[0] == "bench"))
    ++n_commands;
  BATON_TRY(std::vector<std::string> flags,
            with_config_file({words.begin() + static_cast<std::ptrdiff_t>(n_commands), words.end()}));
  words.resize(n_commands);
  words.insert(words.end(), flags.begin(), flags.end());
  return without_neutral_flags(words);
}

/// Refuses an unknown word in place of a subcommand. The parser would only say that there is no subcommand, or show
/// the general help.
Result<void> refuse_unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* parent = &app;
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> known = parent->get_subcommands([](const CLI::App*) { return true; });
    if (known.empty() || word.starts_with("-")) return {};
    const auto chosen = std::ranges::find(known, word, &CLI::App::get_name);
    if (chosen == known.end()) {
      std::vector<std::string> names;
      for (const CLI::App* each : known) names.push_back(each->get_name());
      const std::string_view nearest = nearest_name(word, names);
      const bool is_near = edit_distance(word, nearest) <= kMostTypingErrors;
      return fail(ErrorCode::invalid_request,
                  fmt::format("unknown subcommand '{}{}'; {}there are: {}", parent == &app ? "" : parent->get_name() + " ",
                              word, is_near ? fmt::format("did you mean '{}'? ", nearest) : "", fmt::join(names, ", ")));
    }
    parent = *chosen;
  }
  return {};
}

/// The values given to the subcommands of `bench`.
struct BenchCommandOptions {
  AblationBenchOptions ablation;
  AttentionBenchOptions attention;
  DecodeBenchOptions decode;
  GrammarBenchOptions grammar;
  ThroughputBenchOptions throughput;
  LatencyBenchOptions latency;
  MmluBenchOptions mmlu;
  StartupBenchOptions startup;
  StreamBenchOptions stream;
  ServeBenchOptions serve;
};

/// The values given to the subcommands. The parser writes them while it reads the command line.
struct CommandOptions {
  RankFlags ranks;                     ///< of each command that makes an engine
  std::shared_ptr<RankGroup> of_rank;  ///< of `baton rank`
  ServeCommandOptions serve;
  GenerateOptions generate;
  ChatOptions chat;
  DemoOptions demo;
  SimulateOptions simulate;
  TokenizeOptions tokenize;
  RenderOptions render;
  InfoOptions info;
  PullOptions pull;
  ListOptions list;
  BenchCommandOptions bench;
  std::string command_line;
};

/// Adds a subcommand: its flags, and the function that runs it.
template <class AddOptions>
void add_command(std::vector<Command>& commands, CLI::App& parent, const char* name, const char* help,
                 const AddOptions& add_options, std::function<int()> body) {
  CLI::App* made = parent.add_subcommand(name, help);
  made->allow_extras();
  add_options(*made);
  name_environment_variables(*made);
  refuse_not_a_number(*made);
  commands.push_back({made, std::move(body)});
}

/// The same for a command that makes an engine, of which several processes may be ranks.
template <class AddOptions>
void add_ranked_command(std::vector<Command>& commands, CLI::App& parent, const char* name, const char* help,
                        const AddOptions& add_options, std::function<int()> body, RankFlags& flags,
                        std::shared_ptr<RankGroup>& ranks) {
  add_command(
      commands, parent, name, help,
      [&](CLI::App& sub) {
        add_options(sub);
        add_rank_options(sub, flags);
      },
      std::move(body));
  commands.back().ranks = &ranks;
}

void add_bench_commands(std::vector<Command>& commands, CLI::App& bench, BenchCommandOptions& options, RankFlags& ranks,
                        const std::string& command_line) {
  const auto add = [&](const char* name, const char* help, const auto& add_options, std::function<int()> body) {
    add_command(commands, bench, name, help, add_options, std::move(body));
  };
  const auto add_ranked = [&](const char* name, const char* help, const auto& add_options, std::function<int()> body,
                              ModelOptions& model) {
    add_ranked_command(commands, bench, name, help, add_options, std::move(body), ranks, model.ranks);
  };
  auto& [ablation, attention, decode, grammar, throughput, latency, mmlu, startup, stream, serve] = options;
  add(
      "ablation", "What each lesson of vLLM's issue 421 is worth, alone",
      [&](CLI::App& sub) { add_ablation_bench_options(sub, ablation); },
      [&] { return ablation_bench_main(ablation, command_line); });
  add(
      "attention", "The attention of one layer and step: shared prompts read once against read by each request",
      [&](CLI::App& sub) { add_attention_bench_options(sub, attention); },
      [&] { return attention_bench_main(attention, command_line); });
  add_ranked(
      "decode", "Tokens a second of many requests behind one shared prompt",
      [&](CLI::App& sub) { add_decode_bench_options(sub, decode); }, [&] { return decode_bench_main(decode, command_line); },
      decode.model);
  add_ranked(
      "grammar", "Tokens a second of answers that keep to a JSON schema, beside free ones",
      [&](CLI::App& sub) { add_grammar_bench_options(sub, grammar); },
      [&] { return grammar_bench_main(grammar, command_line); }, grammar.model);
  add_ranked(
      "throughput", "Requests and tokens a second of a dataset whose requests are all there at once",
      [&](CLI::App& sub) { add_throughput_bench_options(sub, throughput); },
      [&] { return throughput_bench_main(throughput, command_line); }, throughput.model);
  add_ranked(
      "latency", "Seconds that one batch of requests takes", [&](CLI::App& sub) { add_latency_bench_options(sub, latency); },
      [&] { return latency_bench_main(latency, command_line); }, latency.model);
  add_ranked(
      "mmlu", "Seconds that MMLU's few-shot questions take, and how many answers are right",
      [&](CLI::App& sub) { add_mmlu_bench_options(sub, mmlu); }, [&] { return mmlu_bench_main(mmlu, command_line); },
      mmlu.model);
  add(
      "startup", "Seconds from the start of a process to its first token, cold and warm",
      [&](CLI::App& sub) { add_startup_bench_options(sub, startup); },
      [&] { return startup_bench_main(startup, command_line); });
  add(
      "stream", "Many clients that read streams of a running server, and what they cost it",
      [&](CLI::App& sub) { add_stream_bench_options(sub, stream); }, [&] { return stream_bench_main(stream, command_line); });
  add(
      "serve", "A load of requests on a running server, by rate or trace: throughput, latencies, goodput",
      [&](CLI::App& sub) { add_serve_bench_options(sub, serve); }, [&] { return serve_bench_main(serve, command_line); });
}

/// Adds all subcommands; `options` must outlive the parser.
std::vector<Command> add_commands(CLI::App& app, CommandOptions& options) {
  auto& [ranks, of_rank, serve, generate, chat, demo, simulate, tokenize, render, info, pull, list, bench_options,
         command_line] = options;
  std::vector<Command> commands;
  const auto add = [&](const char* name, const char* help, const auto& add_options, std::function<int()> body) {
    add_command(commands, app, name, help, add_options, std::move(body));
  };
  const auto add_ranked = [&](const char* name, const char* help, const auto& add_options, std::function<int()> body,
                              std::shared_ptr<RankGroup>& group) {
    add_ranked_command(commands, app, name, help, add_options, std::move(body), ranks, group);
  };
  add_ranked(
      "serve", "Serve a model over HTTP, compatible with OpenAI's API", [&](CLI::App& sub) { add_serve_options(sub, serve); },
      [&] { return serve_main(serve); }, serve.model.ranks);
  add_ranked(
      "generate", "Answer a file of prompts: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_generate_options(sub, generate); }, [&] { return generate_main(generate); },
      generate.model.ranks);
  add_ranked(
      "chat", "Talk to a model on the terminal", [&](CLI::App& sub) { add_chat_options(sub, chat); },
      [&] { return chat_main(chat); }, chat.model.ranks);
  add_ranked(
      "demo", "64 questions about one catalogue, over HTTP, with relayed and with paged attention",
      [&](CLI::App& sub) { add_demo_options(sub, demo); }, [&] { return demo_main(demo); }, demo.ranks);
  add_ranked(
      "rank", "A rank > 0 of tensor parallelism, which follows rank 0; rank 0 starts it by itself",
      [](CLI::App& sub) { sub.group(""); },
      [] {
        print_note("baton rank: --rank must be from 1 to --tensor-parallel-size - 1; rank 0 is the command itself\n");
        return 2;
      },
      of_rank);
  add(
      "simulate", "Replay a trace of requests through scheduler and cache, without a model, in seconds",
      [&](CLI::App& sub) { add_simulate_options(sub, simulate); }, [&] { return simulate_main(simulate, command_line); });
  add(
      "tokenize", "Texts to token ids and back: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_tokenize_options(sub, tokenize); }, [&] { return tokenize_main(tokenize); });
  add(
      "render", "Conversations to prompts, by the model's chat template: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_render_options(sub, render); }, [&] { return render_main(render); });
  add(
      "info", "What a model is and needs: sizes, KV bytes a token, what fits, what sharing saves",
      [&](CLI::App& sub) { add_info_options(sub, info); }, [&] { return info_main(info); });
  add(
      "pull", "Download a model into the Hugging Face cache", [&](CLI::App& sub) { add_pull_options(sub, pull); },
      [&] { return pull_main(pull); });
  add(
      "list", "The models in the Hugging Face cache", [&](CLI::App& sub) { add_list_options(sub, list); },
      [&] { return list_main(list); });
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  add_bench_commands(commands, *bench, bench_options, ranks, command_line);
  return commands;
}

/// Runs the command as rank 0 or alone; a rank > 0 follows rank 0 instead.
int run_command(const Command& command, const RankFlags& flags) {
  if (command.ranks == nullptr) return command.run();
  const auto session = RankSession::start(flags);
  const std::string name = "baton " + command.app->get_name();
  if (!session) {
    print_error(name, session.error());
    return session.error().code == ErrorCode::invalid_request ? 2 : 1;
  }
  if (!(*session)->is_rank_0()) return rank_main(**session);
  *command.ranks = (*session)->group();
  const int code = command.run();
  command.ranks->reset();
  const auto sentence = (*session)->group() == nullptr ? std::nullopt : (*session)->group()->fault();
  if (code != 0 || !sentence) return code;
  print_error(name, {ErrorCode::unavailable, *sentence});
  return 1;
}

int run(int argc, char** argv) {
  CLI::App app(kIntroduction, "baton");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] { return version_text(); });
  use_help_text(app);
  CommandOptions options;
  const std::vector<Command> commands = add_commands(app, options);

  auto words = words_of(argc, argv);
  if (!words) {
    print_error("baton", words.error());
    return 2;
  }
  if (auto known = refuse_unknown_command(app, *words); !known) {
    print_error("baton", known.error());
    return 2;
  }
  options.command_line = join_words(*words);
  try {
    std::vector<std::string> reversed(words->rbegin(), words->rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    const int code = app.exit(error, out, std::cerr);
    write_output(out.str());
    return code == 0 ? 0 : 2;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (auto known = refuse_unknown_flags(*command.app, command.app->remaining()); !known) {
      const CLI::App* parent = command.app->get_parent();
      print_note("baton {}{}: {}\n", parent == &app ? "" : parent->get_name() + " ", command.app->get_name(),
                 known.error().message);
      return 2;
    }
    return run_command(command, options.ranks);
  }
  return 2;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const int code = baton::run(argc, argv);
  return baton::flush_output() ? code : 1;
}
