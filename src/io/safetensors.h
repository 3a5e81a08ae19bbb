/// Checkpoints in the safetensors format, memory-mapped: every offset, shape and size in their headers is checked
/// before a byte of a tensor is used, because model files come from strangers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "io/file.h"

namespace baton {

/// One tensor as its file describes it. If the dtype is known, `bytes` has the size that it and the shape require.
struct StoredTensor {
  std::string dtype;                ///< the format's name: "F32", "BF16", "F8_E4M3"...
  std::vector<std::int64_t> shape;  ///< any rank, each size >= 0
  std::span<const std::byte> bytes;
};

/// The tensors of one model: `model.safetensors`, or the shards that `model.safetensors.index.json` lists.
///
/// Invariant: the stored tensors' bytes lie inside the mapped files; within one file they neither overlap nor leave
/// gaps. Views are valid as long as the checkpoint; their data has no particular alignment, so read it with memcpy.
/// Thread: any, except moving and destruction.
class Checkpoint {
 public:
  /// Maps and checks all files of the model in `folder`. Errors name the file and what is wrong with it.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  /// The tensor `name` as its file describes it, or null.
  const StoredTensor* find(std::string_view name) const;
  /// The tensor `name`. Errors: not_found; unsupported where dtype or rank is not one of ours (F32, BF16, F16,
  /// F8_E4M3, I32, I64, U8; at most four dimensions).
  Result<ConstTensorView> load(std::string_view name) const;
  /// The same, with an error (invalid_data) that names both shapes unless the tensor has the shape expected.
  Result<ConstTensorView> load(std::string_view name, const Shape& expected) const;
  /// All names, sorted.
  std::vector<std::string> names() const;
  std::size_t n_tensors() const { return tensors_.size(); }
  /// Sum of the sizes of all tensors.
  std::size_t total_bytes() const;
  /// Gives the memory that reading `tensor` (a view from load) took back to the system; it is read again on use.
  void drop_pages(const ConstTensorView& tensor) const;

 private:
  using Tensors = std::map<std::string, StoredTensor, std::less<>>;

  static Result<Checkpoint> open_single(const std::filesystem::path& file);
  static Result<Checkpoint> open_sharded(const std::filesystem::path& index);

  std::vector<MappedFile> files_;
  Tensors tensors_;
};

/// The tensors that one safetensors file holds, by name; views of `file`. `what` names it in errors (invalid_data).
Result<std::map<std::string, StoredTensor, std::less<>>> parse_safetensors(std::span<const std::byte> file,
                                                                           std::string_view what);

}  // namespace baton
