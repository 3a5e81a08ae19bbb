#include "kernels/cpu/pages.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

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

TEST(PagePool, gives_zeroed_memory_side_by_side_that_outlives_the_pool) {
  std::vector<std::shared_ptr<std::byte>> kept;
  const std::vector<std::size_t> sizes{1, 100, 5 * kMiB + 3, 40 * kMiB, 30 * kMiB, 70 * kMiB, 64};
  {
    PagePool pool;
    for (const std::size_t size : sizes) kept.push_back(pool.allocate(size).value());
    EXPECT_EQ(pool.allocate(0).value(), nullptr);
    EXPECT_FALSE(pool.allocate(std::size_t{1} << 60));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::span bytes(kept[i].get(), sizes[i]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0) << i;
    EXPECT_EQ(bytes.front(), std::byte{0}) << i;
    EXPECT_EQ(bytes.back(), std::byte{0}) << i;
    bytes.front() = bytes.back() = std::byte{1};
  }
  EXPECT_EQ(kept[1].get() - kept[0].get(), 64);
  EXPECT_EQ(kept[2].get() - kept[1].get(), 128);
}

}  // namespace
}  // namespace baton::cpu
