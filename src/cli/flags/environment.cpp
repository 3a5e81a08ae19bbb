/// Finds the variables of flags, and the names that only look like one.
#include "cli/flags/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include <baton_flag_names.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/help_text.h"
#include "cli/options.h"

namespace baton {
namespace {

constexpr std::string_view kVariablePrefix = "BATON_";

/// What is_other_variable() knows; "*" at the end: all names that begin so. A test compares it with the sources.
constexpr std::array kOtherVariables = std::to_array<std::string_view>({
    "BATON_BENCH_*",     "BATON_BINARY",     "BATON_BUILD",           "BATON_BUNDLE",          "BATON_CLIENTS_PYTHON",
    "BATON_COMMIT",      "BATON_CPU_ISA",    "BATON_CUDA_ARCH",       "BATON_HARMONY_STREAMS", "BATON_LEAK_ROUNDS",
    "BATON_MODULE_PATH", "BATON_MOST_RANKS", "BATON_PRINT_DOCUMENT",  "BATON_RANK_*",          "BATON_REQUIRE",
    "BATON_TEST_*",      "BATON_TIMELINE*",  "BATON_TOKENIZER_TEXTS", "BATON_UNDER",           "BATON_WERROR",
    "BATON_WRITE_DOCS",
});

/// The variable of a flag's name, without its dashes.
std::string variable_of(std::string_view flag_name) {
  std::string name(kVariablePrefix);
  for (const char c : flag_name) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool can_be_variable(std::string_view flag_name) { return flag_name != "help" && flag_name != "config"; }

/// The names of an option that can stand in the environment, without dashes.
std::vector<std::string> names_in_environment(const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  return names.empty() || !can_be_variable(names[0]) ? std::vector<std::string>() : names;
}

/// The names of the variables of all flags of all commands.
std::vector<std::string> variables_of_flags(const CLI::App& program) {
  std::vector<std::string> all;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : names_in_environment(*option)) all.push_back(variable_of(name));
  return all;
}

/// True for flags of `baton` and of `baton-bench`, whichever program runs.
bool is_of_any_program(std::string_view variable) {
  return std::ranges::any_of(kFlagNames,
                             [&](std::string_view name) { return can_be_variable(name) && variable == variable_of(name); });
}

/// The lines of a text that have characters.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// True for flags that take one value each time they are given, and may be repeated.
bool is_repeatable(const CLI::Option& option) { return option.get_items_expected_max() > 1 && option.get_delimiter() == '\0'; }

bool has_digits_only(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// True for the names that Kubernetes gives containers for a Service called baton, or baton-something, beside NAME_PORT:
/// NAME_SERVICE_HOST, NAME_SERVICE_PORT, NAME_SERVICE_PORT_HTTP, NAME_PORT_80_TCP, NAME_PORT_80_TCP_ADDR.
bool is_of_kubernetes(std::string_view name) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != std::string_view::npos) return true;
  constexpr std::string_view kPort = "_PORT_";
  const std::size_t at = name.find(kPort);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = name.substr(at + kPort.size());
  const std::string_view number = rest.substr(0, rest.find('_'));
  const std::string_view protocol = rest.substr(std::min(number.size() + 1, rest.size()));
  return has_digits_only(number) &&
         std::ranges::any_of(std::array{"TCP", "UDP", "SCTP"}, [&](const char* known) { return protocol.starts_with(known); });
}

/// True for what Kubernetes sets as NAME_PORT: tcp://10.0.0.1:8000.
bool is_url_of_port(std::string_view name, std::string_view value) {
  return name.ends_with("_PORT") && value.find("://") != std::string_view::npos;
}

/// A log line about a name that nothing reads. BATON_, which all names have, does not count for the nearest one.
std::string unknown_variable(std::string_view name, const std::vector<std::string>& known) {
  std::vector<std::string> rests;
  for (const std::string& each : known) rests.push_back(each.substr(kVariablePrefix.size()));
  const std::string_view near = near_name(name.substr(kVariablePrefix.size()), rests);
  return fmt::format("variable={} effect=none reason=\"no flag has this name{}\"", name,
                     near.empty() ? "" : fmt::format("; the nearest there is: {}{}", kVariablePrefix, near));
}

}  // namespace

Variables variables_of(const char* const* environment) {
  Variables all;
  for (; *environment != nullptr; ++environment) {
    const std::string_view line = *environment;
    const std::size_t at = line.find('=');
    if (!line.starts_with(kVariablePrefix) || at == std::string_view::npos || at + 1 == line.size()) continue;
    all.emplace(line.substr(0, at), line.substr(at + 1));
  }
  return all;
}

bool is_other_variable(std::string_view name) {
  return std::ranges::any_of(kOtherVariables, [&](std::string_view known) {
    return known.ends_with('*') ? name.starts_with(known.substr(0, known.size() - 1)) : name == known;
  });
}

void name_environment_variables(CLI::App& command) {
  for (CLI::Option* option : command.get_options())
    if (const auto names = names_in_environment(*option); !names.empty()) option->envname(variable_of(names[0]));
}

Result<EnvironmentFlags> bind_environment(const CLI::App& program, CLI::App& command, const std::vector<std::string>& given,
                                          const Variables& variables) {
  EnvironmentFlags flags;
  const auto is_given = [&](const CLI::Option* option) {
    const bool is_first_word = option->get_positional() && !given.empty() && !given[0].starts_with("-");
    return is_first_word ||
           std::ranges::any_of(given, [&](const std::string& word) { return find_option(command, word) == option; });
  };
  for (CLI::Option* option : command.get_options()) {
    std::optional<std::string> bound;  // the name whose variable counts
    for (const std::string& name : names_in_environment(*option)) {
      const auto found = variables.find(variable_of(name));
      if (found == variables.end()) continue;
      if (is_url_of_port(found->first, found->second)) {
        option->envname("");
        if (!is_given(option))
          flags.warnings.push_back(fmt::format(
              "variable={} value={} effect=none reason=\"not a port: Kubernetes sets such a value for a service of this "
              "name; --{} gives the port\"",
              found->first, found->second, name));
        continue;
      }
      const bool is_twice = bound && variables.at(variable_of(*bound)) != found->second;
      if (is_twice && !is_given(option))
        return fail(ErrorCode::invalid_request,
                    fmt::format("{} and {} are two names of one flag and have different values; set one", variable_of(*bound),
                                found->first));
      if (!bound) bound = name;
    }
    if (!bound || is_given(option)) continue;
    const std::string variable = variable_of(*bound);
    flags.variables.emplace(option->get_name(), variable);
    if (is_repeatable(*option)) {
      option->envname("");
      for (const std::string& line : lines_of(variables.at(variable)))
        flags.words.push_back(fmt::format("--{}={}", *bound, line));
    } else if (std::ranges::find(option->get_fnames(), *bound) == option->get_fnames().end()) {
      option->envname(variable);
    } else {
      flags.words.push_back(fmt::format("--{}={}", *bound, variables.at(variable)));
    }
  }
  const std::vector<std::string> known = variables_of_flags(program);
  for (const auto& [name, value] : variables)
    if (std::ranges::find(known, name) == known.end() && !is_of_any_program(name) && !is_other_variable(name) &&
        !is_of_kubernetes(name) && !is_url_of_port(name, value))
      flags.warnings.push_back(unknown_variable(name, known));
  return flags;
}

}  // namespace baton
