/// The command line without its rows (flags.cpp): the configuration file, and the treatment of flags of other servers.
#include "cli/options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "core/log.h"

namespace baton {
namespace {

/// What "512", "1.5K" or "2GiB" stand for, with K, M and G as powers of 1024, in any case; `suffix` or "iB" may follow these
/// letters where it is not empty. Nothing for other texts and for more than 2^50.
std::optional<double> scaled_number(const std::string& text, std::string_view suffix) {
  const std::string digits = text.substr(0, text.find_first_not_of("0123456789."));
  if (digits.empty() || digits.size() >= 16 || digits.find_first_of("0123456789") == std::string::npos) return std::nullopt;
  std::string unit = text.substr(digits.size());
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  constexpr std::string_view kLetters = "KMG";
  double factor = 1;
  if (!unit.empty()) {
    const std::size_t power = kLetters.find(unit.front());
    const std::string_view rest = std::string_view(unit).substr(1);
    const bool is_known =
        power != std::string_view::npos && (rest.empty() || (!suffix.empty() && (rest == suffix || rest == "IB")));
    if (!is_known) return std::nullopt;
    factor = std::pow(0x1p10, static_cast<double>(power + 1));
  }
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end) * factor;
  if (*end != '\0' || number > 0x1p50) return std::nullopt;
  return number;
}

}  // namespace

void use_log_level(const ModelFlags& options) {
  if (const auto level = log::level_from_name(options.log_level)) log::set_level(*level);
}

Result<WithConfigFile> with_config_file(std::vector<std::string> arguments,
                                        const std::function<std::string(const std::string& flag)>& name_of,
                                        const std::function<bool(const std::string& name)>& is_in_environment) {
  WithConfigFile all;
  std::string& file = all.file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].starts_with("--config=")) file = arguments[i].substr(9);
  }
  all.words = std::move(arguments);
  if (file.empty()) return all;
  std::vector<std::string> from_file;
  std::map<std::string, std::string> keys;  // by the first name of their flag
  try {
    const YAML::Node root = YAML::LoadFile(file);
    if (root.IsNull()) return all;
    if (!root.IsMap()) return fail(ErrorCode::invalid_data, fmt::format("{}: not a mapping of flags to values", file));
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      const std::string name = name_of ? name_of("--" + key) : "--" + key;
      if (const auto [other, is_new] = keys.emplace(name, key); !is_new)
        return fail(ErrorCode::invalid_data,
                    other->second == key
                        ? fmt::format("{}: {} is there twice", file, key)
                        : fmt::format("{}: {} and {} are two names of one flag; keep one of them", file, other->second, key));
      if (is_in_environment && is_in_environment(name)) continue;
      all.flags.push_back("--" + key);
      if (key == "model") {
        all.model = entry.second.as<std::string>();
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
  // MODEL stays first: a flag of the file that takes several words would take it too.
  const auto n_first = static_cast<std::ptrdiff_t>(!all.words.empty() && !all.words[0].starts_with("-") ? 1 : 0);
  all.words.insert(all.words.begin() + n_first, from_file.begin(), from_file.end());
  return all;
}

Result<std::int64_t> parse_bytes(const std::string& text, const std::string& flag) {
  const std::optional<double> number = scaled_number(text, "B");
  if (!number)
    return fail(ErrorCode::invalid_request,
                fmt::format("{} {}: not a size; write a number with K, M, G or nothing after it", flag, text));
  return static_cast<std::int64_t>(std::llround(*number));
}

Result<std::int64_t> parse_count(const std::string& text) {
  const std::optional<double> number = scaled_number(text, "");
  if (!number || *number != std::floor(*number))
    return fail(ErrorCode::invalid_request,
                fmt::format("'{}' is not a number; write digits with k, M (1024, 1048576) or nothing after them", text));
  return static_cast<std::int64_t>(*number);
}

}  // namespace baton
