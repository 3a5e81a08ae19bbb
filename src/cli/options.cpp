/// The command line without its rows (flags.cpp): the configuration file, and the treatment of flags of other servers.
#include "cli/options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "core/log.h"

namespace baton {
namespace {

/// Flags of vLLM that ask for something that Baton always does; only `value` is accepted.
struct NeutralFlag {
  std::string_view name;
  std::string_view value;  ///< empty: the flag takes none
  std::string_view reason;
};
constexpr std::array kNeutralFlags = std::to_array<NeutralFlag>({
    {"--enable-chunked-prefill", "", "prompts are always computed in chunks"},
    {"--enable-prompt-tokens-details", "", "cached_tokens is always reported"},
    {"--pipeline-parallel-size", "1", "one device"},
    {"-pp", "1", "one device"},
    {"--data-parallel-size", "1", "one engine"},
    {"-dp", "1", "one engine"},
    {"--async-scheduling", "", "steps are always planned ahead"},
    {"--disable-log-requests", "", "prompts are never logged"},
    {"--no-enable-log-requests", "", "prompts are never logged"},
    {"--enable-auto-tool-choice", "", "the model may always choose among the tools of a request"},
    {"--tokenizer-mode", "auto", "there is one tokenizer"},
    {"--guided-decoding-backend", "auto", "there is one"},
});

}  // namespace

void use_log_level(const ModelFlags& options) {
  if (const auto level = log::level_from_name(options.log_level)) log::set_level(*level);
}

Result<std::vector<std::string>> without_neutral_flags(const std::vector<std::string>& words) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = words[i].substr(0, words[i].find('='));
    const auto* known =
        std::find_if(kNeutralFlags.begin(), kNeutralFlags.end(), [&](const NeutralFlag& row) { return row.name == flag; });
    if (known == kNeutralFlags.end()) {
      // The parser takes one dash and two letters for two flags.
      rest.push_back(flag == "-tp" ? "--tensor-parallel-size" + words[i].substr(flag.size()) : words[i]);
      continue;
    }
    if (!known->value.empty()) {
      std::string value;
      if (flag.size() < words[i].size())
        value = words[i].substr(flag.size() + 1);
      else if (i + 1 < words.size())
        value = words[++i];
      std::string accepted;
      bool is_accepted = false;
      for (const NeutralFlag& row : kNeutralFlags) {
        if (row.name != flag) continue;
        is_accepted |= row.value == value;
        accepted += fmt::format("{}{}", accepted.empty() ? "" : " or ", row.value);
      }
      if (!is_accepted) return fail(ErrorCode::unsupported, fmt::format("{} {}: only {} is supported", flag, value, accepted));
    }
    log::info("flag={} effect=none reason=\"{}\"", flag, known->reason);
  }
  return rest;
}

Result<std::vector<std::string>> with_config_file(std::vector<std::string> arguments) {
  std::string file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].starts_with("--config=")) file = arguments[i].substr(9);
  }
  if (file.empty()) return arguments;
  std::vector<std::string> from_file;
  std::string model;
  try {
    const YAML::Node root = YAML::LoadFile(file);
    if (!root.IsMap()) return fail(ErrorCode::invalid_data, fmt::format("{}: not a mapping of flags to values", file));
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      if (key == "model") {
        model = entry.second.as<std::string>();
      } else if (entry.second.IsSequence()) {
        for (const auto& value : entry.second) from_file.insert(from_file.end(), {"--" + key, value.as<std::string>()});
      } else if (!entry.second.IsScalar()) {
        return fail(ErrorCode::invalid_data, fmt::format("{}: {} is neither a value nor a list", file, key));
      } else if (const auto text = entry.second.as<std::string>(); text == "true") {
        from_file.push_back("--" + key);
      } else if (text == "false") {
        from_file.push_back("--no-" + key);
      } else {
        from_file.insert(from_file.end(), {"--" + key, text});
      }
    }
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::invalid_data, fmt::format("{}: {}", file, error.what()));
  }
  // The file's model counts only if the command line names none, as the first word or by --model.
  const bool names_model = !arguments.empty() && (!arguments[0].starts_with("-") ||
                                                  std::find(arguments.begin(), arguments.end(), "--model") != arguments.end());
  if (!model.empty() && !names_model) from_file.insert(from_file.end(), {"--model", model});
  // MODEL stays first: a flag of the file that takes several words would take it too.
  const auto n_first = static_cast<std::ptrdiff_t>(!arguments.empty() && !arguments[0].starts_with("-") ? 1 : 0);
  arguments.insert(arguments.begin() + n_first, from_file.begin(), from_file.end());
  return arguments;
}

Result<std::int64_t> parse_bytes(const std::string& text, const std::string& flag) {
  std::size_t end = 0;
  double number = -1;
  const std::string digits = text.substr(0, text.find_first_not_of("0123456789."));
  if (!digits.empty() && digits.size() < 16) {
    number = std::strtod(digits.c_str(), nullptr);
    end = digits.size();
  }
  std::string unit = text.substr(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  double factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "K" || unit == "KIB" || unit == "KB") factor = 0x1p10;
  if (unit == "M" || unit == "MIB" || unit == "MB") factor = 0x1p20;
  if (unit == "G" || unit == "GIB" || unit == "GB") factor = 0x1p30;
  if (number < 0 || factor == 0 || number * factor > 0x1p50)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} {}: not a size; write a number with K, M, G or nothing behind it", flag, text));
  return static_cast<std::int64_t>(std::llround(number * factor));
}

}  // namespace baton
