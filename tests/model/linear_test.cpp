/// Linear layers with and without bias, on every device.
#include "model/linear.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;

TEST(Linear, multiplies_and_adds_its_bias) {
  for (const testing::TestBackend& test : testing::test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(3);
    const HostTensor weight = testing::random_tensor(random, DType::f32, {24, 16});
    const HostTensor bias = testing::random_tensor(random, DType::f32, {24});
    const HostTensor x = testing::random_tensor(random, DType::f32, {5, 16});
    const OnDevice device_bias(test.backend, bias);
    const OnDevice device_x(test.backend, x);
    for (const bool has_bias : {false, true}) {
      auto packed = test.backend.pack_matrix(weight.view(), DType::f32, "w");
      ASSERT_TRUE(packed) << packed.error().message;
      const Linear linear(std::move(*packed), has_bias ? ConstTensorView(device_bias.view()) : ConstTensorView{});
      EXPECT_EQ(linear.n_in(), 16);
      EXPECT_EQ(linear.n_out(), 24);
      const OnDevice out(test.backend, HostTensor(DType::f32, {5, 24}));
      matmul(test.backend, linear.args(device_x.view(), out.view()));
      std::vector<double> expected;
      for (std::int64_t row = 0; row < 5; ++row)
        for (std::int64_t i = 0; i < 24; ++i) {
          double sum = has_bias ? bias.at(i) : 0;
          for (std::int64_t j = 0; j < 16; ++j) sum += x.at(row * 16 + j) * weight.at(i * 16 + j);
          expected.push_back(sum);
        }
      EXPECT_LE(testing::relative_error(out.to_host(), expected), 16 * testing::epsilon(DType::f32)) << has_bias;
    }
  }
}

TEST(GroupedLinear, multiplies_the_rows_of_each_expert_before_and_after_they_are_sorted) {
  for (const testing::TestBackend& test : testing::test_backends()) {
    SCOPED_TRACE(test.name);
    std::mt19937 random(5);
    const HostTensor weights = testing::random_tensor(random, DType::f32, {2, 24, 24});
    auto packed =
        test.backend.pack_experts(weights.shape, DType::f32, "w", [&](std::int64_t expert) -> Result<ConstTensorView> {
          return ConstTensorView{weights.view().rows(expert, expert + 1).data, DType::f32, {24, 24}};
        });
    ASSERT_TRUE(packed) << packed.error().message;
    const GroupedLinear linear(std::move(*packed));
    const HostTensor x = testing::random_tensor(random, DType::f32, {3, 24});
    const auto integers = [](std::initializer_list<std::int32_t> values) {
      HostTensor tensor(DType::i32, {static_cast<std::int64_t>(values.size())});
      std::memcpy(tensor.bytes.data(), values.begin(), tensor.bytes.size());
      return tensor;
    };
    const OnDevice rows(test.backend, integers({2, 0, 1}));  // row 2 by expert 0, rows 0 and 1 by expert 1
    const OnDevice offsets(test.backend, integers({0, 1, 3}));
    ExpertChoices choices;
    choices.rows = rows.view();
    choices.offsets = offsets.view();
    const OnDevice device_x(test.backend, x);
    for (const bool is_sorted : {false, true}) {
      const OnDevice out(test.backend, HostTensor(DType::f32, {3, 24}));
      grouped_matmul(test.backend, linear.args(device_x.view(), choices, is_sorted, out.view()));
      std::vector<double> expected;
      for (std::int64_t place = 0; place < 3; ++place)
        for (std::int64_t i = 0; i < 24; ++i) {
          double sum = 0;
          const std::int64_t row = is_sorted ? place : (place + 2) % 3;
          for (std::int64_t j = 0; j < 24; ++j) sum += x.at(row * 24 + j) * weights.at(((place > 0 ? 24 : 0) + i) * 24 + j);
          expected.push_back(sum);
        }
      EXPECT_LE(testing::relative_error(out.to_host(), expected), 16 * testing::epsilon(DType::f32)) << is_sorted;
    }
  }
}

TEST(LinearDeathTest, a_bias_of_another_width_is_refused) {
  test::RecordingBackend backend;
  std::mt19937 random(4);
  const HostTensor weight = testing::random_tensor(random, DType::f32, {24, 16});
  const HostTensor bias = testing::random_tensor(random, DType::f32, {23});
  auto packed = backend.pack_matrix(weight.view(), DType::f32, "w");
  ASSERT_TRUE(packed);
  EXPECT_DEATH(Linear(std::move(*packed), bias.view()), "a bias of another width than the weight's");
}

}  // namespace
}  // namespace baton
