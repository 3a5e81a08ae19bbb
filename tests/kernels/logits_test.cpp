/// Scale and soft-cap of logits against their formulas in float64, on every backend.
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::test_backends;
using testing::TestBackend;

// Each number by itself, so that small results are not lost beside large ones.
TEST(ScaleLogits, equals_the_formula_at_every_size_of_logit) {
  for (const TestBackend& test : test_backends()) {
    SCOPED_TRACE(test.name);
    for (const std::int64_t n_rows : {0, 1, 3})
      for (const std::int64_t n_vocab : {1, 7, 64, 50257})
        for (const auto& [scale, softcap] : {std::pair{1.0f, 30.0f}, {0.0625f, 0.0f}, {0.125f, 2.0f}, {1.0f, 0.0f}}) {
          std::mt19937 random(4);
          std::uniform_real_distribution<float> exponent(-20, 20);
          HostTensor before(DType::f32, {n_rows, n_vocab});
          for (std::int64_t i = 0; i < n_rows * n_vocab; ++i)
            before.set(i, (i % 2 == 0 ? 1.0f : -1.0f) * std::exp2(exponent(random)));
          const OnDevice logits(test.backend, before);
          scale_logits(test.backend, {logits.view(), scale, softcap});
          const HostTensor got = logits.to_host();
          for (std::int64_t i = 0; i < n_rows * n_vocab; ++i) {
            const double scaled = before.at(i) * static_cast<double>(scale);
            const double cap = static_cast<double>(softcap);
            const double expected = cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
            // A few units in the last place of tanh, and three roundings.
            ASSERT_NEAR(got.at(i), expected, 8 * testing::epsilon(DType::f32) * std::abs(expected))
                << before.at(i) << ", scale " << scale << ", cap " << softcap;
          }
        }
  }
}

}  // namespace
}  // namespace baton
