/// vLLM's flags that Baton does not have: which values of them change nothing, and why others are refused. One table for the
/// command line and for the arguments of Python's LLM.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace baton {

/// `values` of a VllmFlag: what is accepted of it, with "|" between values, or one of these.
inline constexpr std::string_view kAnyValue = "*";
inline constexpr std::string_view kModelName = "MODEL";  ///< the model's own name
inline constexpr std::string_view kOn = "on";            ///< a switch: --x
inline constexpr std::string_view kOff = "off";          ///< a switch: --no-x
inline constexpr std::string_view kOnOrOff = "on|off";   ///< a switch: both
inline constexpr std::string_view kNothing = "";         ///< always refused

struct VllmFlag {
  std::string_view name;  ///< with its dashes, and of a switch without "no-"
  std::string_view values;
  std::string_view reason;  ///< why it changes nothing, and so why other values are refused

  bool is_switch() const { return values == kOn || values == kOff || values == kOnOrOff; }
};

/// The table, in the order of the names.
std::span<const VllmFlag> vllm_flags();

/// A word of the command line as the parser takes it. vLLM writes names of flags with underscores too, and --tensor-parallel-size as
/// -tp; the parser takes one dash and two letters for two flags.
std::string in_own_spelling(const std::string& word);

/// Removes vLLM's flags that change nothing, each with one log line. Refuses other values of them (unsupported), except of flags
/// that are the program's own (`is_own`). `-tp` becomes --tensor-parallel-size, and --max_num_seqs --max-num-seqs.
Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words,
                                                       const std::function<bool(const std::string& flag)>& is_own = {});

}  // namespace baton
