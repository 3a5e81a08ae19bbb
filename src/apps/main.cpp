/// The program `baton` and its subcommands.

#include "apps/bench_program.h"
#include "apps/programs.h"
#include "apps/serve.h"
#include "cli/commands.h"
#include "core/limits/memory_limit.h"

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
    "  baton quantize MODEL OUT --scheme int4\n"
    "                                 weights in 4 or 8 bits, for Baton and other engines\n"
    "  baton bench attention          what relayed attention does on this machine\n"
    "  baton simulate trace.jsonl     what a trace would find in the cache";

/// The values given to the subcommands. The parser writes them while it reads the command line.
struct CommandOptions {
  ServeCommandOptions serve;
  GenerateOptions generate;
  ChatOptions chat;
  SimulateOptions simulate;
  TokenizeOptions tokenize;
  RenderOptions render;
  InfoOptions info;
  QuantizeOptions quantize;
  PullOptions pull;
  ListOptions list;
};

/// Adds all subcommands; `options` must outlive the parser.
void add_commands(Commands& commands, CommandOptions& options) {
  auto& [serve, generate, chat, simulate, tokenize, render, info, quantize, pull, list] = options;
  // Here for the help text and the nearest name only: become_bench_program() comes before the parser.
  const auto add_elsewhere = [&](const char* name, const char* help) {
    commands.add(
        name, help, [](CLI::App&) {}, [] { return 2; });
  };
  commands.add_ranked(
      "serve", "Serve a model over HTTP, compatible with OpenAI's API", [&](CLI::App& sub) { add_serve_options(sub, serve); },
      [&] { return serve_main(serve); }, serve.model.ranks);
  commands.add_ranked(
      "generate", "Answer a file of prompts: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_generate_options(sub, generate); }, [&] { return generate_main(generate); },
      generate.model.ranks);
  commands.add_ranked(
      "chat", "Talk to a model on the terminal", [&](CLI::App& sub) { add_chat_options(sub, chat); },
      [&] { return chat_main(chat); }, chat.model.ranks);
  add_elsewhere("demo", "What sharing a prompt saves, then 64 questions about one catalogue over HTTP");
  commands.add(
      "simulate", "Replay a trace of requests through scheduler and cache, without a model, in seconds",
      [&](CLI::App& sub) { add_simulate_options(sub, simulate); },
      [&] { return simulate_main(simulate, commands.command_line()); });
  commands.add(
      "tokenize", "Texts to token ids and back: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_tokenize_options(sub, tokenize); }, [&] { return tokenize_main(tokenize); });
  commands.add(
      "render", "Conversations to prompts, by the model's chat template: JSON lines in, JSON lines out",
      [&](CLI::App& sub) { add_render_options(sub, render); }, [&] { return render_main(render); });
  commands.add(
      "info", "What a model is and needs: sizes, KV bytes a token, what fits, what sharing saves",
      [&](CLI::App& sub) { add_info_options(sub, info); }, [&] { return info_main(info); });
  commands.add(
      "quantize", "Write a model's checkpoint with weights in 8 or 4 bits",
      [&](CLI::App& sub) { add_quantize_options(sub, quantize); }, [&] { return quantize_main(quantize); });
  commands.add(
      "pull", "Download a model into the Hugging Face cache", [&](CLI::App& sub) { add_pull_options(sub, pull); },
      [&] { return pull_main(pull); });
  commands.add(
      "list", "The models in the Hugging Face cache", [&](CLI::App& sub) { add_list_options(sub, list); },
      [&] { return list_main(list); });
  add_elsewhere("bench", "Measure this machine");
}

int run(int argc, char** argv) {
  limit_arenas();
  if (const auto words = words_for_bench_program({argv + 1, argv + argc})) return become_bench_program(*words);
  CommandOptions options;
  Commands commands("baton", kIntroduction);
  add_commands(commands, options);
  return commands.run(argc, argv);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::run(argc, argv); }
