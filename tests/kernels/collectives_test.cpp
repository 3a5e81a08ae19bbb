/// Sums and joins over several ranks: threads over shared memory on the CPU, several GPUs by NCCL.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/ops.h"
#include "support/host_tensor.h"
#include "support/on_device.h"
#include "support/rank_threads.h"
#include "support/test_backends.h"

namespace baton {
namespace {

using testing::HostTensor;
using testing::OnDevice;
using testing::random_tensor;
using testing::run_ranks;
using Group = std::shared_ptr<RankGroup>;

/// So little that data of more than some hundred elements go in pieces.
constexpr std::size_t kLittleMemory = 96 << 10;

RankOptions options_with_little_memory() {
  RankOptions options;
  options.memory_bytes = kLittleMemory;
  return options;
}

std::unique_ptr<Backend> backend_of(const Group& group, const std::string& device, int n_threads = 1,
                                    bool batch_invariant = false) {
  auto made = make_backend(
      device, {.n_threads = n_threads, .batch_invariant = batch_invariant, .device = group->rank(), .ranks = group});
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : nullptr;
}

/// What rank `rank` has: the same on every rank that asks.
HostTensor data_of(int rank, DType dtype, const Shape& shape) {
  std::mt19937 random(static_cast<std::uint32_t>(17 + rank));
  return random_tensor(random, dtype, shape);
}

/// The sum in f32 in rank order, rounded once.
HostTensor sum_in_rank_order(int n_ranks, DType dtype, const Shape& shape) {
  HostTensor sum(dtype, shape);
  std::vector<HostTensor> parts;
  for (int rank = 0; rank < n_ranks; ++rank) parts.push_back(data_of(rank, dtype, shape));
  for (std::int64_t i = 0; i < shape.n_elements(); ++i) {
    float total = static_cast<float>(parts[0].at(i));
    for (std::size_t rank = 1; rank < parts.size(); ++rank) total += static_cast<float>(parts[rank].at(i));
    sum.set(i, total);
  }
  return sum;
}

HostTensor joined(int n_ranks, DType dtype, std::int64_t n_rows, std::int64_t n, std::int64_t n_out) {
  HostTensor whole(dtype, {n_rows, n_out});
  for (int rank = 0; rank < n_ranks; ++rank) {
    const HostTensor part = data_of(rank, dtype, {n_rows, n});
    for (std::int64_t row = 0; row < n_rows; ++row)
      for (std::int64_t i = 0; i < n && rank * n + i < n_out; ++i)
        whole.set(row * n_out + rank * n + i, static_cast<float>(part.at(row * n + i)));
  }
  return whole;
}

/// all_gather of this rank's part; the others' parts are NaN before.
HostTensor gathered(Backend& backend, int n_ranks, int rank, DType dtype, std::int64_t n_rows, std::int64_t n,
                    std::int64_t n_out) {
  HostTensor parts(dtype, {n_ranks, n_rows, n});
  const HostTensor own = data_of(rank, dtype, {n_rows, n});
  if (!own.bytes.empty())
    std::memcpy(parts.bytes.data() + static_cast<std::size_t>(rank) * own.bytes.size(), own.bytes.data(), own.bytes.size());
  const OnDevice on_device(backend, parts);
  const OnDevice out(backend, HostTensor(dtype, {n_rows, n_out}));
  all_gather(backend, {on_device.view(), out.view()});
  return out.to_host();
}

constexpr DType kSummedTypes[] = {DType::f32, DType::bf16, DType::f16};

TEST(CpuCollectives, every_rank_has_the_sum_in_rank_order_to_the_bit) {
  for (const int n_ranks : {2, 3, 4}) {
    run_ranks(n_ranks, options_with_little_memory(), [&](const Group& group) {
      // Ranks with other numbers of threads cut the work elsewhere.
      const auto backend = backend_of(group, "cpu", 1 + group->rank() % 2);
      ASSERT_NE(backend, nullptr);
      EXPECT_EQ(backend->info().rank, group->rank());
      EXPECT_EQ(backend->info().world_size, n_ranks);
      for (const DType dtype : kSummedTypes)
        for (const std::int64_t n : {0, 1, 2, 31, 3000, 50021}) {
          HostTensor x = data_of(group->rank(), dtype, {n});
          all_reduce(*backend, x.view());
          EXPECT_EQ(x.bytes, sum_in_rank_order(n_ranks, dtype, {n}).bytes) << n << " elements, rank " << group->rank();
        }
    });
  }
}

TEST(CpuCollectives, every_rank_has_the_columns_of_all) {
  for (const int n_ranks : {2, 3}) {
    run_ranks(n_ranks, options_with_little_memory(), [&](const Group& group) {
      const auto backend = backend_of(group, "cpu");
      ASSERT_NE(backend, nullptr);
      for (const std::int64_t n_rows : {0, 1, 5, 70})
        for (const std::int64_t n : {8, 333, 9001})
          // The last rank has fewer columns than the others, or none.
          for (const std::int64_t n_missing : {std::int64_t{0}, std::int64_t{3}, n + 2}) {
            const std::int64_t n_out = n_ranks * n - n_missing;
            const HostTensor got = gathered(*backend, n_ranks, group->rank(), DType::f32, n_rows, n, n_out);
            EXPECT_EQ(got.bytes, joined(n_ranks, DType::f32, n_rows, n, n_out).bytes)
                << n_rows << " rows of " << n_out << ", rank " << group->rank();
          }
    });
  }
}

TEST(CpuCollectives, end_when_a_rank_is_lost) {
  run_ranks(3, [](const Group& group) {
    const auto backend = backend_of(group, "cpu");
    ASSERT_NE(backend, nullptr);
    HostTensor x = data_of(group->rank(), DType::f32, {100});
    all_reduce(*backend, x.view());
    if (group->rank() == 2) return group->fail("it stops here");
    all_reduce(*backend, x.view());  // would wait for ever
    gathered(*backend, 3, group->rank(), DType::f32, 4, 8, 24);
    EXPECT_TRUE(group->is_broken());
  });
}

TEST(CpuCollectives, share_the_processors_of_their_host) {
  auto alone = make_backend("cpu", {});
  ASSERT_TRUE(alone);
  const int n_all = (*alone)->tuning().attention_costs.n_workers;
  run_ranks(2, [&](const Group& group) {
    const auto backend = backend_of(group, "cpu", 0);
    ASSERT_NE(backend, nullptr);
    EXPECT_EQ(backend->tuning().attention_costs.n_workers, std::max(1, n_all / 2));
  });
}

/// The number of GPUs of this machine.
int n_gpus() {
  int n = 0;
  while (n < 8 && make_backend("cuda", {.device = n})) ++n;
  return n;
}

TEST(CudaCollectives, sum_and_join_over_all_gpus) {
  const int n_ranks = n_gpus();
  if (n_ranks < 2) GTEST_SKIP() << "fewer than two GPUs";
  run_ranks(n_ranks, [&](const Group& group) {
    const auto backend = backend_of(group, "cuda");
    ASSERT_NE(backend, nullptr);
    for (const DType dtype : kSummedTypes)
      for (const std::int64_t n : {1, 31, 4096, 500021}) {
        const OnDevice x(*backend, data_of(group->rank(), dtype, {n}));
        all_reduce(*backend, x.view());
        const HostTensor expected = sum_in_rank_order(n_ranks, dtype, {n});
        std::vector<double> sums;
        for (std::int64_t i = 0; i < n; ++i) sums.push_back(expected.at(i));
        EXPECT_LE(testing::relative_error(x.to_host(), sums), testing::epsilon(dtype) * n_ranks) << n << " elements";
      }
    for (const std::int64_t n_out : {n_ranks * 64, n_ranks * 64 - 3, n_ranks * 64 - 66}) {
      const HostTensor got = gathered(*backend, n_ranks, group->rank(), DType::f32, 5, 64, n_out);
      EXPECT_EQ(got.bytes, joined(n_ranks, DType::f32, 5, 64, n_out).bytes) << n_out;
    }
  });
}

TEST(CudaCollectives, are_captured_in_graphs) {
  const int n_ranks = n_gpus();
  if (n_ranks < 2) GTEST_SKIP() << "fewer than two GPUs";
  run_ranks(n_ranks, [&](const Group& group) {
    const auto backend = backend_of(group, "cuda");
    ASSERT_NE(backend, nullptr);
    for (const std::int64_t n_rows : {64, 600}) {
      const Shape shape{n_rows, 512};
      const HostTensor before = data_of(group->rank(), DType::f32, shape);
      const OnDevice x(*backend, before);
      auto graph = backend->capture([&] {
        all_reduce(*backend, x.view());
        scale_logits(*backend, {x.view(), 0.5f, 0});  // a launch that may overlap the kernel before it
        all_reduce(*backend, x.view());
      });
      ASSERT_TRUE(graph) << graph.error().message;
      const HostTensor sum = sum_in_rank_order(n_ranks, DType::f32, shape);
      std::vector<double> expected;
      for (std::int64_t i = 0; i < shape.n_elements(); ++i) expected.push_back(sum.at(i) * 0.5 * n_ranks);
      for (int replay = 0; replay < 3; ++replay) {
        backend->copy_from_host(x.view(), before.view());
        (*graph)->replay();
        EXPECT_LE(testing::relative_error(x.to_host(), expected), testing::epsilon(DType::f32) * 4)
            << n_rows << " rows, replay " << replay;
      }
    }
  });
}

/// Ranks with a CUDA device each; skipped where there are fewer GPUs.
class CudaSums : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (n_gpus() < n_ranks_) GTEST_SKIP() << "fewer than " << n_ranks_ << " GPUs";
  }
  /// Calls `work(backend, rank, dtype)` in each rank for each float dtype.
  template <class Work>
  void run_each_dtype(const Work& work, bool batch_invariant = false) const {
    run_ranks(n_ranks_, [&](const Group& group) {
      const auto backend = backend_of(group, "cuda", 1, batch_invariant);
      ASSERT_NE(backend, nullptr);
      for (const DType dtype : kSummedTypes) work(*backend, group->rank(), dtype);
    });
  }
  const int n_ranks_ = GetParam();
};

TEST_P(CudaSums, are_in_rank_order_to_the_bit_at_every_call) {
  run_each_dtype([&](Backend& backend, int rank, DType dtype) {
    // Sizes change from call to call, so that other places of the inboxes are used, by other blocks. NCCL takes the odd
    // sizes; it keeps no order.
    std::vector<std::int64_t> sizes;
    const std::vector<std::int64_t> of_two{8, 16, 8192, 131072, 4096, 1 << 20, 24, 2 << 20, 8240, 4 << 20};
    const std::vector<std::int64_t> of_more{16, 8192, 131072, 4096, 524288, 8240, 1 << 20};
    for (const std::int64_t n_bytes : n_ranks_ == 2 ? of_two : of_more)
      sizes.push_back(n_bytes / static_cast<std::int64_t>(size_bytes(dtype)));
    std::vector<HostTensor> inputs;
    std::vector<std::unique_ptr<OnDevice>> tensors;
    for (const std::int64_t n : sizes)
      tensors.push_back(std::make_unique<OnDevice>(backend, inputs.emplace_back(data_of(rank, dtype, {n}))));
    auto graph = backend.capture([&] {
      for (const auto& x : tensors) all_reduce(backend, x->view());
    });
    ASSERT_TRUE(graph) << graph.error().message;
    for (int replay = 0; replay < 200; ++replay) {
      for (std::size_t i = 0; i < sizes.size(); ++i) backend.copy_from_host(tensors[i]->view(), inputs[i].view());
      (*graph)->replay();
      if (replay % 50 != 49) continue;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        EXPECT_EQ(tensors[i]->to_host().bytes, sum_in_rank_order(n_ranks_, dtype, {sizes[i]}).bytes)
            << sizes[i] << " elements, replay " << replay << ", rank " << rank;
    }
  });
}

// Sums for which an inbox is too small, and those of which NCCL gathers the parts: halves of words, tensors that begin within a
// word, more than it gathers at once.
TEST_P(CudaSums, of_batch_invariant_mode_are_in_rank_order_to_the_bit_at_every_size) {
  run_each_dtype(
      [&](Backend& backend, int rank, DType dtype) {
        const auto elements_of = [&](std::int64_t n_bytes) { return n_bytes / static_cast<std::int64_t>(size_bytes(dtype)); };
        const std::vector<std::int64_t> sizes{1,
                                              31,
                                              elements_of(8192),
                                              elements_of((16 << 20) + 4112),
                                              elements_of(4 << 20) + 1,
                                              3,
                                              4096,
                                              elements_of(10 << 20) + 3,
                                              8};
        for (const std::int64_t n : sizes) {
          const std::int64_t n_before = n == 4096 ? 1 : 0;  // elements of the tensor that are not added
          const HostTensor expected = sum_in_rank_order(n_ranks_, dtype, {n + n_before});
          const HostTensor input = data_of(rank, dtype, {n + n_before});
          const OnDevice whole(backend, input);
          const TensorView x{whole.view().data + static_cast<std::size_t>(n_before) * size_bytes(dtype), dtype, {n}};
          auto graph = backend.capture([&] { all_reduce(backend, x); });
          ASSERT_TRUE(graph) << graph.error().message;
          for (const bool is_captured : {false, true}) {
            backend.copy_from_host(whole.view(), input.view());
            if (is_captured)
              (*graph)->replay();
            else
              all_reduce(backend, x);
            HostTensor got = whole.to_host();
            if (n_before > 0) {
              EXPECT_EQ(got.at(0), input.at(0)) << "before the tensor";
              got.set(0, static_cast<float>(expected.at(0)));
            }
            EXPECT_EQ(got.bytes, expected.bytes) << n << " elements, rank " << rank << (is_captured ? ", captured" : "");
          }
        }
      },
      /*batch_invariant=*/true);
}

// An empty place of an inbox holds this pattern.
TEST_P(CudaSums, of_what_has_all_bits_set_are_not_a_number) {
  run_each_dtype([&](Backend& backend, int rank, DType dtype) {
    constexpr std::int64_t kElements = 4096;
    const HostTensor sum = sum_in_rank_order(n_ranks_, dtype, {kElements});
    HostTensor x = data_of(rank, dtype, {kElements});
    const auto is_set = [&](std::int64_t i) { return i % 64 / 8 == rank || i >= kElements - 256; };
    const auto is_set_anywhere = [&](std::int64_t i) { return i % 64 / 8 < n_ranks_ || i >= kElements - 256; };
    for (std::int64_t i = 0; i < kElements; ++i)
      if (is_set(i)) std::memset(x.bytes.data() + static_cast<std::size_t>(i) * size_bytes(dtype), 0xff, size_bytes(dtype));
    for (int call = 0; call < 4; ++call) {  // both inboxes, and again
      const OnDevice on_device(backend, x);
      all_reduce(backend, on_device.view());
      const HostTensor got = on_device.to_host();
      for (std::int64_t i = 0; i < kElements; ++i) {
        if (is_set_anywhere(i))
          ASSERT_TRUE(std::isnan(static_cast<float>(got.at(i)))) << i << ", call " << call;
        else
          ASSERT_EQ(got.at(i), sum.at(i)) << i << ", call " << call;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaSums, ::testing::Values(2, 3, 4),
                         [](const auto& of) { return std::to_string(of.param) + "_ranks"; });

TEST(CudaCollectives, of_two_ranks_gather_between_sums_to_the_bit) {
  constexpr int n_ranks = 2;
  if (n_gpus() < n_ranks) GTEST_SKIP() << "fewer than two GPUs";
  struct Case {
    DType dtype;
    std::int64_t n_rows;
    std::int64_t n;
    std::int64_t n_out;
  };
  const std::vector<Case> cases{
      {DType::f32, 1, 4, 8},
      {DType::bf16, 3, 8, 16},
      {DType::f32, 5, 64128, 128256},
      {DType::f32, 7, 1000, 1996},
      {DType::f32, 33, 16000, 15996},    // the second rank has fewer columns, or none
      {DType::f32, 130, 64128, 128256},  // in several pieces
  };
  run_ranks(n_ranks, [&](const Group& group) {
    const auto backend = backend_of(group, "cuda");
    ASSERT_NE(backend, nullptr);
    const HostTensor sum = sum_in_rank_order(n_ranks, DType::bf16, {4096});
    for (const Case& of : cases) {
      const OnDevice x(*backend, data_of(group->rank(), DType::bf16, {4096}));
      all_reduce(*backend, x.view());
      const HostTensor got = gathered(*backend, n_ranks, group->rank(), of.dtype, of.n_rows, of.n, of.n_out);
      EXPECT_EQ(x.to_host().bytes, sum.bytes);
      EXPECT_EQ(got.bytes, joined(n_ranks, of.dtype, of.n_rows, of.n, of.n_out).bytes)
          << of.n_rows << " rows of " << of.n_out << ", rank " << group->rank();
    }
  });
}

TEST(CudaCollectives, of_two_ranks_gather_what_has_all_bits_set_as_not_a_number_of_the_same_bits) {
  constexpr int n_ranks = 2;
  if (n_gpus() < n_ranks) GTEST_SKIP() << "fewer than two GPUs";
  std::vector<HostTensor> of_rank(n_ranks, HostTensor(DType::f32, {2, 64}));
  run_ranks(n_ranks, [&](const Group& group) {
    const auto backend = backend_of(group, "cuda");
    ASSERT_NE(backend, nullptr);
    HostTensor parts(DType::f32, {n_ranks, 2, 32});
    std::memset(parts.bytes.data(), 0xff, parts.bytes.size());
    const OnDevice on_device(*backend, parts);
    const OnDevice out(*backend, HostTensor(DType::f32, {2, 64}));
    all_gather(*backend, {on_device.view(), out.view()});
    HostTensor& got = of_rank[static_cast<std::size_t>(group->rank())];
    got = out.to_host();
    for (std::int64_t i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(static_cast<float>(got.at(i)))) << i;
  });
  EXPECT_EQ(of_rank[0].bytes, of_rank[1].bytes);
}

TEST(CudaCollectives, end_when_a_rank_is_lost) {
  const int n_ranks = n_gpus();
  if (n_ranks < 2) GTEST_SKIP() << "fewer than two GPUs";
  run_ranks(n_ranks, [&](const Group& group) {
    const auto backend = backend_of(group, "cuda");
    ASSERT_NE(backend, nullptr);
    const OnDevice x(*backend, data_of(group->rank(), DType::f32, {4096}));
    const OnDevice large(*backend, data_of(group->rank(), DType::f32, {5000000}));  // of NCCL
    if (group->rank() == 0) return group->fail("it stops here");
    all_reduce(*backend, x.view());  // rank 0 never comes
    all_reduce(*backend, large.view());
    backend->synchronize();
    EXPECT_TRUE(group->is_broken());
    all_reduce(*backend, x.view());
    backend->synchronize();
  });
}

}  // namespace
}  // namespace baton
