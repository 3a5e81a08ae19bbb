/// Turns arguments into the words of a command line, and sentences about flags into sentences about arguments.
#include "cli/arguments.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/flag_rows.h"
#include "cli/flags/vllm_flags.h"
#include "cli/help_text.h"

namespace baton {
namespace {

/// Flags of programs, which mean nothing to a call.
struct ProgramFlag {
  std::string_view name;
  std::string_view reason;
};
constexpr std::string_view kNobodyParses = "answers are given as they are; `baton serve` reads calls and reasoning";
constexpr std::string_view kStartsRanks = "tensor_parallel_size starts the other ranks";
constexpr std::array kProgramFlags = std::to_array<ProgramFlag>({
    {"--config", "a call says all"},
    {"--log-level", "baton.set_log_level says what is logged"},
    {"--master-addr", kStartsRanks},
    {"--master-port", kStartsRanks},
    {"--prefix", "register_prefix computes and keeps a prompt"},
    {"--rank", kStartsRanks},
    {"--reasoning-parser", kNobodyParses},
    {"--tool-call-parser", kNobodyParses},
    {"--world-size", kStartsRanks},
});

const ProgramFlag* program_flag(std::string_view flag) {
  const auto* row = std::ranges::find(kProgramFlags, flag, &ProgramFlag::name);
  return row == kProgramFlags.end() ? nullptr : row;
}

/// The parser of all rows that a call may use.
void add_rows(CLI::App& app, EngineArguments& arguments) {
  app.set_help_flag();
  add_model_options(app, arguments.model);
  add_rank_options(app, arguments.ranks);
  add_answer_options(app, arguments.structured_outputs, arguments.max_logprobs);
  refuse_not_a_number(app);
}

std::string flag_of(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

std::string argument_of(std::string_view flag) {
  std::string name(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// What a call writes for the accepted values of a row.
std::string values_of(const VllmFlag& row) {
  if (row.values == kOn) return "True";
  if (row.values == kOff) return "False";
  if (row.values == kOnOrOff) return "True, False";
  if (row.values == kAnyValue) return "any";
  if (row.values == kModelName) return "the model's";
  if (row.values == "true") return "True";
  std::string values(row.values);
  for (std::size_t at = 0; (at = values.find('|', at)) != std::string::npos; at += 2) values.replace(at, 1, ", ");
  return values;
}

Error unknown_argument(const std::string& name) {
  std::vector<std::string> names;
  for (const ArgumentRow& row : argument_rows()) names.push_back(row.name);
  const std::string_view near = near_name(name, names);
  return {
      ErrorCode::not_found,
      fmt::format("unexpected keyword argument '{}'{}", name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
      name};
}

/// A flag and its value; an empty one is a word of its own.
std::vector<std::string> words_of(const std::string& flag, const std::string& value) {
  return value.empty() ? std::vector{flag, value} : std::vector{flag + "=" + value};
}

/// The words of one argument; none for what is off, and would be refused if it were on.
Result<std::vector<std::string>> words_of(const CLI::App& app, const Argument& argument) {
  const std::string flag = flag_of(argument.name);
  const bool is_off = argument.value == "false" || argument.value.empty();
  if (argument.name.find('-') != std::string::npos) return tl::unexpected<Error>(unknown_argument(argument.name));
  if (const ProgramFlag* row = program_flag(flag)) {
    if (is_off) return std::vector<std::string>{};
    return fail(ErrorCode::unsupported, fmt::format("{} is not supported: {}", argument.name, row->reason), argument.name);
  }
  if (app.get_option_no_throw(flag) != nullptr) return words_of(flag, argument.value);
  const auto rows = vllm_flags();
  const auto row = std::ranges::find(rows, flag, &VllmFlag::name);
  if (row == rows.end()) return tl::unexpected<Error>(unknown_argument(argument.name));
  if (row->values == kNothing && is_off) return std::vector<std::string>{};
  if (!row->is_switch()) return words_of(flag, argument.value);
  if (argument.value == "true") return std::vector{flag};
  if (argument.value == "false") return std::vector{flag_of("no_" + argument.name)};
  return fail(ErrorCode::invalid_request,
              fmt::format("{} must be True or False, not '{}'", argument.name, argument.value.substr(0, 64)), argument.name);
}

/// An error about flags as one about arguments; the first that it names is at fault.
tl::unexpected<Error> in_call(Error error) {
  error.message = in_words_of_a_call(error.message);
  const std::size_t begin = error.message.starts_with('\'') ? 1 : 0;
  error.param = error.message.substr(begin, error.message.find_first_of("': =", begin) - begin);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Result<EngineArguments> parse_arguments(const std::string& model, const std::vector<Argument>& arguments) {
  EngineArguments made;
  CLI::App app;
  add_rows(app, made);
  std::vector<std::string> words = words_of("--model", model);
  for (const Argument& argument : arguments) {
    BATON_TRY(const std::vector<std::string> more, words_of(app, argument));
    words.insert(words.end(), more.begin(), more.end());
  }
  auto flags = without_neutral_flags(words, [&](const std::string& flag) { return app.get_option_no_throw(flag) != nullptr; });
  if (!flags) return in_call(std::move(flags.error()));
  std::ranges::reverse(*flags);
  try {
    app.parse(*flags);
  } catch (const CLI::ParseError& error) {
    return in_call({ErrorCode::invalid_request, error.what()});
  }
  return made;
}

std::vector<ArgumentRow> argument_rows() {
  EngineArguments arguments;
  CLI::App app;
  add_rows(app, arguments);
  std::vector<ArgumentRow> rows;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (const std::string flag = "--" + name; program_flag(flag) == nullptr && !name.starts_with("no-"))
        rows.push_back({argument_of(flag), "acts", "", ""});
  for (const VllmFlag& row : vllm_flags())
    if (row.name.starts_with("--"))
      rows.push_back({argument_of(row.name), row.values == kNothing ? "refused" : "neutral", values_of(row),
                      in_words_of_a_call(std::string(row.reason))});
  for (const ProgramFlag& row : kProgramFlags) rows.push_back({argument_of(row.name), "refused", "", std::string(row.reason)});
  std::ranges::sort(rows, {}, &ArgumentRow::name);
  return rows;
}

std::string in_words_of_a_call(const std::string& sentence) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  std::string out;
  for (std::size_t at = 0; at < sentence.size();) {
    const bool begins_word = at == 0 || std::string_view(" '\"`(").find(sentence[at - 1]) != std::string_view::npos;
    const std::size_t end = std::min(sentence.find_first_not_of(kLetters, at), sentence.size());
    if (!begins_word || end <= at + 2 || !std::string_view(sentence).substr(at).starts_with("--")) {
      out += sentence[at++];
      continue;
    }
    const std::string flag = sentence.substr(at, end - at);
    out += flag.starts_with("--no-") ? argument_of(flag.substr(5)) + "=False" : argument_of(flag);
    at = end;
  }
  return out;
}

}  // namespace baton
