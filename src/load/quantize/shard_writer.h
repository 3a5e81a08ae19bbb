/// Writes a safetensors file front to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace baton {

/// A tensor as the header of its file describes it.
struct TensorHeader {
  std::string name;
  std::string dtype;  ///< the format's name: "F32", "BF16"...
  std::vector<std::int64_t> shape;
  std::int64_t size_bytes = 0;
};

class ShardWriter {
 public:
  /// Makes the file and writes its header. Errors (io) name the file.
  static Result<ShardWriter> create(const std::filesystem::path& path, std::span<const TensorHeader> tensors);

  /// The next bytes of the tensors, in the order of the header.
  Result<void> append(std::span<const std::byte> bytes);
  /// Returns when the file is on the disk. All bytes must be there.
  Result<void> finish();

 private:
  ShardWriter(std::filesystem::path path, FileDescriptor file, std::int64_t n_bytes)
      : path_(std::move(path)), file_(std::move(file)), n_missing_(n_bytes) {}

  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t n_missing_;
};

/// Bytes of the header, with its length.
std::int64_t header_bytes(std::span<const TensorHeader> tensors);

}  // namespace baton
