/// Each of the first 400 allocations of each thread that serves requests fails, alone and with those after it.
#include "server/allocation_cases.h"

#include <cstdlib>

#include <gtest/gtest.h>

void* operator new(std::size_t size) { return baton::test::allocate(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

namespace baton {
namespace {

TEST_P(AllocationTest, that_fails_ends_an_exchange_and_not_the_program) { fail_each(400); }

TEST_P(AllocationTest, that_fails_with_the_next_ones_does_so_too) { fail_each(400, 5, 9); }

INSTANTIATE_TEST_SUITE_P(every_kind, AllocationTest, ::testing::ValuesIn(allocation_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton
