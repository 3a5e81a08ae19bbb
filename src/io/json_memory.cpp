/// Heads of JSON values that exist before memory is short.
#include "io/json_memory.h"

#include <array>
#include <atomic>
#include <functional>

namespace baton::json {
namespace {

struct Head {
  alignas(std::max_align_t) std::array<std::byte, HeadReserve::kHeadBytes> bytes;
};

constinit std::array<Head, HeadReserve::kHeads> heads{};
constinit std::array<std::atomic<bool>, HeadReserve::kHeads> is_taken{};

}  // namespace

void* HeadReserve::take(std::size_t n_heads) {
  for (std::size_t i = 0; i < n_heads; ++i)
    if (!is_taken[i].load(std::memory_order_relaxed) && !is_taken[i].exchange(true, std::memory_order_acquire))
      return &heads[i];
  throw std::bad_alloc();
}

bool HeadReserve::give_back(const void* block) noexcept {
  const auto* const head = static_cast<const Head*>(block);
  constexpr std::less<> is_before;
  if (is_before(head, heads.data()) || !is_before(head, heads.data() + heads.size())) return false;
  is_taken[static_cast<std::size_t>(head - heads.data())].store(false, std::memory_order_release);
  return true;
}

}  // namespace baton::json
