/// The main of every test program. A program holds the tests of one folder; each run is of one file, so that nothing a file leaves
/// after (environment, limits, threads) meets another's tests:
///
///     server_http_parser_test [GoogleTest's flags]                  the tests of tests/server/http/parser_test.cpp, through a link
///     server_tests --file=http_parser_test [GoogleTest's flags]     the same without the link
///     server_tests [GoogleTest's flags]                             all tests of the folder, in one process
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileFlag = "--file=";
constexpr std::string_view kOfFolder = "_tests";

/// The folder below tests/ whose tests the program holds: server for server_tests; nothing for a program of one file.
std::string folder_of_program() {
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).filename().string();
  return program.ends_with(kOfFolder) ? program.substr(0, program.size() - kOfFolder.size()) : "";
}

/// The file that the name of a link asks for: http_parser_test for a server_http_parser_test that leads to server_tests.
std::optional<std::string> file_of_link(const char* called) {
  const std::string name = fs::path(called).filename().string();
  const std::string folder = folder_of_program();
  const bool is_link = !folder.empty() && name != folder + std::string(kOfFolder) && name.starts_with(folder + "_");
  return is_link ? std::optional(name.substr(folder.size() + 1)) : std::nullopt;
}

/// The name of a file of the program: http_parser_test for .../tests/server/http/parser_test.cpp.
std::string name_of(const fs::path& source) {
  const std::string path = fs::path(source).replace_extension().string();
  const std::string folder = "/tests/" + folder_of_program() + "/";
  const std::size_t begin = path.rfind(folder);
  std::string name = begin == std::string::npos ? source.stem().string() : path.substr(begin + folder.size());
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

/// Takes --file=STEM out of the arguments.
std::optional<std::string> take_file(int& argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFileFlag)) continue;
    for (int next = i; next < argc; ++next) argv[next] = argv[next + 1];
    --argc;
    return std::string(argument.substr(kFileFlag.size()));
  }
  return std::nullopt;
}

/// The tests that a run of one file leaves out, as a filter's names joined by colons.
struct FileTests {
  std::string others;
  bool has_own = false;
  std::string wrong;  ///< a test that no run of a file has, because a header defines it or a second file its name
};
FileTests tests_of(const std::string& file) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  FileTests tests;
  std::set<std::string> own, others;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const fs::path source = test.file();
      if (!source.string().ends_with("_test.cpp"))
        tests.wrong = name + " of " + source.string() + " is of no file that ctest runs (*_test.cpp)";
      if (name_of(source) == file) {
        own.insert(name);
      } else {
        others.insert(name);
        tests.others += name + ":";
      }
    }
  }
  tests.has_own = !own.empty();
  for (const std::string& name : own)
    if (others.contains(name)) tests.wrong = name + " is a test of two files";
  return tests;
}

/// The filter as the user gave it, from the moment on when GoogleTest has applied it: it prints the filter.
class RestoreFilter : public testing::EmptyTestEventListener {
 public:
  explicit RestoreFilter(std::string filter) : filter_(std::move(filter)) {}
  void OnTestProgramStart(const testing::UnitTest&) override { GTEST_FLAG_SET(filter, filter_); }

 private:
  std::string filter_;
};

}  // namespace

int main(int argc, char** argv) {
  std::optional<std::string> file = file_of_link(argv[0]);
  // GoogleTest sees --file first: the processes of its death tests start with the same arguments. It leaves what it does not know.
  testing::InitGoogleTest(&argc, argv);
  if (const auto flag = take_file(argc, argv)) file = flag;
  if (file) {
    const FileTests tests = tests_of(*file);
    if (!tests.has_own || !tests.wrong.empty()) {
      std::fprintf(stderr, "%s: %s\n", argv[0],
                   tests.has_own ? tests.wrong.c_str() : ("no tests of a file " + *file + ".cpp are in this program").c_str());
      return 2;
    }
    const std::string filter = GTEST_FLAG_GET(filter);
    testing::UnitTest::GetInstance()->listeners().Append(new RestoreFilter(filter));
    if (!tests.others.empty())
      GTEST_FLAG_SET(filter, filter + (filter.find('-') == std::string::npos ? "-" : ":") + tests.others);
  }
  return RUN_ALL_TESTS();
}
