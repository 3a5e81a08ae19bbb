/// The arguments of Python's LLM: names and values of a call, read by the tables of the command line's flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/result.h"
#include "ranks/rank_place.h"
#include "server/request/structured_output.h"

namespace baton {

/// As max_num_seqs, 64. A boolean is "true" or "false"; an object or a list is JSON.
struct Argument {
  std::string name;
  std::string value;
};

/// What the arguments of a model inside of another program say.
struct EngineArguments {
  ModelFlags model;
  RankFlags ranks;  ///< of which the group's size and hang timeout count
  StructuredOutputsConfig structured_outputs;
  std::int32_t max_logprobs = 20;
};

/// Reads a call. Nothing comes from the environment. Errors are those of the flags, with the names of arguments (see
/// in_words_of_a_call): not_found for a name that neither Baton nor vLLM has; unsupported for what vLLM has and Baton has not;
/// invalid_request for a value.
Result<EngineArguments> parse_arguments(const std::string& model, const std::vector<Argument>& arguments);

/// A row of the table of all arguments.
struct ArgumentRow {
  std::string name;
  std::string effect;  ///< "acts", "neutral" or "refused"
  std::string values;  ///< of a neutral one: what is accepted, as the call spells it
  std::string reason;  ///< why it changes nothing, or is refused
};
std::vector<ArgumentRow> argument_rows();

/// A sentence about flags as one about arguments: --max-num-seqs is max_num_seqs, --no-enable-lora is enable_lora=False.
std::string in_words_of_a_call(const std::string& sentence);

}  // namespace baton
