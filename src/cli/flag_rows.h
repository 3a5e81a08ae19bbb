/// What a row of a table of flags adds to a parser. CLI11 takes seconds to compile: for the files of flags only.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

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
