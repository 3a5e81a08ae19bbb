#include "core/short_vector.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ShortVector, holds_what_a_vector_would) {
  ShortVector<std::string> list;
  std::vector<std::string> model;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.begin(), list.end());
  for (int i = 0; i < 5; ++i) {
    list.push_back("a string that is too long to stand in place " + std::to_string(i));
    model.push_back("a string that is too long to stand in place " + std::to_string(i));
    ASSERT_EQ(list.size(), model.size());
    EXPECT_TRUE(std::ranges::equal(list, model));
    EXPECT_EQ(list.front(), model.front());
    EXPECT_EQ(list.back(), model.back());
    EXPECT_EQ(list.at(model.size() - 1), model.back());
  }
  list.clear();
  EXPECT_TRUE(list.empty());
  list.push_back("again");
  EXPECT_EQ(list[0], "again");
}

TEST(ShortVector, moves_with_its_elements) {
  for (const int n : {0, 1, 3}) {
    ShortVector<std::unique_ptr<int>> list;
    for (int i = 0; i < n; ++i) list.push_back(std::make_unique<int>(i));
    const ShortVector<std::unique_ptr<int>> moved = std::move(list);
    ASSERT_EQ(moved.size(), static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) EXPECT_EQ(*moved[static_cast<std::size_t>(i)], i);
  }
}

TEST(ShortVector, elements_of_one_are_appended_to_another) {
  ShortVector<int> from{1, 2};
  ShortVector<int> to{0};
  std::ranges::move(from, std::back_inserter(to));
  EXPECT_TRUE(std::ranges::equal(to, std::vector<int>{0, 1, 2}));
}

TEST(ShortVectorDeathTest, at_checks_the_index) {
  const ShortVector<int> list{1};
  EXPECT_DEATH(list.at(1), "no such element");
}

}  // namespace
}  // namespace baton
