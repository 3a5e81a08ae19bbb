/// What https://github.com/lark-parser/lark/blob/master/lark/grammars/common.lark says, each terminal written out.
#include "grammar/ebnf/lark_terminals.h"

#include <algorithm>
#include <array>
#include <utility>

namespace baton::grammar {

std::optional<std::string_view> common_terminal(std::string_view name) {
  using Terminal = std::pair<std::string_view, std::string_view>;
  static constexpr std::array kTerminals = std::to_array<Terminal>({
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9A-Fa-f]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+\\-]?[0-9]+"},
      {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
      {"FLOAT", "(?:[0-9]+[Ee][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[Ee][+\\-]?[0-9]+)?)"},
      {"SIGNED_FLOAT", "[+\\-]?(?:[0-9]+[Ee][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[Ee][+\\-]?[0-9]+)?)"},
      {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[Ee][+\\-]?[0-9]+)?"},
      {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[Ee][+\\-]?[0-9]+)?"},
      {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
      {"WS_INLINE", "[ \\t]+"},
      {"WS", "[ \\t\\f\\r\\n]+"},
      {"CR", "\\r"},
      {"LF", "\\n"},
      {"NEWLINE", "(?:\\r?\\n)+"},
      {"SH_COMMENT", "#[^\\n]*"},
      {"CPP_COMMENT", "\\/\\/[^\\n]*"},
      {"C_COMMENT", "\\/\\*(?:[^*]|\\*+[^*\\/])*\\*+\\/"},
      {"SQL_COMMENT", "--[^\\n]*"},
  });
  const auto* const found = std::ranges::find(kTerminals, name, &Terminal::first);
  if (found == kTerminals.end()) return std::nullopt;
  return found->second;
}

}  // namespace baton::grammar
