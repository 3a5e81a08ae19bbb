/// Which kinds of JSON values a tool's arguments may have, for formats that write arguments without types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/limits/work_budget.h"
#include "io/json.h"

namespace baton::parsers {

/// The kinds of JSON values that a schema allows, as bits.
enum : unsigned {
  kAllowsString = 1,
  kAllowsNumber = 2,
  kAllowsBoolean = 4,
  kAllowsNull = 8,
  kAllowsObject = 16,
  kAllowsArray = 32,
};

unsigned kind_of_value(const json::Value& value);

/// The kinds of the arguments of one tool, by name. Thread: any, once made.
class ArgumentKinds {
 public:
  /// Every argument is a string.
  ArgumentKinds() = default;
  /// Reads the schemas in `properties` of a tool's `parameters`, by `type`, `const`, `enum`, `anyOf`, `oneOf`, `allOf` and `$ref` to
  /// the root (`#`) or to a schema in `$defs` or `definitions`. Schemas may refer to each other and to themselves. Each schema is
  /// read once, so steps and bytes are linear in the text of `parameters`. The result is of no use once the meter's budget is over.
  ArgumentKinds(const json::Value& parameters, WorkMeter& meter);

  /// A string where no schema says a type, or there is no such argument.
  unsigned of(std::string_view argument) const {
    const auto found = kinds_.find(argument);
    return found == kinds_.end() ? unsigned{kAllowsString} : found->second;
  }
  /// About how much memory it takes.
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  std::map<std::string, std::uint8_t, std::less<>> kinds_;  // of arguments that are not only strings
  std::size_t n_bytes_ = 0;
};

}  // namespace baton::parsers
