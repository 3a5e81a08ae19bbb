/// Work that memory may not suffice for (core/attempt.h).
#include "core/attempt.h"

#include <new>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Attempt, says_whether_there_was_memory) {
  EXPECT_TRUE(attempt([] {}));
  EXPECT_FALSE(attempt([] { throw std::bad_alloc(); }));
}

TEST(Attempt, lets_other_exceptions_pass) {
  EXPECT_THROW(attempt([] { throw 1; }), int);
}

}  // namespace
}  // namespace baton
