/// Wraps what CLI11 writes.
#include "cli/help_text.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

namespace baton {
namespace {

/// Where the explanations of flags begin.
constexpr std::size_t kColumn = 26;

/// A name, and its explanation beside it or, after a long name, below it.
std::string entry(const std::string& name, const std::string& explanation) {
  std::string out = "  " + name;
  if (out.size() > kHelpColumns) out = "  " + wrapped(name, kHelpColumns, 6, 2);
  if (explanation.empty()) return out + "\n";
  if (out.size() + 1 >= kColumn) out += "\n" + std::string(kColumn, ' ');
  const std::size_t begin = out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1;
  if (out.size() - begin < kColumn) out.append(kColumn - (out.size() - begin), ' ');
  return out + wrapped(explanation, kHelpColumns, kColumn, kColumn) + "\n";
}

class HelpText : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  /// Without the variable's name: it follows from the flag's, see make_footer.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = Formatter::make_option_opts(option);
    const std::string variable = " (" + get_label("Env") + ":" + option->get_envname() + ")";
    if (const auto at = text.find(variable); at != std::string::npos) text.erase(at, variable.size());
    // The list of choices can be broken at its commas.
    if (text.size() > kHelpColumns / 2)
      for (std::size_t at = text.find(','); at != std::string::npos; at = text.find(',', at + 2)) text.insert(at + 1, " ");
    return text;
  }
  std::string make_subcommand(const CLI::App* sub) const override { return entry(sub->get_name(), sub->get_description()); }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(Formatter::make_description(app), kHelpColumns, 0, 0);
  }
  std::string make_footer(const CLI::App* app) const override {
    const auto options = app->get_options([](const CLI::Option* option) { return !option->get_envname().empty(); });
    if (options.empty()) return Formatter::make_footer(app);
    return Formatter::make_footer(app) +
           wrapped("\nA flag can be given in the environment too: BATON_ and its name in capitals, as " +
                       options.back()->get_envname() + ".\n",
                   kHelpColumns, 0, 0);
  }
};

}  // namespace

std::string wrapped(std::string_view text, std::size_t n_columns, std::size_t indent, std::size_t n_used) {
  std::string out;
  std::size_t column = n_used;
  bool is_first = true;  // word of its line
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      out += '\n';
      if (++at < text.size() && text[at] != '\n') out.append(indent, ' ');
      column = indent;
      is_first = true;
      continue;
    }
    std::size_t end = text.find_first_not_of(' ', at);
    end = std::min(text.find_first_of(" \n", end == std::string_view::npos ? text.size() : end), text.size());
    std::string_view word = text.substr(at, end - at);  // with the spaces before it
    at = end;
    if (!is_first && column + word.size() > n_columns) {
      out += '\n';
      out.append(indent, ' ');
      column = indent;
      word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    }
    out += word;
    column += word.size();
    is_first = false;
  }
  return out;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string> names) {
  const auto nearest = std::ranges::min_element(names, {}, [&](const std::string& name) { return edit_distance(word, name); });
  return nearest == names.end() ? std::string_view() : std::string_view(*nearest);
}

std::string_view near_name(std::string_view word, std::span<const std::string> names) {
  const std::string_view nearest = nearest_name(word, names);
  const bool is_near = 3 * edit_distance(word, nearest) <= static_cast<int>(std::max(word.size(), nearest.size()));
  return is_near ? nearest : std::string_view();
}

void use_help_text(CLI::App& app) { app.formatter(std::make_shared<HelpText>()); }

}  // namespace baton
