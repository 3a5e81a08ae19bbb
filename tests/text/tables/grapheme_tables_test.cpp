/// Tests of the properties of characters for grapheme clusters.
#include "text/tables/grapheme_tables.h"

#include <gtest/gtest.h>

namespace baton::unicode {
namespace {

TEST(GraphemeTables, know_members_and_neighbours) {
  EXPECT_EQ(cluster_properties(0), kClusterControl);
  EXPECT_EQ(cluster_properties('\n'), kClusterControl);
  EXPECT_EQ(cluster_properties(0x200B), kClusterControl);
  EXPECT_EQ(cluster_properties('a'), 0u);
  EXPECT_EQ(cluster_properties(0x2FF), 0u);
  EXPECT_EQ(cluster_properties(0x300), kClusterExtend | kClusterConjunctExtend);
  EXPECT_EQ(cluster_properties(0x200C), kClusterExtend);
  EXPECT_EQ(cluster_properties(0x200D), kClusterSpacing | kClusterConjunctExtend);
  EXPECT_EQ(cluster_properties(0x903), kClusterSpacing);
  EXPECT_EQ(cluster_properties(0x600), kClusterPrepend);
  EXPECT_EQ(cluster_properties(0xA9), kClusterPictographic);
  EXPECT_EQ(cluster_properties(0x1F600), kClusterPictographic);
  EXPECT_EQ(cluster_properties(0x915), kClusterConsonant);
  EXPECT_EQ(cluster_properties(0x94D), kClusterExtend | kClusterLinker | kClusterConjunctExtend);
  EXPECT_EQ(cluster_properties(0x10FFFF), 0u);
}

}  // namespace
}  // namespace baton::unicode
