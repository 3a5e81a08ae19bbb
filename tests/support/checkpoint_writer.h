/// Writes safetensors files for tests: valid files, and the parts of damaged ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace baton::test {

struct TensorToWrite {
  std::string name;
  std::string dtype;  ///< "F32", "BF16"...
  std::vector<std::int64_t> shape;
  std::string bytes;
};

/// The bytes of a file: header length, header, data.
inline std::string safetensors_with_header(std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file.append(header).append(data);
}

inline std::string safetensors_file(const std::vector<TensorToWrite>& tensors) {
  json::Value header = json::Value::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return safetensors_with_header(json::dump(header), data);
}

/// An F32 tensor.
inline TensorToWrite f32_tensor(std::string name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return {std::move(name), "F32", std::move(shape), std::move(bytes)};
}

}  // namespace baton::test
