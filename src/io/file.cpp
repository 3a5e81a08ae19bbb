/// POSIX calls after file.h.
#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/file_descriptor.h"

namespace baton {
namespace {

tl::unexpected<Error> system_error(std::string_view verb, const std::filesystem::path& path, int number) {
  if (number == ENOENT || number == ENOTDIR) return fail(ErrorCode::not_found, fmt::format("{} does not exist", path.string()));
  return fail(ErrorCode::io, fmt::format("cannot {} {}: {}", verb, path.string(), std::strerror(number)));
}

/// The size of the open file, which must be a regular one.
Result<std::size_t> regular_size(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return system_error("read", path, errno);
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::io,
                fmt::format("{} is {}, not a file", path.string(), S_ISDIR(status.st_mode) ? "a folder" : "a device"));
  return static_cast<std::size_t>(status.st_size);
}

/// Without O_NONBLOCK, opening a named pipe would wait for its writer.
int open_to_read(const std::filesystem::path& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path) {
  const FileDescriptor file(open_to_read(path));
  if (file.number() < 0) return system_error("read", path, errno);
  BATON_TRY(const std::size_t size, regular_size(file, path));
  if (size > kMaxReadFileBytes)
    return fail(ErrorCode::too_large, fmt::format("{} has {} bytes; the limit is {}", path.string(), size, kMaxReadFileBytes));
  std::string bytes(size, '\0');
  const auto n_read = file.read_up_to(std::as_writable_bytes(std::span(bytes)));
  if (!n_read) return system_error("read", path, errno);
  bytes.resize(*n_read);
  return bytes;
}

Result<void> write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::string temporary = path.string() + ".XXXXXX";
  FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.number() < 0) return system_error("write", path, errno);
  const auto give_up = [&](int number) {
    ::unlink(temporary.c_str());
    return system_error("write", path, number);
  };
  if (!file.write_all(std::as_bytes(std::span(bytes)))) return give_up(errno);
  if (::fchmod(file.number(), 0644) != 0 || ::fsync(file.number()) != 0 || !file.close()) return give_up(errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up(errno);
  return {};
}

Result<void> check_can_write(const std::filesystem::path& path) {
  std::string temporary = path.string() + ".XXXXXX";
  const FileDescriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.number() < 0) return system_error("write", path, errno);
  ::unlink(temporary.c_str());
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? system_error("write", path, EISDIR) : Result<void>();
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0 || ::fsync(opened.number()) != 0) return system_error("write", folder, errno);
  return {};
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const FileDescriptor file(open_to_read(path));
  if (file.number() < 0) return system_error("open", path, errno);
  BATON_TRY(const std::size_t size, regular_size(file, path));
  if (size == 0) return MappedFile({});
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) return system_error("map", path, errno);
  return MappedFile({static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop_pages(std::span<const std::byte> range) const {
  if (range.empty()) return;
  check(range.data() >= bytes_.data() && range.data() + range.size() <= bytes_.data() + bytes_.size(),
        "MappedFile::drop_pages: range outside the file");
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(range.data() + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace baton
