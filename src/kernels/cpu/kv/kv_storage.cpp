/// The CPU's tiles of keys and values: memory, copies, and conversion to and from the canonical form.
#include "kernels/cpu/kv/kv_storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>

namespace baton::cpu {
namespace {

constexpr std::size_t kHugePageBytes = 2 << 20;

std::int32_t padded_v_dim(const KvShape& shape) { return (shape.v_dim() + 15) / 16 * 16; }

std::size_t part_bytes(const KvShape& shape, std::int32_t dim) {
  return static_cast<std::size_t>(kTileTokens) * static_cast<std::size_t>(dim) * size_bytes(shape.dtype);
}

/// In double, because the size of a shape that no machine can hold must not overflow.
double storage_bytes(const KvShape& shape) {
  return static_cast<double>(part_bytes(shape, shape.head_dim) + part_bytes(shape, padded_v_dim(shape))) *
         (shape.block_len / kTileTokens) * shape.n_blocks * shape.n_kv_heads * shape.n_layers;
}

/// Index of element `dim` of token `token` in the K part of its tile, in elements. Dimensions (in V: tokens) that
/// share a word are adjacent.
template <class T>
constexpr std::size_t k_index(std::size_t token, std::size_t dim) {
  constexpr std::size_t n = 4 / sizeof(T);
  return (dim / n * kTileTokens + token) * n + dim % n;
}
template <class T>
constexpr std::size_t v_index(std::size_t token, std::size_t dim, std::size_t v_dim) {
  constexpr std::size_t n = 4 / sizeof(T);
  return (token / n * v_dim + dim) * n + token % n;
}

/// The parts of a block's canonical form, K and V or K alone: whether each is V.
std::span<const bool> parts_of(const KvShape& shape) {
  static constexpr std::array<bool, 2> kParts{false, true};
  return std::span(kParts).first(shape.has_values() ? 2 : 1);
}

/// Calls body(T{}) with T = the storage's element type.
template <class Body>
void visit_element(DType dtype, Body&& body) {
  if (dtype == DType::bf16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

}  // namespace

Result<std::unique_ptr<CpuKvStorage>> CpuKvStorage::make(const KvShape& shape) {
  if (shape.dtype != DType::f32 && shape.dtype != DType::bf16)
    return fail(ErrorCode::unsupported,
                "the CPU keeps keys and values as float32 or bfloat16, not as " + std::string(to_string(shape.dtype)));
  const std::int32_t largest = shape.has_values() ? kMaxHeadDim : kMaxLatentHeadDim;
  if (shape.head_dim < 2 || shape.head_dim > largest || shape.head_dim % 2 != 0)
    return fail(ErrorCode::unsupported, "the CPU's attention takes even head sizes up to " + std::to_string(largest) +
                                            ", not " + std::to_string(shape.head_dim));
  check(shape.has_values() || (shape.n_kv_heads == 1 && shape.latent_dim <= shape.head_dim),
        "CpuKvStorage: latent vectors of several heads, or longer than keys");
  check(shape.n_layers >= 1 && shape.n_blocks >= 1 && shape.n_kv_heads >= 1, "CpuKvStorage: an empty shape");
  check(shape.k_scales.empty() && shape.v_scales.empty(), "CpuKvStorage: scales of a type that has none");
  check(shape.block_len >= 16 && shape.block_len <= 256 && (shape.block_len & (shape.block_len - 1)) == 0,
        "CpuKvStorage: block_len is not a power of two from 16 to 256");
  constexpr double kMostBytes = 1ull << 46;
  const double wanted = storage_bytes(shape);
  const auto bytes =
      (static_cast<std::size_t>(std::min(wanted, kMostBytes)) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // One extra huge page, so that the first one can be aligned; pages that are never touched take no memory.
  errno = ENOMEM;
  void* mapped = wanted > kMostBytes
                     ? MAP_FAILED
                     : mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return fail(ErrorCode::out_of_memory, "cannot reserve " +
                                              std::to_string(static_cast<std::int64_t>(std::min(wanted / (1 << 20), 9e18))) +
                                              " MiB for keys and values: " + std::strerror(errno));
  auto* data = static_cast<std::byte*>(mapped);
  const std::size_t skipped = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(data) % kHugePageBytes) % kHugePageBytes;
  if (skipped > 0) munmap(data, skipped);
  if (skipped < kHugePageBytes) munmap(data + skipped + bytes, kHugePageBytes - skipped);
  data += skipped;
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: without huge pages reads are slower but correct
  return std::unique_ptr<CpuKvStorage>(new CpuKvStorage(shape, data, bytes));
}

std::int64_t CpuKvStorage::bytes_of_block(const KvShape& shape) {
  return static_cast<std::int64_t>(part_bytes(shape, shape.head_dim) + part_bytes(shape, padded_v_dim(shape))) *
         (shape.block_len / kTileTokens) * shape.n_kv_heads * shape.n_layers;
}

CpuKvStorage::CpuKvStorage(const KvShape& shape, std::byte* data, std::size_t size_bytes)
    : KvStorage(shape),
      v_dim_(padded_v_dim(shape)),
      k_part_bytes_(part_bytes(shape, shape.head_dim)),
      tile_bytes_(k_part_bytes_ + part_bytes(shape, padded_v_dim(shape))),
      block_bytes_(tile_bytes_ * static_cast<std::size_t>(shape.block_len / kTileTokens)),
      data_(data),
      size_bytes_(size_bytes) {}

CpuKvStorage::~CpuKvStorage() { munmap(data_, size_bytes_); }

void CpuKvStorage::check_block(BlockId block) const {
  check(block.value >= 0 && block.value < shape().n_blocks, "CpuKvStorage: a block that does not exist");
}

void CpuKvStorage::copy_blocks(std::span<const BlockId> from, std::span<const BlockId> to) {
  check(from.size() == to.size(), "CpuKvStorage::copy_blocks: lists of different lengths");
  for (std::size_t i = 0; i < from.size(); ++i) {
    check_block(from[i]);
    check_block(to[i]);
  }
  for (int layer = 0; layer < shape().n_layers; ++layer)
    for (int head = 0; head < shape().n_kv_heads; ++head)
      for (std::size_t i = 0; i < from.size(); ++i)
        std::memcpy(data_ + block_offset(layer, head, to[i]), data_ + block_offset(layer, head, from[i]), block_bytes_);
}

void CpuKvStorage::export_block(BlockId block, TensorView out) const {
  check_block(block);
  check(out.size_bytes() == static_cast<std::size_t>(shape().block_bytes()),
        "CpuKvStorage::export_block: `out` has the wrong size");
  visit_element(shape().dtype, [&]<class T>(T) {
    const auto dim = static_cast<std::size_t>(shape().head_dim);
    const auto v_dim = static_cast<std::size_t>(v_dim_);
    T* to = reinterpret_cast<T*>(out.data);
    for (int layer = 0; layer < shape().n_layers; ++layer)
      for (const bool is_value : parts_of(shape()))
        for (int head = 0; head < shape().n_kv_heads; ++head)
          for (std::size_t token = 0; token < static_cast<std::size_t>(shape().block_len); ++token) {
            const std::byte* tile = data_ + block_offset(layer, head, block) + token / kTileTokens * tile_bytes_;
            const T* part = reinterpret_cast<const T*>(is_value ? tile + k_part_bytes_ : tile);
            for (std::size_t i = 0; i < dim; ++i)
              *to++ = part[is_value ? v_index<T>(token % kTileTokens, i, v_dim) : k_index<T>(token % kTileTokens, i)];
          }
  });
}

void CpuKvStorage::import_block(BlockId block, ConstTensorView in) {
  check_block(block);
  check(in.size_bytes() == static_cast<std::size_t>(shape().block_bytes()),
        "CpuKvStorage::import_block: `in` has the wrong size");
  visit_element(shape().dtype, [&]<class T>(T) {
    const auto dim = static_cast<std::size_t>(shape().head_dim);
    const auto v_dim = static_cast<std::size_t>(v_dim_);
    const auto n_values = static_cast<std::size_t>(shape().v_dim());
    const T* from = reinterpret_cast<const T*>(in.data);
    for (int layer = 0; layer < shape().n_layers; ++layer)
      for (const bool is_value : parts_of(shape()))
        for (int head = 0; head < shape().n_kv_heads; ++head)
          for (std::size_t token = 0; token < static_cast<std::size_t>(shape().block_len); ++token, from += dim) {
            std::byte* tile = data_ + block_offset(layer, head, block) + token / kTileTokens * tile_bytes_;
            T* const k = reinterpret_cast<T*>(tile);
            T* const v = reinterpret_cast<T*>(tile + k_part_bytes_);
            const std::size_t in_tile = token % kTileTokens;
            if (!is_value)
              for (std::size_t i = 0; i < dim; ++i) k[k_index<T>(in_tile, i)] = from[i];
            if (is_value || !shape().has_values())
              for (std::size_t i = 0; i < n_values; ++i) v[v_index<T>(in_tile, i, v_dim)] = from[i];
          }
  });
}

void CpuKvStorage::save_block(BlockId block, std::byte* host) const {
  check_block(block);
  for (int layer = 0; layer < shape().n_layers; ++layer)
    for (int head = 0; head < shape().n_kv_heads; ++head, host += block_bytes_)
      std::memcpy(host, data_ + block_offset(layer, head, block), block_bytes_);
}

void CpuKvStorage::load_block(BlockId block, const std::byte* host) {
  check_block(block);
  for (int layer = 0; layer < shape().n_layers; ++layer)
    for (int head = 0; head < shape().n_kv_heads; ++head, host += block_bytes_)
      std::memcpy(data_ + block_offset(layer, head, block), host, block_bytes_);
}

void CpuKvStorage::fill_bytes(std::uint8_t value) { std::memset(data_, value, size_bytes_); }

void CpuKvStorage::write_token(int layer, int kv_head, std::int64_t kv_index, const float* key, const float* value) {
  const std::int64_t block_len = shape().block_len;
  check(kv_index >= 0 && kv_index < block_len * shape().n_blocks, "CpuKvStorage::write_token: a position that does not exist");
  const BlockId block{static_cast<std::int32_t>(kv_index / block_len)};
  const auto offset = static_cast<std::size_t>(kv_index % block_len);
  std::byte* tile = data_ + block_offset(layer, kv_head, block) + offset / kTileTokens * tile_bytes_;
  const std::size_t token = offset % kTileTokens;
  visit_element(shape().dtype, [&]<class T>(T) {
    T* k = reinterpret_cast<T*>(tile);
    T* v = reinterpret_cast<T*>(tile + k_part_bytes_);
    const auto v_dim = static_cast<std::size_t>(v_dim_);
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape().head_dim); ++i) k[k_index<T>(token, i)] = T(key[i]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape().v_dim()); ++i) v[v_index<T>(token, i, v_dim)] = T(value[i]);
  });
}

}  // namespace baton::cpu
