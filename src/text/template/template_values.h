/// JSON as values of the template language.
#pragma once

#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "jinja/value.h"

namespace baton {

enum class TemplateTexts : bool { view, copy };
/// `json` as a value; its strings are copied into the arena, or stay views into `json`. Errors: nested deeper than
/// json::kMaxDepth.
Result<jinja::Value> template_value(jinja::Arena& arena, const json::Value& json, TemplateTexts texts);

/// The value of a JSON text: the JsonReader of every render.
Result<jinja::Value> read_template_json(jinja::Arena& arena, std::string_view text);

}  // namespace baton
