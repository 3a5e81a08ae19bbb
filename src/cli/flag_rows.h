/// What a row of a table of flags adds to a parser. CLI11 takes seconds to compile: for the files of flags only.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/options.h"
#include "core/result.h"
#include "io/json.h"

namespace baton {

/// Adds an option to a group of the help text; if it is given several times, the last one counts.
template <class Value>
CLI::Option* row(CLI::App& app, const char* group, const char* flags, Value& value, const char* help) {
  return app.add_option(flags, value, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->capture_default_str()
      ->group(group);
}

/// Lets an option take "4k" for 4096 (see parse_count) and, where `has_auto`, "auto" for -1.
inline CLI::Validator count_units(bool has_auto = false) {
  return CLI::Validator(
      [has_auto](std::string& text) {
        if (has_auto && (text == "auto" || text == "-1")) {
          text = "-1";
          return std::string();
        }
        const auto count = parse_count(text);
        if (count) text = std::to_string(*count);
        return count ? std::string() : count.error().message;
      },
      "");
}

/// Refuses texts that are not a number of at least 0, or, if not `or_zero`, over 0. CLI11's own check prints the
/// largest double.
inline CLI::Validator at_least_zero(bool or_zero = true) {
  return CLI::Validator(
      [or_zero](std::string& text) {
        char* end = nullptr;
        const double number = std::strtod(text.c_str(), &end);
        const bool is_number = end != text.c_str() && *end == '\0';
        if (is_number && !(or_zero ? number < 0 : number <= 0)) return std::string();  // not a number: see refuse_not_a_number
        return "'" + text + (or_zero ? "' is not a number of at least 0" : "' is not a number over 0");
      },
      or_zero ? "NONNEGATIVE" : "POSITIVE");
}

/// Adds an option whose text `parse` turns into the value; a text that it refuses is a usage error.
template <class Value, class Parse>
void parsed_row(CLI::App& app, const char* group, const char* flags, Value& value, const char* help, Parse parse) {
  app.add_option_function<std::string>(
         flags,
         [&value, parse](const std::string& text) {
           auto parsed = parse(text);
           if (!parsed) throw CLI::ValidationError(parsed.error().message);
           value = static_cast<Value>(std::move(*parsed));
         },
         help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group(group);
}

/// Adds an option whose text is a JSON object that `parse` reads.
template <class Config>
void json_row(CLI::App& app, const char* group, const char* flag, Config& config, const char* help,
              Result<Config> (*parse)(const json::Value&, std::string_view)) {
  parsed_row(app, group, flag, config, help, [flag, parse](const std::string& text) {
    return json::parse(text, flag).and_then([&](const json::Value& object) { return parse(object, flag); });
  });
}

}  // namespace baton
