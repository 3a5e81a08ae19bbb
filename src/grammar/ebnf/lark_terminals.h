/// The terminals of Lark's module `common`.
#pragma once

#include <optional>
#include <string_view>

namespace baton::grammar {

/// The regular expression of a terminal, as "DIGIT"; nullopt: the module has none of that name.
std::optional<std::string_view> common_terminal(std::string_view name);

}  // namespace baton::grammar
