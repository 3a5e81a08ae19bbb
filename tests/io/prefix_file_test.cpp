/// What a stored prefix's file survives, and what is refused (io/prefix_file.h).
#include "io/prefix_file.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

#include "io/checksum.h"
#include "io/file.h"

namespace baton {
namespace {

using Chunks = std::vector<std::vector<std::byte>>;

Chunks chunks_of(std::initializer_list<std::size_t> sizes) {
  Chunks chunks;
  for (const std::size_t size : sizes) {
    auto& chunk = chunks.emplace_back(size);
    for (std::size_t i = 0; i < size; ++i) chunk[i] = static_cast<std::byte>(i * 7 + chunks.size());
  }
  return chunks;
}

PrefixFileHeader header_for(const Chunks& chunks) {
  PrefixFileHeader header{
      {{"model", "demo"}, {"layout", "16 tokens"}}, "shop", "{\"version\": 2}", {1, -2, 1 << 30}, {7, 8}, {}};
  for (const auto& chunk : chunks) header.chunk_bytes.push_back(static_cast<std::uint32_t>(chunk.size()));
  return header;
}

class PrefixFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<void> write(const PrefixFileHeader& header, const Chunks& chunks) const {
    BATON_TRY(PrefixFileWriter writer, PrefixFileWriter::create(path_, header));
    for (const auto& chunk : chunks) BATON_TRY_VOID(writer.append(chunk));
    BATON_TRY_VOID(writer.sync());
    return writer.publish();
  }
  /// All of a file, or why it is refused.
  static Result<Chunks> read(const std::filesystem::path& path) {
    BATON_TRY(PrefixFileReader reader, PrefixFileReader::open(path));
    Chunks chunks;
    while (reader.n_chunks_left() > 0) BATON_TRY_VOID(reader.read_next(chunks.emplace_back()));
    return chunks;
  }
  std::string refusal(std::string bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto got = read(path_);
    EXPECT_FALSE(got) << "accepted";
    if (got) return "";
    EXPECT_EQ(got.error().code, ErrorCode::invalid_data);
    return got.error().message.substr(path_.string().size() + 1);
  }
  std::ptrdiff_t n_files() const { return std::distance(std::filesystem::directory_iterator(folder_), {}); }

  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "baton_prefix_file_test";
  const std::filesystem::path path_ = folder_ / "shop.kvprefix";
};

TEST_F(PrefixFile, reads_back_what_it_wrote) {
  for (const Chunks& chunks : {Chunks{}, chunks_of({1}), chunks_of({0, 5000, 32, 31})}) {
    const PrefixFileHeader header = header_for(chunks);
    ASSERT_TRUE(write(header, chunks));
    const auto reader = PrefixFileReader::open(path_);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->header(), header);
    EXPECT_EQ(reader->size_bytes(), std::filesystem::file_size(path_));
    EXPECT_EQ(read(path_).value(), chunks);
  }
  PrefixFileHeader empty;
  ASSERT_TRUE(write(empty, {}));
  EXPECT_EQ(PrefixFileReader::open(path_)->header(), empty);
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
      << "it holds what people wrote";
}

TEST_F(PrefixFile, refuses_every_changed_byte) {
  const Chunks chunks = chunks_of({10, 8, 3});
  ASSERT_TRUE(write(header_for(chunks), chunks));
  const std::string bytes = read_file(path_).value();
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const int change : {1, 255}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      EXPECT_NE(refusal(changed), "") << "byte " << at << " of " << bytes.size();
    }
}

TEST_F(PrefixFile, refuses_every_truncation_and_what_follows_its_end) {
  const Chunks chunks = chunks_of({40, 8});
  ASSERT_TRUE(write(header_for(chunks), chunks));
  const std::string bytes = read_file(path_).value();
  for (std::size_t n = 1; n < bytes.size(); ++n)
    EXPECT_TRUE(refusal(bytes.substr(0, n)).starts_with("is truncated: it ")) << n << " of " << bytes.size();
  EXPECT_EQ(refusal(""), "is not a stored prefix");
  EXPECT_EQ(refusal(bytes + "x"), "is damaged: it has 1 bytes more than its header says");
}

TEST_F(PrefixFile, says_what_is_wrong_with_a_file) {
  const Chunks chunks = chunks_of({40, 40});
  ASSERT_TRUE(write(header_for(chunks), chunks));
  const std::string bytes = read_file(path_).value();
  const auto with = [&](std::size_t at, std::string_view text) { return std::string(bytes).replace(at, text.size(), text); };
  EXPECT_EQ(refusal(with(0, "{\"text\"")), "is not a stored prefix");
  EXPECT_EQ(refusal(with(8, "\1")), "has version 1 of the format of stored prefixes; this program reads version 2");
  EXPECT_EQ(refusal(with(12, std::string_view("\3\0\0\0", 4))), "is damaged: its header cannot have 3 bytes");
  EXPECT_EQ(refusal(with(16, "x")), "is damaged: its header's checksum is wrong");
  EXPECT_EQ(refusal(with(bytes.size() - 96 + 8, "x")), "is damaged: the checksum of part 1 of 2 is wrong");
  EXPECT_EQ(refusal(with(bytes.size() - 1, "x")), "is damaged: the checksum of part 2 of 2 is wrong");
  const std::string one = bytes.substr(bytes.size() - 96, 48), two = bytes.substr(bytes.size() - 48);
  EXPECT_EQ(refusal(with(bytes.size() - 96, two + one)), "is damaged: the checksum of part 1 of 2 is wrong") << "swapped";

  PrefixFileHeader other = header_for(chunks);
  other.name = "bank";
  ASSERT_TRUE(write(other, chunks));
  EXPECT_EQ(refusal(with(bytes.size() - 96, read_file(path_)->substr(bytes.size() - 96))),
            "is damaged: the checksum of part 1 of 2 is wrong")
      << "parts of another prefix's file";
  EXPECT_EQ(read(folder_ / "absent").error().code, ErrorCode::not_found);
  EXPECT_EQ(read(folder_).error().message, folder_.string() + " is not a file");
}

/// The header's bytes under a checksum that fits: made so, not damaged.
std::string signed_header(std::string bytes) {
  const auto as_bytes = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
  const std::string_view view = bytes;
  const std::uint64_t sum = damage_checksum(as_bytes(view.substr(24)), damage_checksum(as_bytes(view.substr(0, 16)), 0));
  std::memcpy(bytes.data() + 16, &sum, sizeof(sum));
  return bytes;
}

TEST_F(PrefixFile, refuses_headers_that_do_not_hold_what_they_say) {
  ASSERT_TRUE(write(header_for({}), {}));
  const std::string bytes = read_file(path_).value();
  EXPECT_EQ(signed_header(bytes), bytes);
  const std::string huge = "\xff\xff\xff\xff";
  // The number of facts, the lengths of the first fact's texts and of the second's first, and the number of chunks.
  for (const std::size_t at : {std::size_t{24}, std::size_t{28}, std::size_t{37}, std::size_t{45}, bytes.size() - 4})
    EXPECT_EQ(refusal(signed_header(std::string(bytes).replace(at, 4, huge))),
              "is damaged: its header does not hold what it says")
        << at;
}

TEST_F(PrefixFile, has_its_name_only_when_it_is_complete) {
  const Chunks chunks = chunks_of({40, 8});
  const PrefixFileHeader header = header_for(chunks);
  {
    auto writer = PrefixFileWriter::create(path_, header);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(chunks[0]));
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_EQ(n_files(), 1);
    ASSERT_TRUE(writer->append(chunks[1]));
    ASSERT_TRUE(writer->sync());
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_EQ(n_files(), 0) << "a file that is given up leaves nothing";
  ASSERT_TRUE(write(header, chunks));
  PrefixFileHeader newer = header;
  newer.metadata = "newer";
  {
    auto writer = PrefixFileWriter::create(path_, newer);
    ASSERT_TRUE(writer);
    EXPECT_EQ(PrefixFileReader::open(path_)->header(), header) << "the old file serves meanwhile";
  }
  ASSERT_TRUE(write(newer, chunks));
  EXPECT_EQ(PrefixFileReader::open(path_)->header(), newer);
  EXPECT_EQ(n_files(), 1);
  EXPECT_EQ(PrefixFileWriter::create(folder_ / "absent" / "x", header).error().code, ErrorCode::not_found);
}

/// Files may have so many bytes meanwhile, as on a disk that is full then.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t n_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{n_bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

TEST_F(PrefixFile, a_full_disk_is_named_at_once_and_leaves_nothing) {
  const Chunks chunks = chunks_of({4000, 4000});
  const PrefixFileHeader header = header_for(chunks);
  std::optional<Result<void>> written;
  {
    const SmallDisk disk(2000);
    const auto writer = PrefixFileWriter::create(path_, header);
    ASSERT_FALSE(writer);
    EXPECT_EQ(writer.error().code, ErrorCode::io);
    EXPECT_EQ(writer.error().message,
              "cannot write " + path_.string() + ": File too large (" + std::to_string(prefix_file_bytes(header)) + " bytes)");
  }
  EXPECT_EQ(n_files(), 0);
  // A disk that becomes full while the file is written.
  {
    auto writer = PrefixFileWriter::create(path_, header);
    ASSERT_TRUE(writer);
    const SmallDisk disk(2000);
    written = writer->append(chunks[0]);
  }
  ASSERT_FALSE(*written);
  EXPECT_EQ(written->error().message, "cannot write " + path_.string() + ": File too large");
  EXPECT_EQ(n_files(), 0);
}

TEST_F(PrefixFile, names_the_first_fact_that_differs) {
  const PrefixFileHeader header = header_for({});
  EXPECT_TRUE(check_prefix_identity(header, header.identity));
  EXPECT_TRUE(check_prefix_identity(header, {}));
  EXPECT_EQ(check_prefix_identity(header, {{"model", "demo"}, {"layout", "32 tokens"}}).error().message,
            "its layout is 16 tokens, and 32 tokens is needed");
  EXPECT_EQ(check_prefix_identity(header, {{"device", "cpu"}}).error().message,
            "it does not say its device, and cpu is needed");
}

TEST_F(PrefixFile, names_the_parts_of_a_fact_that_differ) {
  PrefixFileHeader header = header_for({});
  header.identity = {{"model", "1111"}, {"model: weights", "2 files"}, {"model: config", "c"}, {"model: extra", "e"}};
  const auto message = [&](const PrefixIdentity& needed) { return check_prefix_identity(header, needed).error().message; };
  EXPECT_EQ(
      message({{"model", "2222"}, {"model: weights", "3 files"}, {"model: config", "c"}, {"model: rounding", "int4"}}),
      "its model differs: weights is 2 files, and 3 files is needed; extra is e, and not there is needed; rounding is not "
      "there, and int4 is needed");
  EXPECT_TRUE(check_prefix_identity(header, {{"model", "1111"}, {"model: weights", "another text"}}))
      << "the whole is the same";
  header.identity = {{"model", "1111"}};
  EXPECT_EQ(message({{"model", "2222"}, {"model: weights", "3 files"}}), "its model is 1111, and 2222 is needed")
      << "a file of an earlier version has no parts";
}

}  // namespace
}  // namespace baton
