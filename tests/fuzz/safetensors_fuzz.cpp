/// Fuzzes the safetensors reader: any bytes give an error, or tensors that lie inside the file and have the size of
/// their shape.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/check.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto tensors = baton::parse_safetensors(file, "the input");
  if (!tensors) return 0;
  std::size_t n_bytes = 0;
  for (const auto& [name, tensor] : *tensors) {
    n_bytes += tensor.bytes.size();
    if (tensor.bytes.empty()) continue;
    baton::check(tensor.bytes.data() >= file.data() && tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size(),
                 "a tensor lies outside the file");
    std::int64_t n_elements = 1;
    for (const std::int64_t axis : tensor.shape) n_elements *= axis;  // the undefined-behaviour sanitizer watches for overflow
    if (tensor.dtype == "F32")
      baton::check(n_elements * 4 == static_cast<std::int64_t>(tensor.bytes.size()),
                   "a tensor has another size than its shape");
  }
  baton::check(n_bytes <= file.size(), "tensors overlap");
  return 0;
}
