#include "cli/commands.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace baton {
namespace {

/// A program with two subcommands, and what running it did.
struct Program {
  explicit Program(const std::string& name) : commands(name, "Measures.") {
    commands.add(
        "decode", "Decodes", [&](CLI::App& sub) { sub.add_option("--runs", runs); }, [&] { return 7; });
    commands.add(
        "demo", "Shows", [](CLI::App&) {}, [] { return 0; });
  }

  /// Returns the exit code; `output` and `errors` are what it wrote.
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = commands.run(static_cast<int>(pointers.size()), pointers.data());
    output = testing::internal::GetCapturedStdout();
    errors = testing::internal::GetCapturedStderr();
    return code;
  }

  int runs = 0;
  Commands commands;
  std::string output;
  std::string errors;
};

TEST(Commands, run_with_their_flags_and_know_the_line) {
  Program program("baton bench");
  EXPECT_EQ(program.run({"decode", "--runs", "3"}), 7);
  EXPECT_EQ(program.runs, 3);
  EXPECT_EQ(program.commands.command_line(), "baton bench decode --runs 3");
}

TEST(Commands, a_file_of_flags_is_part_of_the_line) {
  const std::string file = ::testing::TempDir() + "commands.yaml";
  std::ofstream(file) << "runs: 4\n";
  Program program("baton");
  EXPECT_EQ(program.run({"decode", "--runs", "5"}), 7);
  EXPECT_EQ(program.runs, 5);
  Program other("baton");
  EXPECT_EQ(other.run({"decode", "--config", file}), 2) << "decode has no --config";
  EXPECT_EQ(other.commands.command_line(), "baton decode --runs 4 --config " + file);
}

/// A program with a subcommand that has a MODEL and a file of flags.
struct ServingProgram {
  ServingProgram() {
    commands.add(
        "serve", "Serves",
        [&](CLI::App& sub) {
          sub.add_option("MODEL,--model", model)->take_last();
          sub.add_option("--port", port)->take_last();
          sub.add_option("--config", file);
        },
        [] { return 0; });
  }

  /// What is said on standard error.
  std::string run(const std::vector<std::string>& words, int code, const char* text) {
    const std::string path = ::testing::TempDir() + "serving.yaml";
    std::ofstream(path) << text;
    std::vector<std::string> all = {"program", "serve"};
    for (const std::string& word : words) all.push_back(word == "FILE" ? path : word);
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(commands.run(static_cast<int>(pointers.size()), pointers.data()), code);
    std::string said = testing::internal::GetCapturedStderr();
    if (const auto at = said.find(path); at != std::string::npos) said.replace(at, path.size(), "FILE");
    return said;
  }

  std::string model, file;
  int port = 1;
  Commands commands{"baton", "Measures."};
};

TEST(Commands, the_model_of_a_file_counts_where_no_word_of_the_line_is_one) {
  const std::vector<std::vector<std::string>> kLines = {{"mine", "--config", "FILE"},
                                                        {"--config", "FILE", "mine"},
                                                        {"--port", "2", "mine", "--config=FILE"},
                                                        {"--config", "FILE", "--model=mine"}};
  for (auto line : kLines) {
    ServingProgram program;
    if (line.back() == "--config=FILE") line.back() = "--config=" + ::testing::TempDir() + "serving.yaml";
    EXPECT_EQ(program.run(line, 0, "model: of/file\nport: 3\n"), "");
    EXPECT_EQ(program.model, "mine");
  }
  ServingProgram program;
  EXPECT_EQ(program.run({"--config", "FILE"}, 0, "model: of/file\nport: 3\n"), "");
  EXPECT_EQ(program.model, "of/file");
  EXPECT_EQ(program.port, 3);
}

TEST(Commands, an_error_of_a_file_names_it) {
  EXPECT_NE(ServingProgram().run({"--config", "FILE"}, 2, "port: x\n").find("--port"), std::string::npos);
  EXPECT_NE(ServingProgram().run({"--config", "FILE"}, 2, "port: x\n").find(" (from FILE)"), std::string::npos);
  EXPECT_NE(ServingProgram().run({"--config", "FILE"}, 2, "prot: 4\n").find("unknown flag --prot; "), std::string::npos);
  EXPECT_NE(ServingProgram().run({"--config", "FILE"}, 2, "prot: 4\n").find(" (from FILE)"), std::string::npos);
  EXPECT_EQ(ServingProgram().run({"--config", "FILE", "--port", "x"}, 2, "port: 4\n").find("FILE"), std::string::npos);
}

TEST(Commands, a_missing_argument_has_the_name_that_the_help_has) {
  std::string out, scheme;
  Commands commands("baton", "Measures.");
  commands.add(
      "write", "Writes",
      [&](CLI::App& sub) {
        sub.add_option("OUT,--out", out)->required();
        sub.add_option("--scheme", scheme)->required();
      },
      [] { return 0; });
  const auto errors = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"program", "write"});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(commands.run(static_cast<int>(pointers.size()), pointers.data()), 2);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_TRUE(errors({"--scheme", "fp8"}).starts_with("OUT is required\n"));
  EXPECT_TRUE(errors({"folder"}).starts_with("--scheme is required\n"));
}

TEST(Commands, the_program_is_called_what_it_is_started_by) {
  Program program("baton bench");
  EXPECT_EQ(program.run({"decode", "--help"}), 0);
  EXPECT_NE(program.output.find("Usage: baton bench decode [OPTIONS]"), std::string::npos) << program.output;
  EXPECT_EQ(program.run({"--help"}), 0);
  EXPECT_NE(program.output.find("Usage: baton bench [OPTIONS] SUBCOMMAND"), std::string::npos) << program.output;
  EXPECT_EQ(program.output.find("rank"), std::string::npos) << "a hidden subcommand is listed: " << program.output;
}

TEST(Commands, wrong_words_are_named_with_the_nearest) {
  Program program("baton bench");
  EXPECT_EQ(program.run({"decod"}), 2);
  EXPECT_EQ(program.errors, "baton: unknown subcommand 'bench decod'; did you mean 'decode'? there are: decode, demo\n");
  EXPECT_EQ(program.run({"decode", "--rums", "1"}), 2);
  EXPECT_EQ(program.errors, "baton bench decode: unknown flag --rums; the nearest there is: --runs\n");
  Program plain("baton");
  EXPECT_EQ(plain.run({"fly"}), 2);
  EXPECT_EQ(plain.errors, "baton: unknown subcommand 'fly'; there are: decode, demo\n");
  EXPECT_EQ(plain.run({}), 2);
}

TEST(Commands, a_rank_is_not_started_by_hand_as_rank_0) {
  Program program("baton bench");
  EXPECT_EQ(program.run({"rank"}), 2);
  EXPECT_NE(program.errors.find("--rank must be from 1"), std::string::npos) << program.errors;
}

}  // namespace
}  // namespace baton
