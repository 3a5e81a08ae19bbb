/// A program with subcommands: its parser, and the words that choose one of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ranks/rank_place.h"

namespace CLI {
class App;
}

namespace baton {

class RankGroup;

/// The subcommands of a program. What their options write to must outlive this object.
class Commands {
 public:
  /// Adds the flags of a subcommand to its parser.
  using AddOptions = std::function<void(CLI::App&)>;

  /// `name`: "baton", or "baton bench" for a program that one of its subcommands starts. Help texts, messages and
  /// command_line() begin with it.
  Commands(const std::string& name, const std::string& introduction);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  /// Adds a subcommand: its flags, and the function that runs it and returns the exit code.
  void add(const std::string& name, const std::string& help, const AddOptions& add_options, std::function<int()> run);
  /// Adds one that makes an engine, of which several processes may be ranks. `ranks` is the group while it runs.
  void add_ranked(const std::string& name, const std::string& help, const AddOptions& add_options, std::function<int()> run,
                  std::shared_ptr<RankGroup>& ranks);

  /// Runs the subcommand that the arguments of main() name. Returns the exit code of the program: 2 for wrong usage.
  int run(int argc, char** argv);

  /// The program's name and the words after it, with those of a configuration file. Valid while run() runs.
  const std::string& command_line() const { return command_line_; }

 private:
  /// A subcommand and the function that runs it.
  struct Command {
    CLI::App* app;
    std::function<int()> run;
    std::shared_ptr<RankGroup>* ranks = nullptr;  ///< where its options keep the ranks; null: it makes no engine
  };

  int run_words(int argc, char** argv);
  /// Runs the command as rank 0 or alone; a rank > 0 follows rank 0 instead.
  int run_command(const Command& command);

  std::string name_;
  std::unique_ptr<CLI::App> app_;
  std::vector<Command> commands_;
  RankFlags rank_flags_;                ///< of each command that makes an engine
  std::shared_ptr<RankGroup> of_rank_;  ///< of the hidden command `rank`
  std::string command_line_;
};

}  // namespace baton
