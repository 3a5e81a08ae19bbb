/// The header and the order of a safetensors file.
#include "load/quantize/shard_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "io/json.h"

namespace baton {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

tl::unexpected<Error> cannot_write(const std::filesystem::path& path, int number) {
  return fail(ErrorCode::io, fmt::format("cannot write {}: {}", path.string(), std::strerror(number)));
}

/// The length and the JSON object, padded with spaces.
std::string header_text(std::span<const TensorHeader> tensors) {
  std::string object = R"({"__metadata__":{"format":"pt"})";
  std::int64_t end = 0;
  for (const TensorHeader& tensor : tensors) {
    const std::int64_t begin = std::exchange(end, end + tensor.size_bytes);
    object += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json::dump(json::Value(tensor.name)),
                          tensor.dtype, fmt::join(tensor.shape, ","), begin, end);
  }
  object += '}';
  object.resize((object.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const std::uint64_t length = object.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + object;
}

}  // namespace

Result<ShardWriter> ShardWriter::create(const std::filesystem::path& path, std::span<const TensorHeader> tensors) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.number() < 0) return cannot_write(path, errno);
  const std::string header = header_text(tensors);
  if (!file.write_all(std::as_bytes(std::span(header)))) return cannot_write(path, errno);
  std::int64_t n_bytes = 0;
  for (const TensorHeader& tensor : tensors) n_bytes += tensor.size_bytes;
  return ShardWriter(path, std::move(file), n_bytes);
}

Result<void> ShardWriter::append(std::span<const std::byte> bytes) {
  n_missing_ -= static_cast<std::int64_t>(bytes.size());
  check(n_missing_ >= 0, "ShardWriter: more bytes than the header says");
  if (!file_.write_all(bytes)) return cannot_write(path_, errno);
  return {};
}

Result<void> ShardWriter::finish() {
  check(n_missing_ == 0, "ShardWriter: fewer bytes than the header says");
  if (::fsync(file_.number()) != 0 || !file_.close()) return cannot_write(path_, errno);
  return {};
}

std::int64_t header_bytes(std::span<const TensorHeader> tensors) {
  return static_cast<std::int64_t>(header_text(tensors).size());
}

}  // namespace baton
