/// The safetensors format: 8 bytes of header length (little-endian), a JSON object {name: {dtype, shape,
/// data_offsets}}, the tensors' bytes without gaps. Source: https://github.com/huggingface/safetensors (README,
/// "Format").
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/log.h"
#include "core/one_line.h"
#include "io/json.h"
#include "io/other_weights.h"

namespace baton {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kLengthBytes = 8;
/// The format's own limit on its header.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

using Tensors = std::map<std::string, StoredTensor, std::less<>>;

/// Bytes per element of the format's types; nullopt for types that are new to us or smaller than a byte.
std::optional<std::size_t> element_bytes(std::string_view dtype) {
  for (const std::string_view name : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"})
    if (dtype == name) return 1;
  for (const std::string_view name : {"I16", "U16", "F16", "BF16"})
    if (dtype == name) return 2;
  for (const std::string_view name : {"I32", "U32", "F32"})
    if (dtype == name) return 4;
  for (const std::string_view name : {"I64", "U64", "F64", "C64"})
    if (dtype == name) return 8;
  return std::nullopt;
}

std::optional<DType> dtype_of(std::string_view dtype) {
  if (dtype == "F32") return DType::f32;
  if (dtype == "BF16") return DType::bf16;
  if (dtype == "F16") return DType::f16;
  if (dtype == "F8_E4M3") return DType::f8_e4m3;
  if (dtype == "I32") return DType::i32;
  if (dtype == "I64") return DType::i64;
  if (dtype == "U8") return DType::u8;
  return std::nullopt;
}

std::string to_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// shape * element size, or nullopt when that does not fit 64 bits.
std::optional<std::uint64_t> size_of(const std::vector<std::int64_t>& shape, std::size_t bytes_per_element) {
  std::uint64_t product = bytes_per_element;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(size), &product)) return std::nullopt;
  return product;
}

/// One entry of the header. `data` is the part of the file after the header.
Result<StoredTensor> parse_entry(const json::Value& entry, std::span<const std::byte> data) {
  StoredTensor tensor;
  BATON_TRY(tensor.dtype, json::get<std::string>(entry, "dtype"));
  BATON_TRY(tensor.shape, json::get<std::vector<std::int64_t>>(entry, "shape"));
  BATON_TRY(const auto offsets, json::get<std::vector<std::uint64_t>>(entry, "data_offsets"));
  for (const std::int64_t size : tensor.shape)
    if (size < 0) return fail(ErrorCode::invalid_data, fmt::format("its shape {} has a negative size", to_text(tensor.shape)));
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    return fail(ErrorCode::invalid_data,
                fmt::format("its data_offsets [{}] are not a begin and an end", fmt::join(offsets, ", ")));
  if (offsets[1] > data.size())
    return fail(ErrorCode::invalid_data,
                fmt::format("its data ends at byte {}, but the file has only {} bytes of tensor data; is it truncated?",
                            offsets[1], data.size()));
  const std::uint64_t n_bytes = offsets[1] - offsets[0];
  if (const auto bytes = element_bytes(tensor.dtype)) {
    const auto needed = size_of(tensor.shape, *bytes);
    if (!needed) return fail(ErrorCode::invalid_data, fmt::format("its shape {} is too large", to_text(tensor.shape)));
    if (*needed != n_bytes)
      return fail(ErrorCode::invalid_data, fmt::format("its shape {} of {} needs {} bytes, but data_offsets give it {}",
                                                       to_text(tensor.shape), tensor.dtype, *needed, n_bytes));
  }
  tensor.bytes = data.subspan(offsets[0], n_bytes);
  return tensor;
}

/// Each byte of `data` belongs to exactly one tensor.
Result<void> check_coverage(const Tensors& tensors, std::span<const std::byte> data, std::string_view what) {
  std::vector<std::pair<std::span<const std::byte>, std::string_view>> runs;
  for (const auto& [name, tensor] : tensors) runs.emplace_back(tensor.bytes, name);
  const auto begin_of = [&](const auto& run) { return static_cast<std::size_t>(run.first.data() - data.data()); };
  std::sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    return std::pair(begin_of(a), a.first.size()) < std::pair(begin_of(b), b.first.size());
  });
  std::size_t end = 0;
  for (const auto& run : runs) {
    if (begin_of(run) != end)
      return fail(ErrorCode::invalid_data,
                  fmt::format("{} is damaged: tensor '{}' begins at byte {} of the data, but the tensor before it ends at {}",
                              what, run.second, begin_of(run), end));
    end += run.first.size();
  }
  if (end != data.size())
    return fail(ErrorCode::invalid_data,
                fmt::format("{} is damaged: it has {} bytes of tensor data, but its tensors need {}", what, data.size(), end));
  return {};
}

/// A shard's name comes from a file of strangers and must not lead out of the model's folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<Tensors> parse_safetensors(std::span<const std::byte> file, std::string_view what) {
  if (file.size() < kLengthBytes)
    return fail(ErrorCode::invalid_data, fmt::format("{} is truncated: it has {} bytes, and a safetensors file has at least {}",
                                                     what, file.size(), kLengthBytes));
  static_assert(std::endian::native == std::endian::little, "the format and the tensors in it are little-endian");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes)
    return fail(ErrorCode::invalid_data,
                fmt::format("{} is not a safetensors file: it would have a header of {} bytes; the limit is {}", what,
                            header_bytes, kMaxHeaderBytes));
  if (header_bytes > file.size() - kLengthBytes)
    return fail(ErrorCode::invalid_data, fmt::format("{} is truncated: its header has {} bytes, but only {} are there", what,
                                                     header_bytes, file.size() - kLengthBytes));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes);
  const auto data = file.subspan(kLengthBytes + header_bytes);
  auto header = json::parse(text, fmt::format("the header of {}", what));
  if (!header) return fail(ErrorCode::invalid_data, std::move(header.error().message));
  if (!header->is_object()) return fail(ErrorCode::invalid_data, fmt::format("the header of {} is not a JSON object", what));
  Tensors tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    auto tensor = parse_entry(entry, data);
    if (!tensor) return fail(ErrorCode::invalid_data, fmt::format("{}: tensor '{}': {}", what, name, tensor.error().message));
    tensors.emplace(name, std::move(*tensor));
  }
  BATON_TRY_VOID(check_coverage(tensors, data, what));
  return tensors;
}

Result<Checkpoint> Checkpoint::open_single(const std::filesystem::path& path) {
  Checkpoint checkpoint;
  BATON_TRY(MappedFile file, MappedFile::open(path));
  BATON_TRY(checkpoint.tensors_, parse_safetensors(file.bytes(), path.string()));
  checkpoint.files_.push_back(std::move(file));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_sharded(const std::filesystem::path& path) {
  BATON_TRY(const json::Value index, json::parse_file(path));
  const json::Value* shard_of = json::find(index, "weight_map");
  if (shard_of == nullptr || !shard_of->is_object())
    return fail(ErrorCode::invalid_data, fmt::format("{} has no object 'weight_map'", path.string()));
  Checkpoint checkpoint;
  std::map<std::string, Tensors> shards;
  std::vector<std::string> surplus;
  for (const auto& [name, value] : shard_of->items()) {
    auto shard = json::convert<std::string>(value, name);
    if (!shard || !is_plain_file_name(*shard))
      return fail(ErrorCode::invalid_data,
                  fmt::format("{}: the shard of '{}' must be a file name in the same folder", path.string(), name));
    auto [place, is_new] = shards.try_emplace(*shard);
    if (is_new) {
      const std::filesystem::path shard_path = path.parent_path() / *shard;
      BATON_TRY(MappedFile file, MappedFile::open(shard_path));
      BATON_TRY(place->second, parse_safetensors(file.bytes(), shard_path.string()));
      checkpoint.files_.push_back(std::move(file));
    }
    if (const auto tensor = place->second.find(name); tensor != place->second.end())
      checkpoint.tensors_.emplace(name, tensor->second);
    else
      surplus.push_back(fmt::format("{} in {}", name, *shard));
  }
  if (!surplus.empty())  // code that needs one of them says that it lacks
    log::warning("event=index_names_absent_tensors index={} tensors={} first={}", log_value(path.string()), surplus.size(),
                 log_value(surplus.front()));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    return fail(ErrorCode::not_found, fmt::format("{} is not a folder", folder.string()));
  if (std::filesystem::exists(folder / kSingleFile, ignored)) return open_single(folder / kSingleFile);
  if (std::filesystem::exists(folder / kIndexFile, ignored)) return open_sharded(folder / kIndexFile);
  const std::string others = other_weights_in(folder);
  return fail(ErrorCode::not_found, fmt::format("{} has no weights: neither {} nor {} is there{}{}", folder.string(),
                                                kSingleFile, kIndexFile, others.empty() ? "" : "; ", others));
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Result<ConstTensorView> Checkpoint::load(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return fail(ErrorCode::not_found, fmt::format("the checkpoint has no tensor '{}'", name));
  const StoredTensor& tensor = found->second;
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}' has the element type {}, which is not supported", name, tensor.dtype));
  if (tensor.shape.size() > static_cast<std::size_t>(Shape::kMaxRank))
    return fail(ErrorCode::unsupported, fmt::format("tensor '{}' has the shape {}; at most {} dimensions are supported", name,
                                                    to_text(tensor.shape), Shape::kMaxRank));
  Shape shape;
  for (const std::int64_t size : tensor.shape) shape.append(size);
  return ConstTensorView{tensor.bytes.data(), *dtype, shape};
}

Result<ConstTensorView> Checkpoint::load(std::string_view name, const Shape& expected) const {
  BATON_TRY(const ConstTensorView tensor, load(name));
  if (tensor.shape != expected)
    return fail(ErrorCode::invalid_data, fmt::format("tensor '{}' has the shape {}; the configuration asks for {}", name,
                                                     to_string(tensor.shape), to_string(expected)));
  return tensor;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

std::size_t Checkpoint::total_bytes() const {
  std::size_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += tensor.bytes.size();
  return total;
}

void Checkpoint::drop_pages(const ConstTensorView& tensor) const {
  if (tensor.data == nullptr || tensor.size_bytes() == 0) return;
  for (const MappedFile& file : files_) {
    const auto bytes = file.bytes();
    if (std::less_equal<>{}(bytes.data(), tensor.data) && std::less<>{}(tensor.data, bytes.data() + bytes.size()))
      return file.drop_pages({tensor.data, tensor.size_bytes()});
  }
  check_failed("Checkpoint::drop_pages: the view is not of this checkpoint");
}

}  // namespace baton
