/// The model families: how each one's config.json becomes a ModelSpec. A family is one file in this folder and a row
/// in families.cpp; it holds no arithmetic.
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
  /// Everything of the spec but `family` and the layers' groups, from an object. Errors name the field, its value
  /// and what is accepted; a value that would change the arithmetic in a way that the spec cannot say is refused
  /// (unsupported).
  Result<ModelSpec> (*read)(const json::Value& config) = nullptr;
};

/// The families that Baton ships; each is proven by golden logits of tiny checkpoints (tests/goldens/).
std::span<const Family> shipped_families();

/// The family that `config` names first in `architectures`, or else by its `model_type`. The error (unsupported)
/// lists the families that are known.
Result<const Family*> find_family(std::span<const Family> families, const json::Value& config);

}  // namespace baton
