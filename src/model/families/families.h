/// Model families: each one turns its config.json into a ModelSpec. A family is one file in this folder and a row in
/// families.cpp. It contains no arithmetic.
#pragma once

#include <span>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "model/spec.h"

namespace baton {

struct Family {
  std::string_view name;        ///< as in config.json's `architectures`
  std::string_view model_type;  ///< as in config.json's `model_type`
  std::string_view models;      ///< the models people know, for documents
  /// Reads all of the spec but `family` and the layer groups from a JSON object. Errors name the field, its value and
  /// the accepted values. A value that would change the arithmetic in a way that the spec cannot express is refused
  /// (unsupported).
  Result<ModelSpec> (*read)(const json::Value& config) = nullptr;
};

/// The families that Baton ships. Golden logits of tiny checkpoints (tests/goldens/) prove each of them.
std::span<const Family> shipped_families();

/// Finds the family that `config` names first in `architectures`, otherwise by its `model_type`. The error
/// (unsupported) says what Baton lacks for it, or lists the known families.
Result<const Family*> find_family(std::span<const Family> families, const json::Value& config);

}  // namespace baton
