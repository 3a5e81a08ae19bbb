/// Pausing, continuing and ending a function (core/resumable.h).
#include "core/resumable.h"

#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

Resumable write_letters(char first, int n, std::string& out) {
  for (int i = 0; i < n; ++i) {
    out += static_cast<char>(first + i);
    co_await Resumable::pause();
  }
  out += '.';
}

Resumable write_twice(std::string& out) {
  for (const char first : {'a', 'x'})
    for (Resumable part = write_letters(first, 2, out); part.resume();) co_await Resumable::pause();
}

TEST(Resumable, runs_from_pause_to_pause) {
  std::string out;
  Resumable letters = write_letters('a', 2, out);
  EXPECT_EQ(out, "") << "it begins when it is resumed";
  EXPECT_TRUE(letters.resume());
  EXPECT_EQ(out, "a");
  Resumable moved = std::move(letters);
  EXPECT_TRUE(moved.resume());
  EXPECT_FALSE(moved.resume());
  EXPECT_EQ(out, "ab.");
}

TEST(Resumable, pauses_where_a_part_of_it_does) {
  std::string out;
  Resumable both = write_twice(out);
  int n_pauses = 0;
  while (both.resume()) ++n_pauses;
  EXPECT_EQ(n_pauses, 4);
  EXPECT_EQ(out, "ab.xy.");
  out.clear();
  write_twice(out).finish();
  EXPECT_EQ(out, "ab.xy.");
}

Resumable hold(std::shared_ptr<int> held, bool fails) {
  co_await Resumable::pause();
  if (fails) throw std::runtime_error("no more");
  *held += 1;
}

TEST(Resumable, frees_what_it_holds_and_passes_exceptions_on) {
  const auto held = std::make_shared<int>(0);
  {
    Resumable paused = hold(held, false);
    EXPECT_TRUE(paused.resume());
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
  EXPECT_THROW(hold(held, true).finish(), std::runtime_error);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace baton
