/// Tests of the two-way table between token texts and ids.
#include "text/models/vocabulary.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Vocabulary, finds_texts_and_ids_and_survives_a_move) {
  Vocabulary built;
  EXPECT_TRUE(built.insert("a", 3));
  EXPECT_TRUE(built.insert("", 0));
  const Vocabulary vocabulary = std::move(built);
  EXPECT_EQ(vocabulary.id_of("a"), 3);
  EXPECT_EQ(vocabulary.id_of("b"), std::nullopt);
  EXPECT_EQ(vocabulary.text_of(3), "a");
  EXPECT_TRUE(vocabulary.contains(0));
  EXPECT_FALSE(vocabulary.contains(1));
  EXPECT_EQ(vocabulary.text_of(-1), "");
  EXPECT_EQ(vocabulary.text_of(4), "");
  EXPECT_EQ(vocabulary.n_ids(), 4);
}

TEST(Vocabulary, refuses_ids_out_of_range_and_texts_it_has) {
  Vocabulary vocabulary;
  EXPECT_FALSE(vocabulary.insert("a", -1));
  EXPECT_FALSE(vocabulary.insert("a", kMaxTokenId + 1));
  EXPECT_TRUE(vocabulary.insert("a", 1));
  EXPECT_FALSE(vocabulary.insert("a", 2));
  EXPECT_EQ(vocabulary.id_of("a"), 1);
  EXPECT_TRUE(vocabulary.insert("b", 1));
  EXPECT_EQ(vocabulary.text_of(1), "a");
}

}  // namespace
}  // namespace baton
