/// Interpolation in measured steps, and grids that are none.
#include "engine/step/step_cost_table.h"

#include <cmath>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Entries = std::vector<StepCostTable::Entry>;

/// In an order of its own; without a time for no rows.
const Entries kGrid{{100, 200, 0.012}, {0, 100, 0.004}, {0, 200, 0.008}, {100, 0, 0.006}, {100, 100, 0.008}};

TEST(StepCostTable, interpolates_between_measurements_and_continues_the_last_slope) {
  std::string fault;
  const auto table = StepCostTable::make(kGrid, fault);
  ASSERT_TRUE(table) << fault;
  EXPECT_DOUBLE_EQ(table->seconds(100, 0), 0.006);
  EXPECT_DOUBLE_EQ(table->seconds(100, 100), 0.008);
  EXPECT_DOUBLE_EQ(table->seconds(100, 150), 0.010);
  EXPECT_DOUBLE_EQ(table->seconds(50, 100), 0.006);
  EXPECT_DOUBLE_EQ(table->seconds(100, 300), 0.016);
  EXPECT_DOUBLE_EQ(table->seconds(200, 100), 0.012);
  EXPECT_DOUBLE_EQ(table->seconds(0, 10), 0.004) << "no step is shorter than the shortest one";
}

TEST(StepCostTable, says_what_is_no_grid) {
  const auto fault_of = [](const Entries& entries) {
    std::string fault;
    EXPECT_FALSE(StepCostTable::make(entries, fault));
    return fault;
  };
  Entries entries = kGrid;
  entries.erase(entries.begin() + 4);
  EXPECT_EQ(fault_of(entries), "the time of a step of 100 decodes and 100 prompt tokens is missing");
  entries = kGrid;
  entries[2].seconds = 0;
  EXPECT_EQ(fault_of(entries), "steps[2]: a step of 0 decodes and 200 prompt tokens cannot take 0 s");
  for (const double seconds : {-0.001, std::nan(""), HUGE_VAL}) {
    entries[2].seconds = seconds;
    EXPECT_TRUE(fault_of(entries).starts_with("steps[2]: a step of 0 decodes and 200 prompt tokens cannot take ")) << seconds;
  }
  entries = kGrid;
  entries.push_back(entries[1]);
  EXPECT_EQ(fault_of(entries), "steps[5]: a step of 0 decodes and 100 prompt tokens is steps[1] already");
  const std::string few = "times are needed for at least two numbers of decodes, and for 0 and another number of prompt tokens";
  EXPECT_EQ(fault_of({{1, 0, 1}, {1, 10, 1}}), few);
  EXPECT_EQ(fault_of({{1, 10, 1}, {2, 10, 1}}), few);
  EXPECT_EQ(fault_of({{1, 10, 1}, {2, 10, 1}, {1, 20, 1}, {2, 20, 1}}), few);
  EXPECT_EQ(fault_of({}), few);
}

}  // namespace
}  // namespace baton
