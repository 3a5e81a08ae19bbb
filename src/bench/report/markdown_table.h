/// Markdown tables of benchmarks.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

namespace baton {

/// Lines of cells below a line of titles.
class MarkdownTable {
 public:
  explicit MarkdownTable(const std::vector<std::string>& titles) {
    add(titles);
    text_ += '|';
    for (std::size_t i = 0; i < titles.size(); ++i) text_ += "---|";
    text_ += '\n';
  }
  void add(const std::vector<std::string>& cells) {
    text_ += '|';
    for (const std::string& cell : cells) text_ += fmt::format(" {} |", cell);
    text_ += '\n';
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace baton
