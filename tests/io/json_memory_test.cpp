/// Memory runs out while JSON values are made: that throws, and the values that were begun end well.
#include "io/json_memory.h"

#include <cstdlib>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "core/thread_name.h"
#include "io/json.h"
#include "support/failing_allocations.h"

void* operator new(std::size_t size) { return baton::test::allocate(size); }
// Sorting in GoogleTest allocates with this form, which is another function under the address sanitizer.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* bytes) noexcept { std::free(bytes); }
void operator delete(void* bytes, std::size_t) noexcept { std::free(bytes); }

namespace baton::json {
namespace {

constexpr std::string_view kLong = "a text that needs memory of its own";

struct Case {
  std::string_view name;
  std::function<Value()> make;
  std::string_view made;
  bool loses_heads = false;  ///< with values in braces, in nlohmann-json 3.11.2, where memory is short
};

/// While it lives, the leak sanitizer does not report what is allocated.
class LeaksAreKnown {
 public:
#ifdef __SANITIZE_ADDRESS__
  explicit LeaksAreKnown(bool known) : known_(known) {
    if (known_) __lsan_disable();
  }
  ~LeaksAreKnown() {
    if (known_) __lsan_enable();
  }

 private:
  bool known_;
#else
  explicit LeaksAreKnown(bool) {}
  ~LeaksAreKnown() {}
#endif
};

std::vector<Case> cases() {
  return {
      {"a member of null",
       [] {
         Value value;
         value["a"]["b"] = kLong;
         value["c"] = 3;
         return value;
       },
       R"({"a":{"b":"a text that needs memory of its own"},"c":3})"},
      {"braces",
       [] {
         return Value{{"index", 3}, {"delta", {{"role", "assistant"}, {"content", kLong}}}, {"list", {1, 2, "three"}}};
       },
       R"({"index":3,"delta":{"role":"assistant","content":"a text that needs memory of its own"},"list":[1,2,"three"]})",
       /*loses_heads=*/true},
      {"growth of null",
       [] {
         Value value;
         value.push_back(1);
         value.emplace_back(kLong);
         value.push_back(Value::object());
         value.back().update(Value{{"a", kLong}, {"b", nullptr}});
         return value;
       },
       R"([1,"a text that needs memory of its own",{"a":"a text that needs memory of its own","b":null}])",
       /*loses_heads=*/true},
      {"copies",
       [] {
         const Value value = Value::array({kLong, Value::array({"short", Value::object()})});
         Value copies = Value::array({value});
         copies.push_back(value);
         copies[0] = value[1];
         return copies;
       },
       R"([["short",{}],["a text that needs memory of its own",["short",{}]]])"},
      {"a text that is read",
       [] { return *parse(R"({"a":[1,[],{},"b",{"c":"a text that needs memory of its own"}]})", "the text"); },
       R"({"a":[1,[],{},"b",{"c":"a text that needs memory of its own"}]})"},
  };
}

// The tests of the whole reserve come first: a value in braces whose parts find no memory may lose its head.

/// All blocks that there are for one kind of head.
std::set<void*> take_all(std::size_t n_heads) {
  std::set<void*> taken;
  try {
    while (true) taken.insert(HeadReserve::take(n_heads));
  } catch (const std::bad_alloc&) {
  }
  return taken;
}

TEST(HeadReserve, gives_each_block_once_and_takes_it_back) {
  for (int i = 0; i < 2; ++i) {
    const std::set<void*> taken = take_all(HeadReserve::kHeads);
    EXPECT_EQ(taken.size(), HeadReserve::kHeads);
    for (void* const block : taken) EXPECT_TRUE(HeadReserve::give_back(block));
  }
  const int elsewhere = 0;
  EXPECT_FALSE(HeadReserve::give_back(&elsewhere));
}

TEST(HeadReserve, keeps_half_for_lists_and_objects) {
  std::set<void*> taken = take_all(HeadReserve::kHeadsOfTexts);
  EXPECT_EQ(taken.size(), HeadReserve::kHeadsOfTexts);
  EXPECT_THROW(HeadReserve::take(HeadReserve::kHeadsOfTexts), std::bad_alloc);
  taken.merge(take_all(HeadReserve::kHeads));
  EXPECT_EQ(taken.size(), HeadReserve::kHeads);
  for (void* const block : taken) EXPECT_TRUE(HeadReserve::give_back(block));
}

TEST(JsonMemory, that_is_missing_throws_and_leaves_values_that_end) {
  name_this_thread("json");
  test::FailingAllocations& failing = test::FailingAllocations::instance();
  for (const Case& one : cases()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, std::string(one.name));
    const LeaksAreKnown known(one.loses_heads);
    for (const std::int64_t n_failing : {1, 3, 1000}) {
      std::int64_t n_thrown = 0;
      for (std::int64_t k = 0, n_reached = 1; n_reached > 0; ++k) {
        failing.fail("json", k, n_failing);
        try {
          const Value value = one.make();
          n_reached = failing.stop();
          EXPECT_EQ(dump(value), one.made);
        } catch (const std::bad_alloc&) {
          n_reached = failing.stop();
          ++n_thrown;
        }
      }
      EXPECT_GE(n_thrown, 3);
    }
  }
}

TEST(JsonMemory, of_heads_comes_back_when_values_end) {
  name_this_thread("json");
  test::FailingAllocations& failing = test::FailingAllocations::instance();
  for (std::size_t i = 0; i < 2 * HeadReserve::kHeads; ++i) {
    failing.fail("json", 0, 1);
    const Value value = i % 2 == 0 ? Value::object() : Value("short");
    EXPECT_EQ(failing.stop(), 1);
    EXPECT_EQ(dump(value), i % 2 == 0 ? "{}" : "\"short\"");
  }
}

}  // namespace
}  // namespace baton::json
