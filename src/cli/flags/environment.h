/// Flags in the environment: BATON_ and a name of the flag in capitals, with underscores in place of dashes.
///
/// Every name of a flag counts, as on the command line: BATON_STATE_CACHE_DTYPE, and BATON_MAMBA_SSM_CACHE_DTYPE. A flag whose values
/// commas separate has them in its variable too; one that may be repeated (--prefix) takes each line of its variable.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace CLI {
class App;
}

namespace baton {

/// The variables that begin with BATON_ and are not empty, with their values.
using Variables = std::map<std::string, std::string>;

/// Those of an environment as a program gets it: "NAME=VALUE" each, then a null pointer.
Variables variables_of(const char* const* environment);

/// What the environment says about the flags of one command.
struct EnvironmentFlags {
  std::map<std::string, std::string> variables;  ///< of each flag (--max-num-seqs) that takes its value from one
  std::vector<std::string> words;                ///< of these, what the parser does not read itself: "--no-x=VALUE", lines
  std::vector<std::string> warnings;             ///< log lines
};

/// Gives each flag of `command` the variable of its first name, which the help text shows. Call it after all flags are added, and for the
/// command that runs alone: the parser reads the variables of every command that has any, so what one refuses would stop another.
void name_environment_variables(CLI::App& command);

/// Gives each flag of `command` the variable that is set for it, unless `given`, the words of the command line, give the flag.
/// Warnings are about a URL in place of a port, which Kubernetes sets for a service of that name and which is left out, and
/// about names that are no flag of `baton` or `baton-bench`, no name that Kubernetes sets and not is_other_variable().
/// Errors: invalid_request for two variables with different values for one flag.
Result<EnvironmentFlags> bind_environment(const CLI::App& program, CLI::App& command, const std::vector<std::string>& given,
                                          const Variables& variables);

/// True for names that programs read as variables only, and for those of tests, benchmarks, tools and builds.
bool is_other_variable(std::string_view name);

}  // namespace baton
