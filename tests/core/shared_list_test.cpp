/// Lists whose copies share their elements.
#include "core/shared_list.h"

#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SharedList, holds_what_it_was_made_of) {
  const SharedList<int> list = {3, 1, 2};
  EXPECT_EQ(list.size(), 3u);
  EXPECT_FALSE(list.empty());
  EXPECT_EQ(list[1], 1);
  EXPECT_EQ(list.front(), 3);
  EXPECT_EQ(list.back(), 2);
  EXPECT_EQ(std::vector<int>(list.begin(), list.end()), (std::vector<int>{3, 1, 2}));
  EXPECT_EQ(std::span<const int>(list).size(), 3u);
}

TEST(SharedList, copies_share_the_elements_and_outlive_the_first) {
  SharedList<std::string> first = {"a text that is longer than a string holds in place"};
  const std::string* const element = first.data();
  const SharedList<std::string> copy = first;
  first = {};
  EXPECT_EQ(copy.data(), element);
  EXPECT_EQ(copy[0], "a text that is longer than a string holds in place");
}

TEST(SharedList, an_empty_list_has_no_elements) {
  const SharedList<int> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
  EXPECT_EQ(none, SharedList<int>(std::vector<int>()));
}

TEST(SharedList, is_equal_by_its_elements) {
  EXPECT_EQ((SharedList<int>{1, 2}), (std::vector<int>{1, 2}));
  EXPECT_NE((SharedList<int>{1, 2}), (SharedList<int>{1, 2, 3}));
  EXPECT_NE((SharedList<int>{1, 2}), (SharedList<int>{1, 3}));
  EXPECT_NE((SharedList<int>{1}), SharedList<int>());
}

}  // namespace
}  // namespace baton
