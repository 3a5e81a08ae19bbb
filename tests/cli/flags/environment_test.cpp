#include "cli/flags/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "core/log.h"
#include "support/source_folder.h"

namespace baton {
namespace {

/// A program with one command that has the model flags and a port.
struct ServeProgram {
  ModelFlags options;
  int port = 8000;
  CLI::App app{"test", "baton"};
  CLI::App* command;

  ServeProgram() : command(app.add_subcommand("serve", "Serves")) {
    command->allow_extras();
    add_model_options(*command, options);
    command->add_option("--port", port)->check(CLI::Range(0, 65535));
    name_environment_variables(*command);
  }

  Result<EnvironmentFlags> bind(const std::vector<std::string>& given, const Variables& variables) {
    return bind_environment(app, *command, given, variables);
  }
};

/// The warnings about variables.
std::vector<std::string> warnings(const Variables& variables) { return ServeProgram().bind({}, variables).value().warnings; }

TEST(Environment, variables_are_those_of_baton_that_have_a_value) {
  const char* const environment[] = {"HOME=/root", "BATON_PORT=1=2", "BATON_API_KEY=", "BATON_", "BATON_DTYPE=auto", nullptr};
  EXPECT_EQ(variables_of(environment), (Variables{{"BATON_PORT", "1=2"}, {"BATON_DTYPE", "auto"}}));
}

TEST(Environment, each_name_of_a_flag_is_a_variable) {
  const Variables one = {{"BATON_MAMBA_SSM_CACHE_DTYPE", "bfloat16"}};
  ServeProgram program;
  const EnvironmentFlags flags = program.bind({"--port", "1"}, one).value();
  EXPECT_EQ(flags.variables, (Variables{{"--state-cache-dtype", "BATON_MAMBA_SSM_CACHE_DTYPE"}}));
  EXPECT_TRUE(flags.warnings.empty());
  EXPECT_EQ(program.command->get_option("--state-cache-dtype")->get_envname(), "BATON_MAMBA_SSM_CACHE_DTYPE");
  for (const char* word : {"--state-cache-dtype=float32", "--mamba-ssm-cache-dtype"})
    EXPECT_TRUE(ServeProgram().bind({word, "float32"}, one).value().variables.empty()) << word << ": the command line wins";
  EXPECT_TRUE(ServeProgram().bind({"demo"}, {{"BATON_MODEL", "x"}}).value().variables.empty());
  EXPECT_EQ(ServeProgram().bind({"--port", "1"}, {{"BATON_MODEL", "x"}}).value().variables.size(), 1u);
}

TEST(Environment, two_variables_of_one_flag_must_not_contradict_each_other) {
  Variables both = {{"BATON_MAMBA_SSM_CACHE_DTYPE", "bfloat16"}, {"BATON_STATE_CACHE_DTYPE", "float32"}};
  const auto refused = ServeProgram().bind({}, both);
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message,
      "BATON_STATE_CACHE_DTYPE and BATON_MAMBA_SSM_CACHE_DTYPE are two names of one flag and have different values; set one");
  EXPECT_TRUE(ServeProgram().bind({"--state-cache-dtype", "auto"}, both)) << "neither counts";
  both["BATON_STATE_CACHE_DTYPE"] = "bfloat16";
  EXPECT_TRUE(ServeProgram().bind({}, both));
}

TEST(Environment, the_negative_name_of_a_switch_turns_it_off) {
  const auto flags = ServeProgram().bind({}, {{"BATON_NO_ENABLE_PREFIX_CACHING", "1"}}).value();
  EXPECT_EQ(flags.words, (std::vector<std::string>{"--no-enable-prefix-caching=1"}));
  ServeProgram program;
  ASSERT_TRUE(program.options.enable_prefix_caching);
  program.app.parse(std::vector<std::string>{flags.words[0], "serve"});  // the parser takes words from the end
  EXPECT_FALSE(program.options.enable_prefix_caching);
  EXPECT_TRUE(
      ServeProgram().bind({"--enable-prefix-caching"}, {{"BATON_NO_ENABLE_PREFIX_CACHING", "1"}}).value().words.empty());
}

TEST(Environment, a_name_that_no_flag_has_is_named_with_the_nearest) {
  EXPECT_EQ(
      warnings({{"BATON_MAX_NUM_SEQ", "4"}}),
      (std::vector<std::string>{"variable=BATON_MAX_NUM_SEQ effect=none reason=\"no flag has this name; the nearest there is: "
                                "BATON_MAX_NUM_SEQS\""}));
  EXPECT_EQ(warnings({{"BATON_HF_OVERRIDES", "{}"}}),
            (std::vector<std::string>{"variable=BATON_HF_OVERRIDES effect=none reason=\"no flag has this name\""}));
  EXPECT_EQ(warnings({{"BATON_HELP", "1"}, {"BATON_CONFIG", "file"}}).size(), 2u) << "these flags have no variable";
}

TEST(Environment, a_name_of_the_other_program_is_not_called_wrong) {
  EXPECT_TRUE(warnings({{"BATON_SHAPE", "llama-2-7b"},
                        {"BATON_QUESTIONS", "4"},
                        {"BATON_GSP_NUM_GROUPS", "2"},
                        {"BATON_NO_IGNORE_EOS", "true"},
                        {"BATON_PREFIX_FOLDER", "prefixes"}})
                  .empty());
  EXPECT_EQ(warnings({{"BATON_SHAPES", "llama-2-7b"}}).size(), 1u);
  CLI::App app;  // a program without flags
  CLI::App* const command = app.add_subcommand("demo", "Shows");
  ServeProgram program;
  int n_flags = 0;
  for (const CLI::Option* option : program.command->get_options())
    for (std::string name : option->get_lnames()) {
      if (name == "help" || name == "config") continue;
      for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      EXPECT_TRUE(bind_environment(app, *command, {}, {{"BATON_" + name, "1"}}).value().warnings.empty()) << name;
      ++n_flags;
    }
  EXPECT_GT(n_flags, 35);
}

TEST(Environment, a_flag_that_may_be_repeated_takes_each_line) {
  ServeProgram program;
  std::vector<std::string> names;
  program.command->add_option("--served-model-name", names)->delimiter(',')->allow_extra_args(false);
  name_environment_variables(*program.command);
  const auto flags =
      program.bind({}, {{"BATON_PREFIX", "\na=one.txt\nb=two, three.txt\n"}, {"BATON_SERVED_MODEL_NAME", "x,y"}}).value();
  EXPECT_EQ(flags.words, (std::vector<std::string>{"--prefix=a=one.txt", "--prefix=b=two, three.txt"}));
  EXPECT_EQ(program.command->get_option("--prefix")->get_envname(), "") << "the parser would take it for one value";
  EXPECT_EQ(program.command->get_option("--served-model-name")->get_envname(), "BATON_SERVED_MODEL_NAME");
  EXPECT_EQ(flags.variables.count("--prefix"), 1u);
  EXPECT_TRUE(ServeProgram().bind({"--prefix", "c=d"}, {{"BATON_PREFIX", "a=b"}}).value().words.empty());
}

TEST(Environment, what_kubernetes_sets_for_a_service_called_baton_stops_no_server) {
  EXPECT_TRUE(warnings({{"BATON_SERVICE_HOST", "10.0.0.1"},
                        {"BATON_SERVICE_PORT", "80"},
                        {"BATON_SERVICE_PORT_HTTP", "80"},
                        {"BATON_PORT_8000_TCP", "tcp://10.0.0.1:8000"},
                        {"BATON_PORT_8000_TCP_PROTO", "tcp"},
                        {"BATON_PORT_8000_TCP_PORT", "8000"},
                        {"BATON_PORT_8000_TCP_ADDR", "10.0.0.1"},
                        {"BATON_METRICS_PORT", "tcp://10.0.0.2:80"},
                        {"BATON_METRICS_PORT_80_UDP_ADDR", "10.0.0.2"}})
                  .empty());
  EXPECT_EQ(warnings({{"BATON_PORT_HTTP_TCP", "1"}, {"BATON_METRICS_PORT", "80"}}).size(), 2u);
}

TEST(Environment, a_url_in_place_of_a_port_is_left_out_with_a_warning) {
  const Variables variables = {{"BATON_PORT", "tcp://10.0.0.1:8000"}};
  ServeProgram program;
  const EnvironmentFlags flags = program.bind({}, variables).value();
  EXPECT_TRUE(flags.variables.empty());
  EXPECT_EQ(program.command->get_option("--port")->get_envname(), "");
  EXPECT_EQ(flags.warnings,
            (std::vector<std::string>{
                "variable=BATON_PORT value=tcp://10.0.0.1:8000 effect=none reason=\"not a port: Kubernetes sets "
                "such a value for a service of this name; --port gives the port\""}));
  EXPECT_TRUE(ServeProgram().bind({"--port", "80"}, variables).value().warnings.empty()) << "the command line gives the port";
  EXPECT_EQ(ServeProgram().bind({}, {{"BATON_PORT", "80"}}).value().variables.count("--port"), 1u);
}

/// Adds the variables that a text reads, in C++, Python, CMake or a shell.
void add_variables_read_by(const std::string& text, bool is_cmake, std::set<std::string>& read) {
  constexpr std::array kBefore = {"getenv(\"", "environ.get(\"", "environ[\"", "$ENV{", "$", "${"};
  for (std::size_t at = text.find("BATON_"); at != std::string::npos; at = text.find("BATON_", at + 1)) {
    const std::string_view before = std::string_view(text).substr(0, at);
    const std::size_t n_known = is_cmake ? 4 : kBefore.size();  // a name in ${} is CMake's own there
    if (std::none_of(kBefore.begin(), kBefore.begin() + n_known, [&](const char* known) { return before.ends_with(known); }))
      continue;
    read.insert(text.substr(at, text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", at) - at));
  }
}

/// The variables that sources and scripts read.
std::set<std::string> variables_read() {
  std::set<std::string> read;
  for (const char* folder : {"src", "tests", "bench", "tools", "python", "packaging", "CMakeLists.txt"}) {
    std::vector<std::filesystem::path> files = {test::source_folder() / folder};
    if (std::filesystem::is_directory(files[0])) {
      const std::filesystem::recursive_directory_iterator entries(files[0]);
      files.assign(begin(entries), end(entries));
    }
    for (const std::filesystem::path& path : files) {
      const std::string kind = path.extension().string();
      const bool is_cmake = kind == ".cmake" || kind == ".txt" || kind == ".in";
      if (std::filesystem::is_directory(path) ||
          (!is_cmake && !std::set<std::string>{"", ".cpp", ".h", ".cu", ".cuh", ".py", ".sh"}.contains(kind)))
        continue;
      std::ifstream file(path, std::ios::binary);
      add_variables_read_by({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, is_cmake, read);
    }
  }
  return read;
}

TEST(Environment, variables_of_programs_tests_and_tools_are_known) {
  const std::set<std::string> read = variables_read();
  for (const char* name : {"BATON_CUDA_ARCH", "BATON_CPU_ISA", "BATON_MODULE_PATH", "BATON_REQUIRE", "BATON_BINARY",
                           "BATON_UNDER", "BATON_WERROR"})
    EXPECT_TRUE(read.contains(name)) << name << ": the search does not find it";
  const std::set<std::string> of_flags = {"BATON_API_KEY"};  // read to find that they are empty
  for (const std::string& name : read)
    EXPECT_TRUE(is_other_variable(name) || of_flags.contains(name))
        << name << " is read, and cli/flags/environment.cpp does not know it";
  EXPECT_TRUE(is_other_variable("BATON_RANK_TOKEN"));
  EXPECT_FALSE(is_other_variable("BATON_CPU_ISAS"));
  EXPECT_FALSE(is_other_variable("BATON_TESTS"));
}

/// Sets variables for as long as it lives.
class SetVariables {
 public:
  explicit SetVariables(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~SetVariables() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  SetVariables(const SetVariables&) = delete;
  SetVariables& operator=(const SetVariables&) = delete;

 private:
  Variables variables_;
};

/// What `serve`, a command with the model flags, sees of `words` and of the environment, and what it prints.
struct ServeRun {
  ModelFlags options;
  int port = 8000;
  std::string errors;
  int code = 0;

  explicit ServeRun(std::vector<std::string> words) {
    Commands commands("baton", "Serves.");
    commands.add(
        "serve", "Serves",
        [&](CLI::App& sub) {
          add_model_options(sub, options);
          sub.add_option("--port", port)->check(CLI::Range(0, 65535));
        },
        [] { return 0; });
    words.insert(words.begin(), {"program", "serve"});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    testing::internal::CaptureStderr();
    code = commands.run(static_cast<int>(pointers.size()), pointers.data());
    errors = testing::internal::GetCapturedStderr();
  }
};

TEST(Environment, commands_take_flags_from_it) {
  const SetVariables set(Variables{{"BATON_MAMBA_SSM_CACHE_DTYPE", "bfloat16"},
                                   {"BATON_NO_ENABLE_PREFIX_CACHING", "true"},
                                   {"BATON_PORT", "tcp://10.0.0.1:8000"},
                                   {"BATON_MAX_NUM_SEQ", "4"}});
  const ServeRun run({"demo"});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.options.state_cache_dtype, "bfloat16");
  EXPECT_FALSE(run.options.enable_prefix_caching);
  EXPECT_EQ(run.port, 8000);
  EXPECT_NE(run.errors.find("variable=BATON_PORT value=tcp://10.0.0.1:8000 effect=none"), std::string::npos) << run.errors;
  EXPECT_NE(run.errors.find("the nearest there is: BATON_MAX_NUM_SEQS"), std::string::npos) << run.errors;
  EXPECT_EQ(ServeRun({"demo", "--state-cache-dtype", "float32"}).options.state_cache_dtype, "float32");
  EXPECT_TRUE(ServeRun({"demo", "--enable-prefix-caching"}).options.enable_prefix_caching);
}

TEST(Environment, only_the_command_that_runs_reads_it) {
  const SetVariables set(Variables{{"BATON_MODE", "fast"}, {"BATON_PORT", "tcp://10.0.0.1:8000"}, {"BATON_COUNT", "2"}});
  std::string mode;
  int port = 0;
  int count = 0;  // of both commands
  Commands commands("baton", "Serves.");
  const auto add = [&](const char* name, std::set<std::string> modes) {
    commands.add(
        name, "Serves",
        [&](CLI::App& sub) {
          sub.add_option("--mode", mode)->check(CLI::IsMember(std::move(modes)));
          sub.add_option("--port", port)->check(CLI::Range(0, 65535));
          sub.add_option("--count", count);
        },
        [] { return 0; });
  };
  add("serve", {"fast", "slow"});
  add("simulate", {"exact"});
  const auto run = [&](std::vector<std::string> words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return commands.run(static_cast<int>(pointers.size()), pointers.data());
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"baton", "serve", "--count", "1"}), 0);
  EXPECT_EQ(mode, "fast");
  EXPECT_EQ(count, 1);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("variable=BATON_PORT"), std::string::npos) << errors;
}

TEST(Environment, without_a_command_none_is_read) {
  const SetVariables set(Variables{{"BATON_PORT", "many"}});
  Commands commands("baton", "Serves.");
  int port = 0;
  commands.add(
      "serve", "Serves", [&](CLI::App& sub) { sub.add_option("--port", port); }, [] { return 0; });
  std::array<std::string, 2> words{"baton", "--help"};
  std::array<char*, 2> pointers{words[0].data(), words[1].data()};
  testing::internal::CaptureStdout();
  EXPECT_EQ(commands.run(2, pointers.data()), 0);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("serve"), std::string::npos);
}

TEST(Environment, a_value_that_is_refused_is_named_with_its_variable) {
  const SetVariables set(Variables{{"BATON_MAX_NUM_SEQS", "many"}});
  const ServeRun run({});
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(run.errors.starts_with("--max-num-seqs: 'many' is not a number")) << run.errors;
  EXPECT_NE(run.errors.find("(from BATON_MAX_NUM_SEQS)\n"), std::string::npos) << run.errors;
  EXPECT_EQ(ServeRun({"--max-num-seqs", "few"}).errors.find("BATON_"), std::string::npos);
  const SetVariables switched(Variables{{"BATON_ENFORCE_EAGER", "maybe"}});
  const std::string errors = ServeRun({"--max-num-seqs", "4"}).errors;
  EXPECT_NE(errors.find("--enforce-eager = maybe (from BATON_ENFORCE_EAGER)\n"), std::string::npos) << errors;
}

TEST(Environment, a_value_that_is_refused_when_it_is_read_is_named_with_its_variable_too) {
  const auto errors_with = [](const std::string& name, const char* value) {
    const SetVariables set(Variables{{name, value}});
    const ServeRun run({"--port", "1"});
    EXPECT_EQ(run.code, 2);
    return run.errors;
  };
  const std::vector<std::pair<std::string, const char*>> refused = {{"BATON_KV_CACHE_MEMORY_BYTES", "12Q"},
                                                                    {"BATON_SPECULATIVE_CONFIG", "{"},
                                                                    {"BATON_SPECULATIVE_CONFIG", "[]"},
                                                                    {"BATON_SPECULATIVE_CONFIG", R"({"method": "x"})"}};
  for (const auto& [name, value] : refused) {
    const std::string errors = errors_with(name, value);
    EXPECT_NE(errors.find(" (from " + name + ")\n"), std::string::npos) << errors;
  }
  const SetVariables set(Variables{{"BATON_MAX_NUM_SEQS", "4"}});
  EXPECT_EQ(ServeRun({"--speculative-config", "{"}).errors.find("BATON_"), std::string::npos);
}

TEST(Environment, a_command_that_fails_later_names_the_variables_of_its_flags) {
  const SetVariables set(Variables{{"BATON_PORT", "4"}, {"BATON_NAME", "x"}});
  const auto errors_of = [](std::vector<std::string> words, int code) {
    Commands commands("baton", "Serves.");
    int port = 0;
    std::string name;
    commands.add(
        "serve", "Serves",
        [&](CLI::App& sub) {
          sub.add_option("--port", port);
          sub.add_option("--name", name);
        },
        [&] { return code; });
    words.insert(words.begin(), {"baton", "serve"});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(commands.run(static_cast<int>(pointers.size()), pointers.data()), code);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(errors_of({}, 1), "baton serve: the environment sets --name (from BATON_NAME), --port (from BATON_PORT)\n");
  EXPECT_EQ(errors_of({"--name", "y"}, 2), "baton serve: the environment sets --port (from BATON_PORT)\n");
  EXPECT_EQ(errors_of({"--name", "y", "--port", "5"}, 1), "");
  EXPECT_EQ(errors_of({}, 0), "");
}

TEST(Environment, lists_come_from_variables_as_from_the_command_line) {
  const SetVariables set(Variables{{"BATON_PREFIX", "a=one.txt\nb=two.txt"}, {"BATON_NAMES", "x,y"}});
  Commands commands("baton", "Serves.");
  ModelFlags options;
  std::vector<std::string> names;
  commands.add(
      "serve", "Serves",
      [&](CLI::App& sub) {
        add_model_options(sub, options);
        sub.add_option("--names", names)->delimiter(',');
      },
      [] { return 0; });
  std::array<std::string, 2> words{"baton", "serve"};
  std::array<char*, 2> pointers{words[0].data(), words[1].data()};
  EXPECT_EQ(commands.run(2, pointers.data()), 0);
  EXPECT_EQ(options.prefixes, (std::vector<std::string>{"a=one.txt", "b=two.txt"}));
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(commands.command_line(), "baton serve") << "a variable may be a secret";
}

TEST(Environment, the_log_level_counts_for_commands_without_that_flag) {
  const auto errors_of = [](const char* level) {
    const SetVariables set(Variables{{"BATON_LOG_LEVEL", level}, {"BATON_NONSENSE", "1"}});
    Commands commands("baton", "Serves.");
    commands.add(
        "info", "Tells", [](CLI::App&) {}, [] { return 0; });
    std::array<std::string, 2> words{"baton", "info"};
    std::array<char*, 2> pointers{words[0].data(), words[1].data()};
    testing::internal::CaptureStderr();
    EXPECT_EQ(commands.run(2, pointers.data()), 0);
    log::set_level(log::Level::info);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(errors_of("error"), "");
  EXPECT_NE(errors_of("warning").find("variable=BATON_NONSENSE"), std::string::npos);
  const std::string errors = errors_of("loud");
  EXPECT_NE(errors.find("variable=BATON_LOG_LEVEL value=loud effect=none"), std::string::npos) << errors;
  EXPECT_NE(errors.find("variable=BATON_NONSENSE"), std::string::npos);
}

TEST(Environment, it_wins_over_the_file_and_loses_to_the_command_line) {
  const std::string file = ::testing::TempDir() + "environment_test.yaml";
  std::ofstream(file)
      << "model: of/file\nmax_num_seqs: 9\nblock-size: 32\nmamba-ssm-cache-dtype: float32\nprefix: [a=b, c=d]\n";
  const SetVariables set(Variables{{"BATON_MAX_NUM_SEQS", "33"},
                                   {"BATON_BLOCK_SIZE", "64"},
                                   {"BATON_STATE_CACHE_DTYPE", "bfloat16"},
                                   {"BATON_MODEL", "of/environment"},
                                   {"BATON_PREFIX", "e=f"}});
  const ServeRun run({"--config", file, "--block-size", "128"});
  EXPECT_EQ(run.code, 0) << run.errors;
  EXPECT_EQ(run.options.max_num_seqs, 33);
  EXPECT_EQ(run.options.block_len, 128);
  EXPECT_EQ(run.options.state_cache_dtype, "bfloat16");
  EXPECT_EQ(run.options.model, "of/environment");
  EXPECT_EQ(run.options.prefixes, (std::vector<std::string>{"e=f"}));
}

}  // namespace
}  // namespace baton
