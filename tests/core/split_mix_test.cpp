#include "core/split_mix.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SplitMix, gives_the_published_outputs_of_seed_1234567) {
  constexpr std::uint64_t kPublished[] = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                          4593380528125082431U, 16408922859458223821U};
  std::uint64_t index = 0;
  for (const std::uint64_t expected : kPublished) EXPECT_EQ(split_mix(1234567, index++), expected);
}

}  // namespace
}  // namespace baton
