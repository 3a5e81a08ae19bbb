/// Listing a folder and waiting for its changes (io/folder_watch.h).
#include "io/folder_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};  // longer than any wait lasts

class FolderWatchTest : public ::testing::Test {
 protected:
  FolderWatchTest() : folder_(fs::temp_directory_path() / ("baton_watch_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "watched");
  }
  ~FolderWatchTest() override { fs::remove_all(folder_); }

  fs::path watched() const { return folder_ / "watched"; }
  static void write(const fs::path& file, std::string_view text) { std::ofstream(file) << text; }
  std::string names() const {
    std::string all;
    const auto files = list_files(watched());
    for (const FolderFile& file : *files) all += file.name + " ";
    return all;
  }
  /// Waits until the condition holds; an event may come too early.
  template <class Holds>
  static bool waits_until(FolderWatch& watch, Holds holds) {
    while (!holds()) watch.wait(kLong);
    return true;
  }

  fs::path folder_;
};

TEST_F(FolderWatchTest, lists_files_by_name_and_no_folders) {
  write(watched() / "b.txt", "b");
  write(watched() / "a.txt", "a");
  fs::create_directory(watched() / "c");
  fs::create_symlink(watched() / "a.txt", watched() / "link.txt");
  fs::create_symlink(watched() / "nowhere", watched() / "lost.txt");
  fs::create_symlink(watched() / "c", watched() / "d");
  EXPECT_EQ(names(), "a.txt b.txt link.txt ");
  EXPECT_EQ(list_files(folder_ / "none").error().code, ErrorCode::not_found);
  EXPECT_EQ(list_files(watched() / "a.txt").error().code, ErrorCode::io);
}

TEST_F(FolderWatchTest, a_stamp_changes_with_the_file_and_with_what_a_link_leads_to) {
  const auto stamp = [&](std::size_t i) { return list_files(watched()).value()[i].stamp; };
  write(watched() / "a.txt", "a");
  write(folder_ / "one", "1");
  write(folder_ / "two", "2");
  fs::create_symlink(folder_ / "one", watched() / "link");
  const FileStamp before = stamp(0);
  EXPECT_EQ(stamp(0), before);
  write(watched() / "a.txt", "ab");
  EXPECT_NE(stamp(0), before);
  const FileStamp link = stamp(1);
  fs::create_symlink(folder_ / "two", folder_ / "new");
  fs::rename(folder_ / "new", watched() / "link");
  EXPECT_NE(stamp(1), link);
}

TEST_F(FolderWatchTest, is_told_of_files_that_come_change_and_go) {
  FolderWatch watch(watched());
  if (!watch.is_told()) GTEST_SKIP() << "this machine has no inotify";
  write(watched() / "a.txt", "a");
  EXPECT_TRUE(waits_until(watch, [&] { return names() == "a.txt "; }));
  fs::rename(watched() / "a.txt", watched() / "b.txt");
  watch.wait(kLong);
  fs::remove(watched() / "b.txt");
  watch.wait(kLong);
  const auto begin = std::chrono::steady_clock::now();
  while (watch.wait(milliseconds(1)), std::chrono::steady_clock::now() - begin < milliseconds(20)) {
  }
  EXPECT_EQ(names(), "");
}

TEST_F(FolderWatchTest, knows_which_process_is_still_writing) {
  FolderWatch watch(watched());
  if (!watch.is_told()) GTEST_SKIP() << "this machine has no inotify";
  std::ofstream half(watched() / "half.txt");
  EXPECT_TRUE(waits_until(watch, [&] { return watch.is_being_written("half.txt"); })) << "made, and not written yet";
  half << "half" << std::flush;
  watch.wait(kLong);
  EXPECT_TRUE(watch.is_being_written("half.txt"));
  half.close();
  EXPECT_TRUE(waits_until(watch, [&] { return !watch.is_being_written("half.txt"); }));
  fs::create_symlink(watched() / "half.txt", watched() / "link.txt");
  watch.wait(kLong);
  EXPECT_FALSE(watch.is_being_written("link.txt"));
}

TEST_F(FolderWatchTest, follows_a_folder_that_is_replaced_or_comes_back) {
  FolderWatch watch(watched());
  if (!watch.is_told()) GTEST_SKIP() << "this machine has no inotify";
  fs::create_directory(folder_ / "next");
  fs::rename(watched(), folder_ / "old");
  fs::rename(folder_ / "next", watched());
  watch.wait(milliseconds(1));
  watch.wait(milliseconds(1));
  write(watched() / "a.txt", "a");
  EXPECT_TRUE(waits_until(watch, [&] { return watch.is_told() && names() == "a.txt "; }));
  fs::remove_all(watched());
  EXPECT_TRUE(waits_until(watch, [&] { return !watch.is_told(); }));
  EXPECT_EQ(list_files(watched()).error().code, ErrorCode::not_found);
  fs::create_directory(watched());
  watch.wait(kLong);  // notices the change and returns at once
  EXPECT_TRUE(watch.is_told());
}

TEST_F(FolderWatchTest, waits_no_longer_when_it_is_woken) {
  FolderWatch watch(watched());
  watch.wake();
  watch.wait(kLong);
  std::thread waker([&] { watch.wake(); });
  watch.wait(kLong);
  waker.join();
}

}  // namespace
}  // namespace baton
