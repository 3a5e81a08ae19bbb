/// Lines that a person types, with editing and a history, or lines of a file.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace baton {

/// Reads standard input. On a terminal a line can be edited (libedit, Emacs keys, ~/.editrc), Tab completes commands, the
/// arrow keys and Ctrl-R find earlier lines; the prompt is written to standard error. Thread: one at a time, one reader in
/// a process.
class LineReader {
 public:
  struct Options {
    std::filesystem::path history_file = {};     ///< earlier lines, kept between runs, readable by the user alone; empty: none
    std::span<const std::string> commands = {};  ///< what Tab completes at the beginning of a line; must outlive the reader
  };
  enum class Read {
    line,
    interrupted,  ///< Ctrl-C: the line is dropped
    end,          ///< the end of the input: Ctrl-D on an empty line
  };

  explicit LineReader(const Options& options);
  ~LineReader();

  bool is_terminal() const;
  /// The next line, without its line feed.
  Read read(std::string& line, const std::string& prompt);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null: the input is not a terminal
};

/// Where the lines of a program's users are kept: $XDG_STATE_HOME/baton/NAME, else ~/.local/state/baton/NAME; empty if there
/// is no home. Makes the folder.
std::filesystem::path history_file(const std::string& name);

}  // namespace baton
