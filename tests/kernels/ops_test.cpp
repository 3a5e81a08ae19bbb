/// The checks in front of every operation: what is wrong is named before a backend sees it.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "support/host_tensor.h"
#include "support/recording_backend.h"

namespace baton {
namespace {

using testing::HostTensor;

TEST(OpsDeathTest, a_wrong_shape_is_named_with_both_shapes) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {7});
  HostTensor out(DType::f32, {3, 8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), out.view()}), "weight has shape .*7.*expected .*8");
  HostTensor gate_up(DType::f32, {3, 15});
  EXPECT_DEATH(silu_mul(backend, {gate_up.view(), out.view()}), "shape .*15.*expected .*16");
}

TEST(OpsDeathTest, a_wrong_dtype_is_named) {
  test::RecordingBackend backend;
  HostTensor x(DType::bf16, {3, 8});
  HostTensor weight(DType::f32, {8});
  HostTensor out(DType::f32, {3, 8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), out.view()}), "x must be float32, is bfloat16");
  HostTensor table(DType::i32, {16, 8});
  HostTensor ids(DType::i32, {3});
  EXPECT_DEATH(embedding(backend, {out.view(), table.view(), ids.view()}), "table must be f32, bf16 or f16, is int32");
}

TEST(OpsDeathTest, overlapping_memory_is_refused) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor weight(DType::f32, {8});
  EXPECT_DEATH(rms_norm(backend, {x.view(), {}, weight.view(), x.view()}), "out overlaps x");
  EXPECT_DEATH(all_gather(backend, x.view(), x.view()), "out overlaps part");
}

TEST(OpsDeathTest, a_product_needs_a_weight_of_its_width_and_dtype) {
  test::RecordingBackend backend;
  HostTensor x(DType::f32, {3, 8});
  HostTensor out(DType::f32, {3, 4});
  EXPECT_DEATH(matmul(backend, {x.view(), nullptr, out.view()}), "matmul: no weight");
  test::RecordedMatrix weight;
  weight.n = 4;
  weight.k = 9;
  weight.dtype = DType::f32;
  EXPECT_DEATH(matmul(backend, {x.view(), &weight, out.view()}), "matmul x has shape .*8.*expected .*9");
  weight.k = 8;
  weight.dtype = DType::bf16;
  EXPECT_DEATH(matmul(backend, {x.view(), &weight, out.view()}), "matmul x must be bfloat16, is float32");
}

}  // namespace
}  // namespace baton
