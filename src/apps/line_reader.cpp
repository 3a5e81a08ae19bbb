/// The only user of libedit.
#include "apps/line_reader.h"

#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <system_error>
#include <vector>

#include <histedit.h>

#include "core/check.h"

namespace baton {
namespace {

constexpr int kHistoryLines = 1000;
constexpr const char* kInterruptName = "baton-interrupt";
constexpr const char* kCompleteName = "baton-complete";

/// Letters beyond ASCII are edited as letters only where the locale says that text is UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::filesystem::path history_file;
  std::span<const std::string> commands;
  std::string prompt;
  bool was_interrupted = false;

  static Editor& of(EditLine* line) {
    void* data = nullptr;
    el_get(line, EL_CLIENTDATA, &data);
    return *static_cast<Editor*>(data);
  }
  static char* prompt_of(EditLine* line) { return of(line).prompt.data(); }
  static unsigned char interrupt(EditLine* line, int) {
    of(line).was_interrupted = true;
    return CC_NEWLINE;
  }
  static unsigned char complete(EditLine* line, int);

  explicit Editor(const Options& options) : history_file(options.history_file), commands(options.commands) {
    use_utf8();
    line = el_init("baton", stdin, stderr, stderr);
    history = history_init();
    check(line != nullptr && history != nullptr, "LineReader: libedit has no memory");
    el_set(line, EL_CLIENTDATA, this);
    el_set(line, EL_PROMPT, &Editor::prompt_of);
    el_set(line, EL_EDITOR, "emacs");
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_ADDFN, kInterruptName, "Drop the line", &Editor::interrupt);
    el_set(line, EL_ADDFN, kCompleteName, "Complete a command", &Editor::complete);
    el_source(line, nullptr);
    // While a line is edited, Ctrl-C is a key: a signal would not end the reading.
    el_set(line, EL_SETTY, "-d", "-isig", nullptr);
    el_set(line, EL_BIND, "^C", kInterruptName, nullptr);
    el_set(line, EL_BIND, "^I", kCompleteName, nullptr);
    el_set(line, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;
  ~Editor() {
    el_end(line);
    history_end(history);
  }

  /// Keeps a line for later, in the file at once: the program may be killed.
  void remember(const std::string& text) {
    HistEvent event;
    ::history(history, &event, H_ENTER, text.c_str());
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
  }
};

/// Adds what all commands have in common that begin as the line does, and a space where there is one.
unsigned char LineReader::Editor::complete(EditLine* line, int) {
  const Editor& editor = of(line);
  const LineInfo* info = el_line(line);
  const std::string_view typed(info->buffer, static_cast<std::size_t>(info->cursor - info->buffer));
  if (typed.empty() || info->cursor != info->lastchar) return CC_ERROR;
  std::vector<std::string_view> found;
  for (const std::string& command : editor.commands)
    if (command.starts_with(typed)) found.emplace_back(command);
  if (found.empty()) return CC_ERROR;
  std::string_view common = found.front();
  for (const std::string_view command : found) {
    std::size_t n = 0;
    while (n < std::min(common.size(), command.size()) && common[n] == command[n]) ++n;
    common = common.substr(0, n);
  }
  std::string more(common.substr(typed.size()));
  if (found.size() == 1) more += ' ';
  if (more.empty()) return CC_REFRESH_BEEP;
  return el_insertstr(line, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

LineReader::LineReader(const Options& options) {
  if (isatty(STDIN_FILENO) != 0) editor_ = std::make_unique<Editor>(options);
}

LineReader::~LineReader() = default;

bool LineReader::is_terminal() const { return editor_ != nullptr; }

LineReader::Read LineReader::read(std::string& line, const std::string& prompt) {
  if (!editor_) return std::getline(std::cin, line) ? Read::line : Read::end;
  editor_->prompt = prompt;
  editor_->was_interrupted = false;
  int n = 0;
  // The library would do so behind the prompt: a Ctrl-D in between would be lost.
  el_set(editor_->line, EL_PREP_TERM, 1);
  const char* text = el_gets(editor_->line, &n);
  if (editor_->was_interrupted) {
    std::fputc('\n', stderr);
    return Read::interrupted;
  }
  if (text == nullptr || n <= 0) return Read::end;
  line.assign(text, static_cast<std::size_t>(n));
  if (line.ends_with('\n')) line.pop_back();
  if (line.find_first_not_of(" \t\r") != std::string::npos) editor_->remember(line);
  return Read::line;
}

std::filesystem::path history_file(const std::string& name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  folder /= "baton";
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  return failed ? std::filesystem::path() : folder / name;
}

}  // namespace baton
