/// Parses the words of a program and runs what they name.
#include "cli/commands.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "cli/flags/environment.h"
#include "cli/flags/vllm_flags.h"
#include "cli/help_text.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/rank_session.h"
#include "cli/version.h"
#include "core/log.h"

namespace baton {
namespace {

constexpr const char* kProgram = "baton";
constexpr const char* kRankCommand = "rank";
constexpr const char* kLogLevelVariable = "BATON_LOG_LEVEL";

/// A word with more errors is not taken for a mistyped subcommand.
constexpr int kMostTypingErrors = 2;

/// The subcommand of this name; null if there is none.
CLI::App* find_command(CLI::App& app, const std::string& name) {
  const std::vector<CLI::App*> known = app.get_subcommands([](CLI::App*) { return true; });
  const auto found = std::ranges::find(known, name, &CLI::App::get_name);
  return found == known.end() ? nullptr : *found;
}

/// What a program was started with.
struct CommandLine {
  std::vector<std::string> words;  ///< with those of a configuration file after the subcommand
  EnvironmentFlags environment;
  std::vector<std::string> repeated;    ///< log lines about flags that are given several times
  std::string log_level;                ///< of the environment; empty: none
  std::string file;                     ///< of flags; empty: none
  std::vector<std::string> file_flags;  ///< --x, those of the file alone
};

/// `argv` without the program's name, the subcommand's configuration file and its variables.
Result<CommandLine> read_command_line(CLI::App& app, int argc, char** argv) {
  CommandLine line;
  line.words.assign(argv + 1, argv + argc);
  CLI::App* const command = line.words.empty() ? nullptr : find_command(app, line.words[0]);
  const std::ptrdiff_t n_commands = line.words.empty() || line.words[0].starts_with("-") ? 0 : 1;
  const std::vector<std::string> given(line.words.begin() + n_commands, line.words.end());
  const auto is_own = [command](const std::string& flag) {
    return command != nullptr && command->get_option_no_throw(flag) != nullptr;
  };
  if (command != nullptr) {
    name_environment_variables(*command);
    std::vector<std::string> spelled;
    for (const std::string& word : given) spelled.push_back(in_own_spelling(word));
    line.repeated = repeated_flags(*command, spelled);
    const Variables variables = variables_of(environ);
    BATON_TRY(line.environment, bind_environment(app, *command, spelled, variables));
    if (const auto found = variables.find(kLogLevelVariable); found != variables.end()) line.log_level = found->second;
  }
  const auto name_of = [&](const std::string& flag) {
    const CLI::Option* const option = command == nullptr ? nullptr : find_option(*command, in_own_spelling(flag));
    return option == nullptr ? in_own_spelling(flag) : option->get_name();
  };
  const auto is_in_environment = [&](const std::string& flag) { return line.environment.variables.contains(flag); };
  BATON_TRY(WithConfigFile all, with_config_file(given, name_of, is_in_environment));
  CLI::Option* const model = command == nullptr || all.model.empty() ? nullptr : command->get_option_no_throw("--model");
  if (model != nullptr) model->default_val(all.model);
  BATON_TRY(const std::vector<std::string> flags, without_neutral_flags(all.words, is_own));
  line.file = std::move(all.file);
  const auto is_given = [&](const std::string& flag) {
    const CLI::Option* const option = find_option(*command, flag);
    return std::ranges::any_of(given, [&](const std::string& word) {
      return option == nullptr ? in_own_spelling(word) == flag : find_option(*command, in_own_spelling(word)) == option;
    });
  };
  for (const std::string& flag : all.flags)
    if (command != nullptr && !is_given(in_own_spelling(flag))) line.file_flags.push_back(in_own_spelling(flag));
  line.words.resize(static_cast<std::size_t>(n_commands));
  line.words.insert(line.words.end(), flags.begin(), flags.end());
  return line;
}

/// Refuses an unknown word in place of a subcommand. The parser would only say that there is no subcommand, or show
/// the general help.
Result<void> refuse_unknown_command(CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with("-")) return {};
  if (find_command(app, words[0]) != nullptr) return {};
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!each->get_group().empty()) names.push_back(each->get_name());
  const std::string_view nearest = nearest_name(words[0], names);
  const bool is_near = edit_distance(words[0], nearest) <= kMostTypingErrors;
  const std::string called = fmt::format("{} {}", app.get_name(), words[0]).substr(std::string_view(kProgram).size() + 1);
  return fail(ErrorCode::invalid_request,
              fmt::format("unknown subcommand '{}'; {}there are: {}", called,
                          is_near ? fmt::format("did you mean '{}'? ", nearest) : "", fmt::join(names, ", ")));
}

/// True if a parser's or a check's sentence begins with this flag: "--x: ...", "--x 12Q: ...", "'--x' must ...".
bool is_about(std::string_view message, const std::string& flag) {
  for (const std::string_view before : {std::string_view("Could not convert: "), std::string_view("'")})
    if (message.starts_with(before)) message.remove_prefix(before.size());
  constexpr std::string_view kAfterFlag = ": '";
  return message.starts_with(flag) && message.size() > flag.size() && kAfterFlag.find(message[flag.size()]) != kAfterFlag.npos;
}

/// An error in its user's words: with the name that the help lists a missing argument under (OUT, not --out), and with the variable
/// or the file that the value is from.
CLI::Error in_words_of_user(const CLI::App& app, const CLI::ParseError& error, const CommandLine& line) {
  const std::string message = error.what();
  for (const auto& [flag, variable] : line.environment.variables)
    if (is_about(message, flag))
      return CLI::Error(error.get_name(), fmt::format("{} (from {})", message, variable), error.get_exit_code());
  if (std::ranges::any_of(line.file_flags, [&](const std::string& flag) { return is_about(message, flag); }))
    return CLI::Error(error.get_name(), fmt::format("{} (from {})", message, line.file), error.get_exit_code());
  for (const CLI::App* command : app.get_subcommands())
    for (const CLI::Option* option : command->get_options())
      if (option->get_positional() && std::string_view(error.what()) == CLI::RequiredError(option->get_name()).what())
        return CLI::RequiredError(option->get_name(/*positional=*/true));
  return error;
}

/// Logs what is odd about a command line, if its --log-level, or BATON_LOG_LEVEL of a command without that flag, lets warnings through.
/// Ranks are silent: rank 0 has said it.
void log_warnings(const CLI::App& command, const CommandLine& line) {
  if (command.get_name() == kRankCommand) return;
  const CLI::Option* const option = command.get_option_no_throw("--log-level");
  const std::string level = option == nullptr ? line.log_level : option->count() > 0 ? option->as<std::string>() : "";
  if (const auto known = log::level_from_name(level))
    log::set_level(*known);
  else if (!level.empty())
    log::warning("variable={} value={} effect=none reason=\"debug, info, warning and error are levels\"", kLogLevelVariable,
                 level);
  for (const auto* lines : {&line.environment.warnings, &line.repeated})
    for (const std::string& each : *lines) log::warning("{}", each);
}

/// After a command that failed: its flags that the environment sets, because the error itself names a flag only.
void print_variables(const std::string& program, const EnvironmentFlags& environment) {
  std::vector<std::string> all;
  for (const auto& [flag, variable] : environment.variables) all.push_back(fmt::format("{} (from {})", flag, variable));
  if (!all.empty()) print_note("{}: the environment sets {}\n", program, fmt::join(all, ", "));
}

}  // namespace

Commands::Commands(const std::string& name, const std::string& introduction)
    : name_(name), app_(std::make_unique<CLI::App>(introduction, name)) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", [] { return version_text(); });
  use_help_text(*app_);
  // Rank 0 starts its own program again for each other rank.
  add_ranked(
      kRankCommand, "A rank > 0 of tensor parallelism, which follows rank 0; rank 0 starts it by itself",
      [](CLI::App& sub) { sub.group(""); },
      [] {
        print_note("baton rank: --rank must be from 1 to --tensor-parallel-size - 1; rank 0 is the command itself\n");
        return 2;
      },
      of_rank_);
}

Commands::~Commands() = default;

void Commands::add(const std::string& name, const std::string& help, const AddOptions& add_options, std::function<int()> run) {
  CLI::App* made = app_->add_subcommand(name, help);
  made->allow_extras();
  add_options(*made);
  refuse_not_a_number(*made);
  commands_.push_back({made, std::move(run)});
}

void Commands::add_ranked(const std::string& name, const std::string& help, const AddOptions& add_options,
                          std::function<int()> run, std::shared_ptr<RankGroup>& ranks) {
  add(
      name, help,
      [&](CLI::App& sub) {
        add_options(sub);
        add_rank_options(sub, rank_flags_);
      },
      std::move(run));
  commands_.back().ranks = &ranks;
}

int Commands::run_command(const Command& command) {
  if (command.ranks == nullptr) return command.run();
  const auto session = RankSession::start(rank_flags_);
  const std::string name = name_ + " " + command.app->get_name();
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

int Commands::run_words(int argc, char** argv) {
  auto line = read_command_line(*app_, argc, argv);
  if (!line) {
    print_error(kProgram, line.error());
    return 2;
  }
  const std::vector<std::string>& words = line->words;
  if (auto known = refuse_unknown_command(*app_, words); !known) {
    print_error(kProgram, known.error());
    return 2;
  }
  command_line_ = fmt::format("{} {}", name_, fmt::join(words, " "));
  try {
    std::vector<std::string> reversed(line->environment.words.rbegin(), line->environment.words.rend());
    reversed.insert(reversed.end(), words.rbegin(), words.rend());
    app_->parse(reversed);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    const int code = app_->exit(in_words_of_user(*app_, error, *line), out, std::cerr);
    write_output(out.str());
    return code == 0 ? 0 : 2;
  }
  for (const Command& command : commands_) {
    if (!command.app->parsed()) continue;
    if (auto known = refuse_unknown_flags(*command.app, command.app->remaining()); !known) {
      const bool is_of_file = std::ranges::find(line->file_flags, known.error().param) != line->file_flags.end();
      print_note("{} {}: {}{}\n", name_, command.app->get_name(), known.error().message,
                 is_of_file ? fmt::format(" (from {})", line->file) : "");
      return 2;
    }
    log_warnings(*command.app, *line);
    const int code = run_command(command);
    if (code != 0) print_variables(fmt::format("{} {}", name_, command.app->get_name()), line->environment);
    return code;
  }
  return 2;
}

int Commands::run(int argc, char** argv) {
  const int code = run_words(argc, argv);
  return flush_output() ? code : 1;
}

}  // namespace baton
