/// Sums of files, against what sha256sum and git hash-object print (io/checksum.h).
#include "io/checksum.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/file.h"

namespace baton {
namespace {

class Checksum : public ::testing::Test {
 protected:
  std::filesystem::path put(const std::string& bytes) const {
    EXPECT_TRUE(write_file(path_, bytes));
    return path_;
  }
  ~Checksum() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ = std::filesystem::path(::testing::TempDir()) / "baton_checksum_test";
};

constexpr const char* kEmptySha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kAbcSha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kEmptyBlob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
constexpr const char* kHelloBlob = "ce013625030ba8dba906f756967f9e9ca394464a";  // "hello\n"

TEST_F(Checksum, is_that_of_sha256sum) {
  EXPECT_EQ(sha256_of_file(put("")).value(), kEmptySha);
  EXPECT_EQ(sha256_of_file(put("abc")).value(), kAbcSha);
  // Longer than one read.
  EXPECT_EQ(sha256_of_file(put(std::string(1'000'000, 'a') + std::string(1'000'000, 'a'))).value(),
            sha256_of_file(put(std::string(2'000'000, 'a'))).value());
  EXPECT_FALSE(sha256_of_file("/no/such/file"));
}

TEST_F(Checksum, is_that_of_git) {
  EXPECT_EQ(git_blob_of_file(put("")).value(), kEmptyBlob);
  EXPECT_EQ(git_blob_of_file(put("hello\n")).value(), kHelloBlob);
  EXPECT_FALSE(git_blob_of_file("/no/such/file"));
}

TEST_F(Checksum, an_etag_that_is_no_sum_says_nothing) {
  const auto path = put("abc");
  EXPECT_TRUE(is_checksum(kAbcSha) && is_checksum(kHelloBlob));
  EXPECT_FALSE(is_checksum("etag-abc") || is_checksum("d41d8cd98f00b204e9800998ecf8427e") || is_checksum(""));
  EXPECT_TRUE(check_against_etag(path, kAbcSha));
  EXPECT_TRUE(check_against_etag(path, "etag-abc"));
  EXPECT_TRUE(check_against_etag(path, "d41d8cd98f00b204e9800998ecf8427e"));
  const auto other = check_against_etag(path, kEmptySha);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::invalid_data);
  EXPECT_NE(other.error().message.find(kAbcSha), std::string::npos) << other.error().message;
  EXPECT_FALSE(check_against_etag(path, kEmptyBlob));
  EXPECT_TRUE(check_against_etag(put("hello\n"), kHelloBlob));
}

}  // namespace
}  // namespace baton
