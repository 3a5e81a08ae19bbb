/// Architectures that Baton knows and does not compute, and what it lacks for them.
#pragma once

#include <span>
#include <string_view>

#include "io/json.h"

namespace baton {

struct RefusedFamily {
  std::string_view name;        ///< as in config.json's `architectures`
  std::string_view model_type;  ///< as in config.json's `model_type`
  std::string_view missing;     ///< what it has and Baton does not compute
};

/// The architectures that are refused with a reason of their own.
std::span<const RefusedFamily> refused_families();

/// What the architecture or model type `name` with this config has and Baton does not compute, by its name or by the
/// fields of the config. Empty if neither tells.
std::string_view missing_part(std::string_view name, const json::Value& config);

}  // namespace baton
