/// The text side of a folder: which template, and which sampling defaults (load/load_text.h).
#include "load/load_text.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace baton {
namespace {

namespace fs = std::filesystem;

/// A copy of the files of the demo model that load_text reads.
class LoadText : public ::testing::Test {
 protected:
  LoadText() {
    fs::remove_all(files_.folder);
    fs::create_directories(files_.folder);
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
      if (const fs::path from = shared_folder("models/demo").value() / name; fs::exists(from)) fs::copy(from, files_.folder);
  }
  ~LoadText() override { fs::remove_all(files_.folder); }
  fs::path write(const char* name, const char* text) const {
    std::ofstream(files_.folder / name) << text;
    return files_.folder / name;
  }

  const ModelFiles files_{"copy", fs::path(::testing::TempDir()) / "baton_load_text_test", false};
};

TEST_F(LoadText, sampling_defaults_are_those_of_the_generation_config) {
  const auto without = load_text(files_, {});
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_FALSE(without->defaults.temperature);
  EXPECT_FALSE(without->defaults.top_k);
  write("generation_config.json",
        R"({"do_sample": true, "temperature": 0.5, "top_p": 0.25, "top_k": -1, "repetition_penalty": 2})");
  const auto with = load_text(files_, {});
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->defaults.temperature, 0.5f);
  EXPECT_EQ(with->defaults.top_p, 0.25f);
  EXPECT_EQ(with->defaults.top_k, 0) << "-1 is off";
  EXPECT_EQ(with->defaults.repetition_penalty, 2.0f);
  ModelOptions options;
  options.generation_config = "vllm";
  EXPECT_FALSE(load_text(files_, options)->defaults.temperature);
  write("generation_config.json", R"({"do_sample": false, "temperature": 0.5})");
  EXPECT_EQ(load_text(files_, {})->defaults.temperature, 0.0f) << "greedy, whatever the temperature";
}

TEST_F(LoadText, a_template_file_takes_the_place_of_the_models) {
  const auto own = load_text(files_, {});
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_TRUE(own->chat_template);
  EXPECT_GT(own->n_vocab, 0);
  ModelOptions options;
  options.chat_template = write("other.jinja", "{{ messages[0].content }}").string();
  EXPECT_TRUE(load_text(files_, options)->chat_template);
  options.chat_template = write("broken.jinja", "{% if %}").string();
  EXPECT_FALSE(load_text(files_, options));
  options.chat_template = (files_.folder / "absent.jinja").string();
  EXPECT_FALSE(load_text(files_, options));
}

}  // namespace
}  // namespace baton
