/// The choice of the architecture whose CUDA kernels run (kernels/cuda/device/architecture.h).
#include "kernels/cuda/device/architecture.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

TEST(CudaArchitecture, is_the_device_s_unless_asked_otherwise) {
  EXPECT_EQ(choose_architecture(90, nullptr).value(), 90);
  EXPECT_EQ(choose_architecture(87, "").value(), 87);
}

TEST(CudaArchitecture, later_devices_run_the_code_for_the_oldest) {
  EXPECT_EQ(choose_architecture(100, nullptr).value(), 80);
  EXPECT_EQ(choose_architecture(120, "").value(), 80);
}

TEST(CudaArchitecture, a_lower_one_can_be_forced) {
  for (const int lower : {80, 86, 89, 90}) EXPECT_EQ(choose_architecture(90, std::to_string(lower).c_str()).value(), lower);
  EXPECT_EQ(choose_architecture(120, "89").value(), 89);
}

TEST(CudaArchitecture, one_that_the_device_lacks_is_refused) {
  for (const auto& [device, wanted] : {std::pair{86, "89"}, std::pair{100, "90"}}) {
    const auto chosen = choose_architecture(device, wanted);
    ASSERT_FALSE(chosen) << device;
    EXPECT_EQ(chosen.error().code, ErrorCode::unsupported);
    EXPECT_NE(chosen.error().message.find(std::to_string(device)), std::string::npos);
  }
}

TEST(CudaArchitecture, an_unknown_one_is_refused_by_name) {
  for (const char* const wanted : {"sm_80", "8.0", "75", "800"}) {
    const auto chosen = choose_architecture(90, wanted);
    ASSERT_FALSE(chosen) << wanted;
    EXPECT_EQ(chosen.error().code, ErrorCode::invalid_request);
    EXPECT_NE(chosen.error().message.find(wanted), std::string::npos);
  }
}

TEST(CudaArchitecture, small_ones_have_less_shared_memory) {
  EXPECT_EQ(most_shared_bytes(86), 101'376u);  // NVIDIA's table for RTX 30 and RTX 40
  EXPECT_EQ(most_shared_bytes(89), 101'376u);
  EXPECT_EQ(most_shared_bytes(80), 166'912u);
  EXPECT_EQ(most_shared_bytes(90), 232'448u);
}

}  // namespace
}  // namespace baton::cuda
