/// Reading the components of a tokenizer.json: objects with a "type", nested in Sequences.
#include "text/split/component.h"

#include <fmt/format.h>

namespace baton::component {

Result<std::string> type_of(const json::Value& value, std::string_view role, int depth, std::size_t n_steps) {
  if (depth > kMaxDepth)
    return fail(ErrorCode::invalid_data, fmt::format("{}: Sequences are nested deeper than {}", role, kMaxDepth));
  if (n_steps >= kMaxSteps) return fail(ErrorCode::invalid_data, fmt::format("{}: more than {} steps", role, kMaxSteps));
  if (!value.is_object()) return fail(ErrorCode::invalid_data, fmt::format("{}: must be an object or null", role));
  return get<std::string>(value, role, "type");
}

tl::unexpected<Error> unsupported(std::string_view role, std::string_view what) {
  return fail(ErrorCode::unsupported, fmt::format("tokenizer.json: the {} {} is not supported", role, what));
}

Result<const json::Value*> members_of(const json::Value& value, std::string_view role, std::string_view key) {
  const json::Value* members = json::find(value, key);
  if (members == nullptr || !members->is_array())
    return fail(ErrorCode::invalid_data, fmt::format("{}: a Sequence needs a list '{}'", role, key));
  return members;
}

}  // namespace baton::component
