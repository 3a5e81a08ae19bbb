/// The short convolution of recurrent layers on the CPU: blocks of channels in parallel.
#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/rows/row_math.h"
#include "kernels/cpu/states/state_storage.h"

namespace baton::cpu {
namespace {

constexpr std::int64_t kChannels = 128;  ///< of a block

/// Some channels of a run of rows.
class ChannelBlock {
 public:
  ChannelBlock(const ShortConvArgs& args, std::int64_t first)
      : args_(args), first_(first), n_(std::min(kChannels, args.out.shape[1] - first)), n_taps_(args.weight.shape[1]) {
    const float* weight = args.weight.elements<float>().data() + first * n_taps_;
    for (std::int64_t j = 0; j < n_taps_; ++j)
      for (std::int64_t c = 0; c < n_; ++c) weights_[at(j)][at(c)] = weight[c * n_taps_ + j];
    if (args.bias.data != nullptr) std::copy_n(args.bias.elements<float>().data() + first, n_, bias_.data());
    ones_.fill(1);
  }

  void run(const CpuStateStorage& states, const StateRun& run) {
    const std::int64_t n_kept = n_taps_ - 1;
    const std::int64_t width = states.shape().n_channels;
    if (run.read_slot == StateRun::kZeroState) {
      for (Row& input : inputs_) input.fill(0);
    } else {
      const float* from = states.conv(args_.state.layer, run.read_slot) + first_;
      for (std::int64_t j = 0; j < n_kept; ++j) std::copy_n(from + j * width, n_, inputs_[at(j)].data());
    }
    // The inputs of a row lie in a ring, the oldest at `oldest`.
    std::int64_t oldest = 0;
    const auto newest = [&]() -> Row& { return inputs_[at((oldest + n_kept) % n_taps_)]; };
    const auto step = [&] { oldest = (oldest + 1) % n_taps_; };
    const auto write = [&] {
      float* to = states.conv(args_.state.layer, run.write_slot) + first_;
      for (std::int64_t j = 0; j < n_kept; ++j) std::copy_n(inputs_[at((oldest + j) % n_taps_)].data(), n_, to + j * width);
    };
    for (std::int32_t i = 0; i < run.n_replayed; ++i, step())
      std::copy_n(states.kept(args_.state.layer, run.first_replayed + i) + first_, n_, newest().data());
    for (std::int32_t i = 0; i < run.n_rows; ++i, step()) {
      if (i == run.n_written()) write();
      const std::int64_t r = run.first_row + i;
      load_input(r, newest());
      Row sum = bias_;
      for (std::int64_t j = 0; j < n_taps_; ++j)
        add_product(sum.data(), weights_[at(j)].data(), inputs_[at((oldest + j) % n_taps_)].data(), n_);
      finish(r, sum);
      store_f32(sum.data(), n_, args_.out, r * args_.out.shape[1] + first_);
      if (i >= run.n_written()) keep(states, run.first_kept + i - run.n_written(), newest(), sum);
    }
    if (run.n_drafts == 0) write();
  }

 private:
  using Row = std::array<float, kChannels>;
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  /// Part 0, 1 or 2 of x of row `r`: of the channels from args_.first on, or of as many after them.
  void load_part(std::int64_t r, std::int64_t part, Row& to) const {
    load_f32(args_.x, r * args_.x.shape[1] + args_.first + part * args_.out.shape[1] + first_, n_, to.data());
  }
  void load_input(std::int64_t r, Row& input) {
    load_part(r, 0, input);
    if (args_.kind != ConvKind::gated) return;
    load_part(r, 2, factors_);
    scale_by_weight(input.data(), 1, factors_.data(), n_, input.data());
  }
  /// From the sum to the output.
  void finish(std::int64_t r, Row& sum) {
    if (args_.kind != ConvKind::gated) return silu_times(sum.data(), ones_.data(), n_, sum.data());
    load_part(r, 1, factors_);
    scale_by_weight(sum.data(), 1, factors_.data(), n_, sum.data());
  }

  /// Keeps a draft's input and, for matrices, its output.
  void keep(const CpuStateStorage& states, std::int32_t row, const Row& input, const Row& output) const {
    std::copy_n(input.data(), n_, states.kept(args_.state.layer, row) + first_);
    if (states.shape().n_heads > 0)
      store_f32(output.data(), n_, states.kept_output(args_.state.layer, row, args_.out.dtype), first_);
  }

  const ShortConvArgs& args_;
  std::int64_t first_;
  std::int64_t n_;
  std::int64_t n_taps_;
  std::array<Row, kMaxConvTaps> weights_{};
  std::array<Row, kMaxConvTaps> inputs_{};
  Row bias_{};
  Row factors_;
  Row ones_;
};

}  // namespace

void CpuBackend::short_conv(const ShortConvArgs& args) {
  const auto& states = static_cast<const CpuStateStorage&>(*args.state.storage);
  const std::span<const StateRun> runs = args.state.step.span<StateRun>(SectionKind::state_runs);
  const std::int64_t n_blocks = (args.out.shape[1] + kChannels - 1) / kChannels;
  const auto n_runs = static_cast<std::int64_t>(runs.size());
  parallel_.for_ranges(n_blocks * n_runs, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end;) {
      ChannelBlock block(args, part / n_runs * kChannels);
      for (const std::int64_t next = std::min(end, (part / n_runs + 1) * n_runs); part < next; ++part)
        block.run(states, runs[static_cast<std::size_t>(part % n_runs)]);
    }
  });
}

}  // namespace baton::cpu
