/// Reading, writing and mapping of io/file.h.
#include "io/file.h"

#include <cstring>

#include <gtest/gtest.h>

namespace baton {
namespace {

class File : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_file_test";
};

TEST_F(File, reads_back_what_it_wrote) {
  const std::string bytes("a\0b\n", 4);
  ASSERT_TRUE(write_file(folder_ / "x", bytes));
  EXPECT_EQ(read_file(folder_ / "x").value(), bytes);
  ASSERT_TRUE(write_file(folder_ / "x", ""));
  EXPECT_EQ(read_file(folder_ / "x").value(), "");
}

TEST_F(File, writing_leaves_no_other_file_behind) {
  ASSERT_TRUE(write_file(folder_ / "x", "1"));
  std::filesystem::create_directory(folder_ / "taken");
  EXPECT_FALSE(write_file(folder_ / "taken", "2"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(File, says_before_it_writes_that_it_cannot) {
  std::filesystem::create_directory(folder_ / "taken");
  ASSERT_TRUE(write_file(folder_ / "x", "1"));
  EXPECT_TRUE(check_can_write(folder_ / "x"));
  EXPECT_TRUE(check_can_write(folder_ / "y"));
  EXPECT_EQ(check_can_write(folder_ / "taken").error().message, write_file(folder_ / "taken", "").error().message);
  EXPECT_EQ(check_can_write(folder_ / "absent" / "x").error().code, ErrorCode::not_found);
  EXPECT_EQ(read_file(folder_ / "x").value(), "1");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "it leaves nothing";
}

TEST_F(File, says_why_a_file_cannot_be_read) {
  EXPECT_EQ(read_file(folder_ / "absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(read_file(folder_ / "absent").error().message, (folder_ / "absent").string() + " does not exist");
  EXPECT_EQ(read_file(folder_).error().message, folder_.string() + " is a folder, not a file");
  EXPECT_EQ(read_file("/dev/null").error().message, "/dev/null is a device, not a file");
  EXPECT_EQ(write_file(folder_ / "absent" / "x", "").error().code, ErrorCode::not_found);
  EXPECT_EQ(MappedFile::open(folder_ / "absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(MappedFile::open(folder_).error().code, ErrorCode::io);
}

TEST_F(File, refuses_to_read_more_than_the_limit) {
  ASSERT_TRUE(write_file(folder_ / "large", ""));
  std::filesystem::resize_file(folder_ / "large", kMaxReadFileBytes + 1);
  EXPECT_EQ(read_file(folder_ / "large").error().code, ErrorCode::too_large);
}

TEST_F(File, a_mapping_shows_the_bytes_and_outlives_moves_and_dropped_pages) {
  std::string bytes(20'000, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  ASSERT_TRUE(write_file(folder_ / "x", bytes));
  auto opened = MappedFile::open(folder_ / "x");
  ASSERT_TRUE(opened);
  MappedFile moved = std::move(*opened);
  const auto is_same = [&] {
    return moved.bytes().size() == bytes.size() && std::memcmp(moved.bytes().data(), bytes.data(), bytes.size()) == 0;
  };
  EXPECT_TRUE(is_same());
  moved.drop_pages(moved.bytes());
  moved.drop_pages(moved.bytes().subspan(100, 10));
  moved.drop_pages(moved.bytes().subspan(20'000));
  EXPECT_TRUE(is_same());
  MappedFile other = MappedFile::open(folder_ / "x").value();
  other = std::move(moved);
  EXPECT_EQ(other.bytes().size(), bytes.size());
}

TEST_F(File, an_empty_file_maps_to_no_bytes) {
  ASSERT_TRUE(write_file(folder_ / "x", ""));
  EXPECT_TRUE(MappedFile::open(folder_ / "x").value().bytes().empty());
}

}  // namespace
}  // namespace baton
