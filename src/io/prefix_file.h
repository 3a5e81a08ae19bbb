/// Files with the keys and values of a stored prefix, and its state in recurrent layers: what they were computed from, and the bytes in chunks with checksums.
///
///     8 bytes    "BATONPFX"
///     u32        version of the format
///     u32        bytes of the header, with these first fields
///     u64        checksum of the header without this field (damage_checksum)
///     ...        the fields of PrefixFileHeader, in their order; a list is its u32 length and its elements
///     for each chunk: u64 checksum (which depends on the header's and on the chunk's number), then its bytes
///
/// Numbers are little-endian. Nothing follows the last chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"
#include "core/ids.h"
#include "core/result.h"

namespace baton {

/// Facts that must be equal where keys and values are computed and where they are used: (what it is, its value). A fact "A: B" is a
/// part of the fact A: it says what differs where A does, and is not compared otherwise.
using PrefixIdentity = std::vector<std::pair<std::string, std::string>>;

struct PrefixFileHeader {
  PrefixIdentity identity;
  std::string name;
  std::string metadata;               ///< of the file's writer
  std::vector<TokenId> tokens;        ///< of the prefix
  std::vector<std::uint64_t> hashes;  ///< chained, of its full blocks, [blocks][2]
  std::vector<std::uint32_t> chunk_bytes;
  bool operator==(const PrefixFileHeader&) const = default;
};

/// Largest header that is written or read: more tokens than any context holds.
inline constexpr std::size_t kMaxPrefixHeaderBytes = std::size_t{64} << 20;

/// Bytes of a file with this header.
std::uint64_t prefix_file_bytes(const PrefixFileHeader& header);

/// Writes a file under a temporary name beside `path`, `path` with a point and six characters after it, and gives it its name
/// at the end. So no reader ever sees a part of it under its name, whenever the program ends. The file can be read and
/// written by its owner only. Move-only.
class PrefixFileWriter {
 public:
  /// Reserves the bytes of the whole file, so that a full disk is known before anything is computed, and writes the header.
  /// Errors: io, not_found (the folder), too_large (the header).
  static Result<PrefixFileWriter> create(std::filesystem::path path, const PrefixFileHeader& header);
  PrefixFileWriter(PrefixFileWriter&&) noexcept;
  PrefixFileWriter& operator=(PrefixFileWriter&&) = delete;
  /// Removes the temporary file, unless it has its name.
  ~PrefixFileWriter();

  /// Writes the next chunk, of the size that the header says.
  Result<void> append(std::span<const std::byte> chunk);
  /// Returns when the file's bytes are on the disk. All chunks must have been written.
  Result<void> sync();
  /// Gives the synced file its name, in place of another file of this name. The name is on the disk after sync_folder.
  Result<void> publish();

 private:
  PrefixFileWriter(std::filesystem::path path, std::string temporary, FileDescriptor file, const PrefixFileHeader& header)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)), chunk_bytes_(header.chunk_bytes) {}
  Result<void> write(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::string temporary_;  ///< empty: it has its name, or was moved from
  FileDescriptor file_;
  std::vector<std::uint32_t> chunk_bytes_;
  std::uint64_t header_checksum_ = 0;
  std::size_t n_written_ = 0;
};

/// An open file whose header was read and verified. Move-only.
class PrefixFileReader {
 public:
  /// Errors: not_found; io; invalid_data, with a sentence that says whether it is another kind of file, of another version,
  /// truncated, too long, or damaged.
  static Result<PrefixFileReader> open(const std::filesystem::path& path);

  const PrefixFileHeader& header() const { return header_; }
  std::uint64_t size_bytes() const { return prefix_file_bytes(header_); }
  std::size_t n_chunks_left() const { return header_.chunk_bytes.size() - n_read_; }
  /// Reads the next chunk into `chunk`, whose memory is kept, and verifies it. Errors: io, invalid_data.
  Result<void> read_next(std::vector<std::byte>& chunk);

 private:
  PrefixFileReader(std::filesystem::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> read_header();

  std::filesystem::path path_;
  FileDescriptor file_;
  PrefixFileHeader header_;
  std::uint64_t header_checksum_ = 0;
  std::size_t n_read_ = 0;
};

/// Compares the identity of a file with the one that is needed. Error: invalid_data, which names the first fact that differs and
/// both values, or the parts of the fact that differ with theirs.
Result<void> check_prefix_identity(const PrefixFileHeader& header, const PrefixIdentity& needed);

}  // namespace baton
