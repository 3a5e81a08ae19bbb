#include "kernels/cpu/pages.h"

#include <algorithm>
#include <span>

#include <gtest/gtest.h>

namespace baton::cpu {
namespace {

constexpr std::size_t kMiB = 1 << 20;

TEST(Pages, are_zeroed_and_writable_to_the_last_byte) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, kMiB, 2 * kMiB, 3 * kMiB + 1, 5 * kMiB - 7}) {
    const auto buffer = allocate_pages(size);
    ASSERT_TRUE(buffer) << buffer.error().message;
    ASSERT_GE(buffer->size_bytes(), size);
    const std::span bytes(buffer->data(), buffer->size_bytes());
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; })) << size;
    std::ranges::fill(bytes, std::byte{1});
  }
}

TEST(Pages, of_half_a_huge_page_and_more_begin_on_one_and_waste_at_most_half_of_one) {
  for (const std::size_t size : {kMiB, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 5, 3 * kMiB, 100 * kMiB}) {
    const auto buffer = allocate_pages(size);
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % (2 * kMiB), 0) << size;
    EXPECT_LE(buffer->size_bytes() - size, kMiB) << size;
  }
}

TEST(Pages, of_nothing_are_an_empty_buffer_and_of_too_much_an_error) {
  EXPECT_EQ(allocate_pages(0).value().data(), nullptr);
  const auto refused = allocate_pages(std::size_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace baton::cpu
