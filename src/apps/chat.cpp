/// `baton chat`: a conversation whose earlier turns stay in the prefix cache.
#include "apps/chat.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/progress.h"
#include "apps/serving.h"
#include "load/load_engine.h"
#include "server/openai_request.h"
#include "server/prompts.h"
#include "text/stream_decoder.h"

namespace baton {
namespace {

constexpr const char* kHelp =
    "/reset forgets the conversation, /stats shows the last answer's numbers, /help shows this, Ctrl-C stops an answer, Ctrl-D "
    "ends.\n";

/// One conversation over one engine.
class Conversation {
 public:
  Conversation(Engine& engine, const ServedModel& model, const Prefixes& prefixes, const ChatOptions& options)
      : engine_(engine), model_(model), prefixes_(prefixes), options_(options) {
    reset();
  }

  void reset() {
    messages_ = json::Value::array();
    if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }

  /// Answers `text` on standard output. If that fails, `text` is removed from the conversation.
  Result<void> answer(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    auto said = generate();
    if (!said) {
      messages_.erase(messages_.size() - 1);
      return fail(said.error().code, said.error().message);
    }
    messages_.push_back({{"role", "assistant"}, {"content", *said}});
    return {};
  }

  const SequenceStats& stats() const { return stats_; }

 private:
  Result<std::string> generate() {
    json::Value body{{"messages", messages_}};
    if (!options_.prefix.empty()) body["prefix"] = options_.prefix;
    if (options_.temperature >= 0) body["temperature"] = options_.temperature;
    if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
    BATON_TRY(const ChatRequest chat, parse_chat_request(body, model_.defaults, {model_.n_vocab, kMaxTopLogprobs}));
    BATON_TRY(const Target target, resolve_target(model_, prefixes_, chat.generation));
    BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(model_, target.prefix, chat));
    Request request = std::move(engine_requests(model_, chat.generation, {&prompt, 1}).front());
    StreamDecoder decoder(model_.tokenizer, {}, false, true);
    decoder.follow(request.prompt);
    BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
    std::string text;
    const auto show = [&](const std::string& piece) {
      text += piece;
      write_output(piece);
      flush_output();
    };
    for (bool is_open = true; is_open;) {
      if (was_interrupted()) {
        clear_interrupt();
        engine_.cancel(id);
      }
      engine_.step();
      for (const Event& event : engine_.wait_events(std::chrono::milliseconds(0))) {
        for (const TokenOutput& token : event.tokens) show(decoder.push(token.token).text);
        stats_ = event.stats;
        if (!event.finished) continue;
        is_open = false;
        if (*event.finished == FinishReason::error) return fail(ErrorCode::internal, "the model's logits hold a NaN");
      }
    }
    show(decoder.finish().text);
    print_output("\n");
    return text;
  }

  Engine& engine_;
  const ServedModel& model_;
  const Prefixes& prefixes_;
  const ChatOptions& options_;
  json::Value messages_;
  SequenceStats stats_;
};

/// A conversation begins with the prompt of the only --prefix; if there are several, --use-prefix must name one.
Result<void> choose_prefix(ChatOptions& options) {
  const std::vector<std::string>& registered = options.model.prefixes;
  if (registered.empty() || !options.prefix.empty()) return {};
  if (registered.size() > 1)
    return fail(ErrorCode::invalid_request,
                fmt::format("--prefix is given {} times; say with --use-prefix NAME which of them the conversation begins with",
                            registered.size()),
                "use_prefix");
  options.prefix = registered[0].substr(0, registered[0].find('='));
  return {};
}

Result<void> run(ChatOptions options) {
  BATON_TRY(const ModelFiles files, find_model_files(options.model, download_bar()));
  if (files.is_demo && options.prefix.empty() && options.model.prefixes.empty() && options.system.empty()) {
    options.model.prefixes.push_back("shop=" + (files.folder / "catalogue.txt").string());
    options.prefix = "shop";
    print_note("The demo model answers questions about the catalogue {}.\n", (files.folder / "catalogue.txt").string());
  }
  options.model.max_num_seqs = 1;
  BATON_TRY(const std::unique_ptr<Engine> engine, load_engine(files, options.model));
  BATON_TRY(const ServedModel model, load_served_model(files, options.model, *engine));
  BATON_TRY(const Prefixes prefixes, load_prefixes(options.model.prefixes, model, *engine));
  Conversation conversation(*engine, model, prefixes, options);
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  if (is_terminal) write_note(kHelp);
  for (std::string line;;) {
    if (is_terminal) print_note("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/help") {
      write_note(kHelp);
    } else if (line == "/reset") {
      conversation.reset();
    } else if (line == "/stats") {
      const SequenceStats& stats = conversation.stats();
      print_note("prompt {} tokens, {} from the cache; answer {} tokens; prefill {:.0f} ms\n", stats.prompt_tokens,
                 stats.cached_tokens, stats.completion_tokens, stats.prefill_ms);
    } else if (line.starts_with("/")) {
      print_note("unknown command {}; {}", line, kHelp);
    } else if (auto answered = conversation.answer(line); !answered) {
      print_error("baton chat", answered.error());
      if (!is_terminal) return fail(answered.error().code, "stopped");
    }
    if (!flush_output()) return fail(ErrorCode::io, "stopped, because answers cannot be written");
  }
  return {};
}

}  // namespace

int chat_main(ChatOptions options) {
  use_log_level(options.model);
  if (const auto chosen = choose_prefix(options); !chosen) {
    print_error("baton chat", chosen.error());
    return 2;
  }
  watch_interrupts();
  if (const auto done = run(std::move(options)); !done) {
    print_error("baton chat", done.error());
    return 1;
  }
  return 0;
}

}  // namespace baton
