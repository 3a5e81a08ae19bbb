/// What the end of a JSON value allocates (io/json_dismantle.h).
#include "io/json_dismantle.h"

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace {
thread_local std::size_t n_allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++n_allocations;
  void* const memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// Sorting in GoogleTest allocates with this form, which is another function under the address sanitizer.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++n_allocations;
  return std::malloc(size > 0 ? size : 1);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace baton::json {
namespace {

constexpr std::string_view kText =
    R"({"list":[1,[2,[3,{"a":[4,5],"b":{}}]],"six"],"object":{"a":{"b":{"c":[null,true]}},"d":"e"},"n":7.5})";

/// Allocations of the end of the text's value.
std::size_t allocations_at_the_end(bool is_dismantled) {
  auto value = std::make_unique<Value>(*parse(kText, "the text"));
  const std::size_t before = n_allocations;
  if (is_dismantled) dismantle(*value);
  value.reset();
  return n_allocations - before;
}

TEST(JsonDismantle, a_value_ends_without_allocating) {
  EXPECT_EQ(allocations_at_the_end(true), 0u);
  EXPECT_GT(allocations_at_the_end(false), 0u) << "the library's own destructor needs no help any more";
}

TEST(JsonDismantle, empties_lists_and_objects_and_leaves_other_values) {
  Value value = *parse(kText, "the text");
  {
    const Dismantling end(value);
    EXPECT_EQ(dump(value), kText);
  }
  EXPECT_EQ(dump(value), "{}");
  Value text = "text";
  dismantle(text);
  EXPECT_EQ(dump(text), "\"text\"");
}

TEST(JsonDismantle, a_parse_that_fails_ends_without_the_librarys_destructor) {
  // Both stop at the same place; the second one has a list of 1,000 values to give up, which the library would copy.
  const auto allocations = [](const std::string& text) {
    const std::size_t before = n_allocations;
    EXPECT_FALSE(parse(text, "the text"));
    return n_allocations - before;
  };
  std::string values = "1";
  for (int i = 0; i < 999; ++i) values += ",1";
  const std::size_t n_growths = 11;  // 1, 2, 4, ... 1024
  EXPECT_LE(allocations("[[" + values + "],!"), allocations("[[1],!") + n_growths - 1);
}

}  // namespace
}  // namespace baton::json
