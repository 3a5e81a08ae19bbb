/// The choice of the instruction set: the processor's best, or a lower one by name.
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace baton::cpu {
namespace {

/// Sets BATON_CPU_ISA for one scope.
class WithIsa {
 public:
  explicit WithIsa(const std::string& name) { setenv("BATON_CPU_ISA", name.c_str(), 1); }
  ~WithIsa() { unsetenv("BATON_CPU_ISA"); }
};

TEST(CpuIsa, is_the_best_of_the_processor_unless_asked_otherwise) {
  unsetenv("BATON_CPU_ISA");
  EXPECT_EQ(detect_cpu_isa().value(), best_cpu_isa());
  const WithIsa empty("");
  EXPECT_EQ(detect_cpu_isa().value(), best_cpu_isa());
}

TEST(CpuIsa, every_set_up_to_the_best_can_be_forced) {
  for (const CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16, CpuIsa::amx_bf16}) {
    const WithIsa forced{std::string(to_string(isa))};
    const auto detected = detect_cpu_isa();
    if (isa <= best_cpu_isa()) {
      EXPECT_EQ(detected.value(), isa);
    } else {
      EXPECT_EQ(detected.error().code, ErrorCode::unsupported);
      EXPECT_NE(detected.error().message.find(to_string(isa)), std::string::npos);
    }
  }
}

TEST(CpuIsa, an_unknown_name_is_refused_by_name) {
  const WithIsa forced("avx1024");
  const auto detected = detect_cpu_isa();
  ASSERT_FALSE(detected);
  EXPECT_EQ(detected.error().code, ErrorCode::invalid_request);
  EXPECT_NE(detected.error().message.find("avx1024"), std::string::npos);
}

}  // namespace
}  // namespace baton::cpu
