/// Tests of the pool of scratches.
#include "text/tokenizer/scratch_pool.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ScratchPool, hands_out_what_was_given_back_and_never_the_same_twice) {
  ScratchPool pool;
  std::unique_ptr<EncodeScratch> first = pool.take();
  const EncodeScratch* const address = first.get();
  const std::unique_ptr<EncodeScratch> second = pool.take();
  EXPECT_NE(second.get(), address);
  const std::vector<TokenId> ids = {7};
  first->words.insert("word", ids);
  pool.give_back(std::move(first));
  const std::unique_ptr<EncodeScratch> again = pool.take();
  EXPECT_EQ(again.get(), address);
  EXPECT_TRUE(again->words.find("word"));
  EXPECT_NE(pool.take().get(), address);
}

}  // namespace
}  // namespace baton
