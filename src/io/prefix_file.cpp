/// Writes and reads the format that prefix_file.h describes.
#include "io/prefix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "core/check.h"
#include "io/checksum.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are written as the machine stores them");

constexpr std::string_view kMagic = "BATONPFX";
constexpr std::uint32_t kFormatVersion = 2;
constexpr std::size_t kChecksumAt = kMagic.size() + 2 * sizeof(std::uint32_t);
constexpr std::size_t kFixedBytes = kChecksumAt + sizeof(std::uint64_t);
constexpr std::size_t kChunkHeadBytes = sizeof(std::uint64_t);

template <class T>
void put(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// A list of characters or numbers: its length and its elements.
template <class List>
void put_list(std::string& out, const List& list) {
  put(out, static_cast<std::uint32_t>(list.size()));
  out.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(*list.data()));
}

/// Takes values from the front of the header's bytes. Once they end early, all later values are empty and `is_good` is false.
struct FieldReader {
  std::string_view rest;
  bool is_good = true;

  std::string_view take(std::size_t n_bytes) {
    if (n_bytes > rest.size()) is_good = false;
    const std::string_view taken = is_good ? rest.substr(0, n_bytes) : std::string_view();
    rest.remove_prefix(taken.size());
    return taken;
  }
  template <class T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof(T));
    if (is_good) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  template <class List>
  List list() {
    const std::size_t n = number<std::uint32_t>();
    const std::string_view bytes = take(n * sizeof(typename List::value_type));
    List values(bytes.size() / sizeof(typename List::value_type), {});
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

std::span<const std::byte> as_bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// The checksum of a header's bytes, whatever its checksum field holds.
std::uint64_t checksum_of_header(std::string_view header) {
  return damage_checksum(as_bytes_of(header.substr(kFixedBytes)),
                         damage_checksum(as_bytes_of(header.substr(0, kChecksumAt)), 0));
}

/// Chunks of other files, and chunks in another order, have other checksums.
std::uint64_t checksum_of_chunk(std::span<const std::byte> chunk, std::uint64_t header_checksum, std::size_t number) {
  return damage_checksum(chunk, header_checksum + number);
}

std::size_t header_bytes(const PrefixFileHeader& header) {
  constexpr std::size_t kLength = sizeof(std::uint32_t);
  std::size_t n_bytes = kFixedBytes + 6 * kLength;
  for (const auto& [what, value] : header.identity) n_bytes += 2 * kLength + what.size() + value.size();
  return n_bytes + header.name.size() + header.metadata.size() + header.tokens.size() * sizeof(TokenId) +
         header.hashes.size() * sizeof(std::uint64_t) + header.chunk_bytes.size() * sizeof(std::uint32_t);
}

std::string encoded(const PrefixFileHeader& header) {
  std::string out(kMagic);
  put(out, kFormatVersion);
  put(out, static_cast<std::uint32_t>(header_bytes(header)));
  put(out, std::uint64_t{0});
  put(out, static_cast<std::uint32_t>(header.identity.size()));
  for (const auto& [what, value] : header.identity) {
    put_list(out, what);
    put_list(out, value);
  }
  put_list(out, header.name);
  put_list(out, header.metadata);
  put_list(out, header.tokens);
  put_list(out, header.hashes);
  put_list(out, header.chunk_bytes);
  const std::uint64_t checksum = checksum_of_header(out);
  std::memcpy(out.data() + kChecksumAt, &checksum, sizeof(checksum));
  return out;
}

/// nullopt if the bytes after the fixed part are not the fields of a header.
std::optional<PrefixFileHeader> decoded(std::string_view bytes) {
  FieldReader fields{bytes.substr(kFixedBytes)};
  PrefixFileHeader header;
  for (std::uint32_t n = fields.number<std::uint32_t>(); fields.is_good && n > 0; --n) {
    auto what = fields.list<std::string>();
    header.identity.emplace_back(std::move(what), fields.list<std::string>());
  }
  header.name = fields.list<std::string>();
  header.metadata = fields.list<std::string>();
  header.tokens = fields.list<std::vector<TokenId>>();
  header.hashes = fields.list<std::vector<std::uint64_t>>();
  header.chunk_bytes = fields.list<std::vector<std::uint32_t>>();
  if (!fields.is_good || !fields.rest.empty()) return std::nullopt;
  return header;
}

tl::unexpected<Error> failed(std::string_view verb, const std::filesystem::path& path, int number) {
  return fail(number == ENOENT || number == ENOTDIR ? ErrorCode::not_found : ErrorCode::io,
              fmt::format("cannot {} {}: {}", verb, path.string(), std::strerror(number)));
}

/// Fills `bytes` from the file's position on. Returns how many there were.
Result<std::size_t> read_up_to(const FileDescriptor& file, const std::filesystem::path& path, std::span<std::byte> bytes) {
  const auto n_read = file.read_up_to(bytes);
  if (!n_read) return failed("read", path, errno);
  return *n_read;
}

template <class... Args>
tl::unexpected<Error> damaged(const std::filesystem::path& path, fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::invalid_data, fmt::format("{} {}", path.string(), fmt::format(text, std::forward<Args>(args)...)));
}

/// Between the names of a fact and of its part.
constexpr std::string_view kPartOf = ": ";

const std::string* value_of(const PrefixIdentity& identity, std::string_view what) {
  const auto found = std::ranges::find(identity, what, &PrefixIdentity::value_type::first);
  return found == identity.end() ? nullptr : &found->second;
}

/// The parts of the fact `whole` that differ, also a part that one of the two lacks; empty if the file has no parts.
std::string differing_parts(std::string_view whole, const PrefixIdentity& own, const PrefixIdentity& needed) {
  const std::string beginning = std::string(whole) + std::string(kPartOf);
  const auto is_part = [&](const PrefixIdentity::value_type& fact) { return fact.first.starts_with(beginning); };
  if (std::ranges::none_of(own, is_part)) return {};
  std::string text;
  const auto add = [&](const std::string& what, std::string_view is, std::string_view wanted) {
    text += fmt::format("{}{} is {}, and {} is needed", text.empty() ? "" : "; ", what.substr(beginning.size()), is, wanted);
  };
  constexpr std::string_view kNothing = "not there";
  for (const auto& [what, value] : own) {
    if (!what.starts_with(beginning)) continue;
    const std::string* const wanted = value_of(needed, what);
    if (wanted == nullptr || *wanted != value) add(what, value, wanted == nullptr ? kNothing : *wanted);
  }
  for (const auto& [what, value] : needed)
    if (what.starts_with(beginning) && value_of(own, what) == nullptr) add(what, kNothing, value);
  return text;
}

}  // namespace

std::uint64_t prefix_file_bytes(const PrefixFileHeader& header) {
  std::uint64_t n_bytes = header_bytes(header);
  for (const std::uint32_t chunk : header.chunk_bytes) n_bytes += kChunkHeadBytes + chunk;
  return n_bytes;
}

Result<PrefixFileWriter> PrefixFileWriter::create(std::filesystem::path path, const PrefixFileHeader& header) {
  if (header_bytes(header) > kMaxPrefixHeaderBytes)
    return fail(ErrorCode::too_large, fmt::format("the header of {} would have {} bytes; the limit is {}", path.string(),
                                                  header_bytes(header), kMaxPrefixHeaderBytes));
  std::string temporary = path.string() + ".XXXXXX";
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.number() < 0) return failed("write", path, errno);
  PrefixFileWriter writer(std::move(path), std::move(temporary), std::move(file), header);
  const auto n_bytes = static_cast<off_t>(prefix_file_bytes(header));
  // Some file systems cannot reserve: the writes then say when the disk is full.
  if (::fallocate(writer.file_.number(), 0, 0, n_bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    auto error = failed("write", writer.path_, errno);
    error.value().message += fmt::format(" ({} bytes)", n_bytes);
    return error;
  }
  const std::string bytes = encoded(header);
  writer.header_checksum_ = checksum_of_header(bytes);
  BATON_TRY_VOID(writer.write(as_bytes_of(bytes)));
  return writer;
}

PrefixFileWriter::PrefixFileWriter(PrefixFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      chunk_bytes_(std::move(other.chunk_bytes_)),
      header_checksum_(other.header_checksum_),
      n_written_(other.n_written_) {}

PrefixFileWriter::~PrefixFileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> PrefixFileWriter::write(std::span<const std::byte> bytes) {
  if (!file_.write_all(bytes)) return failed("write", path_, errno);
  return {};
}

Result<void> PrefixFileWriter::append(std::span<const std::byte> chunk) {
  check(n_written_ < chunk_bytes_.size() && chunk.size() == chunk_bytes_[n_written_],
        "PrefixFileWriter: a chunk of another size than the header says, or one too many");
  const std::uint64_t checksum = checksum_of_chunk(chunk, header_checksum_, n_written_++);
  BATON_TRY_VOID(write(std::as_bytes(std::span(&checksum, 1))));
  return write(chunk);
}

Result<void> PrefixFileWriter::sync() {
  check(n_written_ == chunk_bytes_.size(), "PrefixFileWriter: chunks are missing");
  if (::fsync(file_.number()) != 0 || !file_.close()) return failed("write", path_, errno);
  return {};
}

Result<void> PrefixFileWriter::publish() {
  check(file_.number() < 0 && !temporary_.empty(), "PrefixFileWriter: it was not synced, or was published before");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("write", path_, errno);
  temporary_.clear();
  return {};
}

Result<PrefixFileReader> PrefixFileReader::open(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return failed("read", path, errno);
  PrefixFileReader reader(path, std::move(file));
  BATON_TRY_VOID(reader.read_header());
  return reader;
}

Result<void> PrefixFileReader::read_header() {
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0) return failed("read", path_, errno);
  if (!S_ISREG(status.st_mode)) return damaged(path_, "is not a file");
  ::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  std::string bytes(kFixedBytes, '\0');
  BATON_TRY(const std::size_t n_fixed, read_up_to(file_, path_, std::as_writable_bytes(std::span(bytes))));
  const std::string_view fixed = std::string_view(bytes).substr(0, n_fixed);
  if (fixed.substr(0, kMagic.size()) != kMagic.substr(0, std::min(n_fixed, kMagic.size())) || n_fixed == 0)
    return damaged(path_, "is not a stored prefix");
  if (n_fixed < kFixedBytes) return damaged(path_, "is truncated: it ends within its header");
  FieldReader fields{fixed.substr(kMagic.size())};
  const auto version = fields.number<std::uint32_t>();
  const auto n_header = fields.number<std::uint32_t>();
  header_checksum_ = fields.number<std::uint64_t>();
  if (version != kFormatVersion)
    return damaged(path_, "has version {} of the format of stored prefixes; this program reads version {}", version,
                   kFormatVersion);
  if (n_header < kFixedBytes || n_header > kMaxPrefixHeaderBytes)
    return damaged(path_, "is damaged: its header cannot have {} bytes", n_header);
  if (n_header > file_bytes) return damaged(path_, "is truncated: it ends within its header");
  bytes.resize(n_header);
  const auto rest = std::as_writable_bytes(std::span(bytes)).subspan(kFixedBytes);
  BATON_TRY(const std::size_t n_rest, read_up_to(file_, path_, rest));
  if (n_rest < rest.size()) return damaged(path_, "is truncated: it ends within its header");
  if (checksum_of_header(bytes) != header_checksum_) return damaged(path_, "is damaged: its header's checksum is wrong");
  auto header = decoded(bytes);
  if (!header) return damaged(path_, "is damaged: its header does not hold what it says");
  header_ = std::move(*header);
  if (file_bytes < size_bytes()) return damaged(path_, "is truncated: it has {} bytes of {}", file_bytes, size_bytes());
  if (file_bytes > size_bytes())
    return damaged(path_, "is damaged: it has {} bytes more than its header says", file_bytes - size_bytes());
  return {};
}

Result<void> PrefixFileReader::read_next(std::vector<std::byte>& chunk) {
  check(n_chunks_left() > 0, "PrefixFileReader: all chunks were read");
  std::uint64_t checksum = 0;
  chunk.resize(header_.chunk_bytes[n_read_]);
  BATON_TRY(const std::size_t n_head, read_up_to(file_, path_, std::as_writable_bytes(std::span(&checksum, 1))));
  BATON_TRY(const std::size_t n_bytes, read_up_to(file_, path_, chunk));
  if (n_head < sizeof(checksum) || n_bytes < chunk.size())
    return damaged(path_, "is truncated: part {} of {} is not all there", n_read_ + 1, header_.chunk_bytes.size());
  if (checksum_of_chunk(chunk, header_checksum_, n_read_) != checksum)
    return damaged(path_, "is damaged: the checksum of part {} of {} is wrong", n_read_ + 1, header_.chunk_bytes.size());
  ++n_read_;
  return {};
}

Result<void> check_prefix_identity(const PrefixFileHeader& header, const PrefixIdentity& needed) {
  for (const auto& [what, value] : needed) {
    if (what.find(kPartOf) != std::string::npos) continue;
    const std::string* const own = value_of(header.identity, what);
    if (own == nullptr)
      return fail(ErrorCode::invalid_data, fmt::format("it does not say its {}, and {} is needed", what, value));
    if (*own == value) continue;
    const std::string parts = differing_parts(what, header.identity, needed);
    return fail(ErrorCode::invalid_data, parts.empty() ? fmt::format("its {} is {}, and {} is needed", what, *own, value)
                                                       : fmt::format("its {} differs: {}", what, parts));
  }
  return {};
}

}  // namespace baton
