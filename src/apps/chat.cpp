/// `baton chat`: a conversation whose earlier turns stay in the prefix cache, and its commands.
#include "apps/programs.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/conversation.h"
#include "apps/line_reader.h"
#include "cli/help_text.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/serving.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {
namespace {

constexpr std::string_view kNone = "none";
/// Three quotes begin a text of several lines, and end it.
constexpr std::string_view kQuotes = "\"\"\"";

/// `text` without the spaces around it.
std::string_view without_outer_spaces(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The tools of a file, as the API takes them.
Result<json::Value> read_tools(const std::string& file) {
  BATON_TRY(json::Value tools, json::parse_file(file));
  if (tools.is_array() && !tools.empty()) return tools;
  return fail(ErrorCode::invalid_data,
              fmt::format("{}: not a list of tools; write one as the API has it: [{{\"type\": \"function\", \"function\": "
                          "{{\"name\": ...}}}}]",
                          file));
}

/// What is typed during a conversation: texts, and commands that begin with a slash.
class Chat {
 public:
  Chat(Engine& engine, const ServedModel& model, Prefixes& prefixes, Conversation::Options options)
      : prefixes_(prefixes), conversation_(engine, model, prefixes, std::move(options)) {
    for (const Command& command : kCommands) names_.emplace_back(command.name);
  }

  /// The names of the commands, for the line reader.
  std::span<const std::string> names() const { return names_; }

  /// Whether the next text is the result of a tool that the model has called.
  bool is_asking() const { return !conversation_.open_calls().empty(); }
  /// What the line reader shows in front of the next line.
  std::string prompt() const {
    return is_asking() ? fmt::format("result of {}> ", conversation_.open_calls().front().name) : std::string("> ");
  }

  /// Does what a line says. False: the conversation ends.
  Result<bool> take(const std::string& line) {
    if (!line.starts_with('/')) {
      BATON_TRY_VOID(is_asking() ? conversation_.give_result(line) : conversation_.answer(line));
      return true;
    }
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument(space == std::string::npos ? std::string_view()
                                                          : without_outer_spaces(std::string_view(line).substr(space)));
    for (const Command& command : kCommands) {
      if (name != command.name) continue;
      if (!argument.empty() && command.argument.empty())
        return fail(ErrorCode::invalid_request, fmt::format("{} takes nothing, not '{}'", name, argument));
      return command.run == nullptr ? Result<bool>(false) : (this->*command.run)(argument);
    }
    return fail(ErrorCode::invalid_request,
                fmt::format("unknown command {}; did you mean {}? /help lists all", name, nearest_name(name, names_)));
  }

 private:
  struct Command {
    std::string_view name;
    std::string_view argument;  ///< as the help shows it; empty: none
    std::string_view help;
    Result<bool> (Chat::*run)(const std::string& argument);  ///< null: ends the conversation
  };

  Result<bool> help(const std::string&) {
    for (const Command& command : kCommands)
      print_note("  {:<26}{}\n", fmt::format("{} {}", command.name, command.argument), command.help);
    print_note("  {:<26}begins a text of several lines, up to the next {}\n", kQuotes, kQuotes);
    write_note("Where the model calls a tool, the next text is its result.\n");
    write_note("Ctrl-C stops an answer, Ctrl-D ends.\n");
    return true;
  }
  Result<bool> reset(const std::string&) {
    conversation_.reset();
    return true;
  }
  Result<bool> system(const std::string& text) {
    if (text.empty()) {
      const std::string& now = conversation_.options().system;
      print_note("{}\n", now.empty() ? "no system message" : now);
      return true;
    }
    conversation_.use_system(text == kNone ? std::string() : text);
    return true;
  }
  Result<bool> prefix(const std::string& argument) {
    if (argument.empty()) return list_prefixes();
    const std::string name = argument.substr(0, argument.find('='));
    if (name.size() < argument.size()) {
      BATON_TRY(PrefixDefinition read, read_prefix_flag(argument));
      BATON_TRY(const PinInfo info, prefixes_.add(std::move(read)));
      print_note("{}: {} tokens, computed and kept\n", name, info.n_tokens);
    } else if (name != kNone && !prefixes_.find(name)) {
      return tl::unexpected(prefixes_.not_found(name, "prefix"));
    }
    conversation_.use_prefix(name == kNone ? std::string() : name);
    return true;
  }
  Result<bool> list_prefixes() {
    bool is_empty = true;
    prefixes_.for_each([&](const Prefixes::Entry& entry) {
      const bool is_used = entry.definition.name == conversation_.options().prefix;
      print_note("{} {}: {} tokens\n", is_used ? '*' : ' ', entry.definition.name, entry.info.n_tokens);
      is_empty = false;
    });
    if (is_empty) write_note("no prompt is registered; /prefix NAME=FILE registers one\n");
    return true;
  }
  Result<bool> tools(const std::string& file) {
    if (file.empty()) {
      print_note("{} tools\n", conversation_.options().tools.size());
      return true;
    }
    json::Value read;
    if (file != kNone) {
      BATON_TRY(read, read_tools(file));
    }
    conversation_.use_tools(std::move(read));
    return true;
  }
  Result<bool> stats(const std::string&) {
    const SequenceStats& stats = conversation_.stats();
    print_note("prompt {} tokens, {} from the cache; answer {} tokens; prefill {:.0f} ms\n", stats.prompt_tokens,
               stats.cached_tokens, stats.completion_tokens, stats.prefill_ms);
    return true;
  }

  static const std::array<Command, 7> kCommands;

  Prefixes& prefixes_;
  Conversation conversation_;
  std::vector<std::string> names_;
};

const std::array<Chat::Command, 7> Chat::kCommands = {{
    {"/help", "", "shows this", &Chat::help},
    {"/system", "TEXT|none", "sets the system message, and begins again", &Chat::system},
    {"/prefix", "NAME[=FILE]|none", "begins again after a registered prompt, or registers one", &Chat::prefix},
    {"/tools", "FILE|none", "tells the model of tools (JSON as in the API), and begins again", &Chat::tools},
    {"/reset", "", "forgets the conversation", &Chat::reset},
    {"/stats", "", "shows the last answer's numbers", &Chat::stats},
    {"/exit", "", "ends", nullptr},
}};

/// Reads a text up to the three quotes that end it; `line` begins with three.
LineReader::Read read_quoted(LineReader& reader, std::string& line) {
  std::string text = line.substr(kQuotes.size());
  while (!text.ends_with(kQuotes)) {
    std::string more;
    if (const auto read = reader.read(more, "... "); read != LineReader::Read::line) return read;
    text += "\n" + more;
  }
  line = text.substr(0, text.size() - kQuotes.size());
  return LineReader::Read::line;
}

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

/// Reads and answers lines until the input ends.
Result<void> talk(Chat& chat, bool keeps_history) {
  LineReader reader(
      {.history_file = keeps_history ? history_file("chat_history") : std::filesystem::path(), .commands = chat.names()});
  if (reader.is_terminal()) write_note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.\n");
  for (std::string line;;) {
    LineReader::Read read = reader.read(line, chat.prompt());
    if (read == LineReader::Read::line && line.starts_with(kQuotes)) read = read_quoted(reader, line);
    clear_interrupt();
    if (read == LineReader::Read::end) break;
    if (read == LineReader::Read::interrupted || (!chat.is_asking() && without_outer_spaces(line).empty())) continue;
    const auto goes_on = chat.take(line);
    if (!goes_on) {
      print_error("baton chat", goes_on.error());
      if (!reader.is_terminal()) return fail(goes_on.error().code, "stopped");
    }
    if (!flush_output()) return fail(ErrorCode::io, "stopped, because answers cannot be written");
    if (goes_on && !*goes_on) break;
  }
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
  json::Value tools;
  if (!options.tools.empty()) {
    BATON_TRY(tools, read_tools(options.tools));
  }
  BATON_TRY(ServedEngine loaded, load_served(files, options.model));
  const std::unique_ptr<Engine> engine = std::move(loaded.engine);
  ServedModel model = std::move(loaded.served);
  model.grammars = std::make_unique<Grammars>(model.n_vocab, engine->info().eos_token_ids, grammar::GrammarCache::Options{});
  BATON_TRY(const std::unique_ptr<Prefixes> prefixes, load_prefixes(options.model.prefixes, model, *engine));
  Chat chat(*engine, model, *prefixes,
            {.system = options.system,
             .prefix = options.prefix,
             .tools = std::move(tools),
             .tool_choice = options.tool_choice,
             .temperature = options.temperature,
             .max_tokens = options.max_tokens});
  return talk(chat, !options.keeps_no_history);
}

}  // namespace

int chat_main(ChatOptions options) {
  use_log_level(options.model);
  if (const auto chosen = choose_prefix(options); !chosen) {
    print_error("baton chat", chosen.error());
    return 2;
  }
  watch_interrupts();
  return exit_code("baton chat", run(std::move(options)));
}

}  // namespace baton
