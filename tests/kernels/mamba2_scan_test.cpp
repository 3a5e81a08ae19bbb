/// mamba2_scan on every backend that has it: compared with the recurrence in double precision, from zero and from states of other
/// slots, and its bits however a sequence is cut into steps.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

struct ScanCase {
  std::int64_t n_groups = 2;
  std::int32_t n_heads = 4;
  std::int32_t key_dim = 128;
  std::int32_t value_dim = 64;
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;
  std::int64_t first_dt = 5;

  StateShape shape() const {
    return {.n_layers = 2,
            .n_slots = 4,
            .n_channels = 16,
            .conv_len = 3,
            .n_heads = n_heads,
            .key_dim = key_dim,
            .value_dim = value_dim};
  }
  std::int64_t width() const { return std::int64_t{n_heads} * value_dim + 2 * n_groups * key_dim; }
  std::int64_t n_matrices() const { return std::int64_t{n_heads} * key_dim * value_dim; }
  std::string name() const {
    return std::to_string(n_heads) + " heads of " + std::to_string(key_dim) + " x " + std::to_string(value_dim) + ", " +
           std::to_string(n_groups) + " groups, " + std::string(to_string(dtype)) + " to " + std::string(to_string(out_dtype));
  }
};

struct ScanInputs {
  ScanInputs(const ScanCase& of, std::int64_t n_rows, std::uint32_t seed)
      : xbc(of.dtype, {n_rows, of.width()}),
        dt(of.dtype, {n_rows, of.first_dt + of.n_heads + 3}),
        a_log(DType::f32, {of.n_heads}),
        dt_bias(DType::f32, {of.n_heads}),
        skip(DType::f32, {of.n_heads}) {
    std::mt19937 random(seed);
    xbc = random_tensor(random, of.dtype, xbc.shape);
    dt = random_tensor(random, of.dtype, dt.shape);
    // Half-lives from a token to hundreds of them, as in trained models.
    std::uniform_real_distribution<float> log_rate(-6, 2);
    for (std::int64_t h = 0; h < of.n_heads; ++h) a_log.set(h, log_rate(random));
    dt_bias = random_tensor(random, DType::f32, dt_bias.shape);
    skip = random_tensor(random, DType::f32, skip.shape);
  }
  /// Multiplies columns [first_column, end_column) of rows [first, end) of xbc.
  void multiply(std::int64_t first, std::int64_t end, std::int64_t first_column, std::int64_t end_column, double factor) {
    for (std::int64_t r = first; r < end; ++r)
      for (std::int64_t c = first_column; c < end_column; ++c) {
        const std::int64_t i = r * xbc.shape[1] + c;
        xbc.set(i, static_cast<float>(factor * xbc.at(i)));
      }
  }
  HostTensor xbc, dt, a_log, dt_bias, skip;
};

/// The recurrence of ops.h over the rows of a run. `state` has the matrices of all heads, and is changed.
std::vector<double> scan_recurrence(const ScanCase& of, const ScanInputs& in, const StateRun& run, std::vector<double>& state) {
  std::vector<double> all;
  const std::int64_t dk = of.key_dim;
  const std::int64_t dv = of.value_dim;
  for (std::int64_t r = run.first_row; r < run.first_row + run.n_rows; ++r)
    for (std::int64_t h = 0; h < of.n_heads; ++h) {
      const std::int64_t group = h / (of.n_heads / of.n_groups);
      const std::int64_t b = r * of.width() + of.n_heads * dv + group * dk;
      const std::int64_t c = b + of.n_groups * dk;
      const double step = std::log1p(std::exp(in.dt.at(r * in.dt.shape[1] + of.first_dt + h) + in.dt_bias.at(h)));
      const double decay = std::exp(-std::exp(in.a_log.at(h)) * step);
      double* const s = state.data() + h * dk * dv;
      std::vector<double> x, out;
      for (std::int64_t column = 0; column < dv; ++column) {
        x.push_back(in.xbc.at(r * of.width() + h * dv + column));
        out.push_back(in.skip.at(h) * x.back());
      }
      for (std::int64_t i = 0; i < dk; ++i) {
        const double of_b = in.xbc.at(b + i) * step;
        const double of_c = in.xbc.at(c + i);
        for (std::int64_t column = 0; column < dv; ++column) {
          double& element = s[i * dv + column];
          element = decay * element + of_b * x[static_cast<std::size_t>(column)];
          out[static_cast<std::size_t>(column)] += element * of_c;
        }
      }
      all.insert(all.end(), out.begin(), out.end());
    }
  return all;
}

HostTensor run_scan(Backend& backend, const ScanCase& of, const ScanInputs& in, const StateRuns& runs) {
  const OnDevice xbc(backend, in.xbc), dt(backend, in.dt), a_log(backend, in.a_log), dt_bias(backend, in.dt_bias),
      skip(backend, in.skip);
  const OnDevice out(backend, HostTensor(of.out_dtype, {in.xbc.shape[0], of.n_heads, of.value_dim}));
  mamba2_scan(backend, {runs.args(1), xbc.view(), of.n_groups, dt.view(), of.first_dt, a_log.view(), dt_bias.view(),
                        skip.view(), out.view()});
  return out.to_host();
}

HostTensor drawn_scan_slot(const ScanCase& of, std::uint32_t seed) {
  std::mt19937 random(seed);
  return random_tensor(random, DType::f32, {of.shape().slot_bytes() / 4});
}

/// The matrices of layer 1 in a slot.
std::vector<double> scan_matrices(const ScanCase& of, const HostTensor& slot) {
  std::vector<double> all;
  for (std::int64_t i = slot.shape[0] - of.n_matrices(); i < slot.shape[0]; ++i) all.push_back(slot.at(i));
  return all;
}

double scan_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

/// Errors of a row decay with the state, so they do not grow with the number of rows; sums have key_dim terms.
constexpr double kScanGrowth = 16;

void expect_scan_of(const TestBackend& test, const ScanCase& of, const ScanInputs& in, const std::vector<StateRun>& runs,
                    double state_growth = kScanGrowth) {
  SCOPED_TRACE(test.name + ", " + of.name() + ", " + std::to_string(in.xbc.shape[0]) + " rows");
  StateRuns steps(test.backend, of.shape(), runs);
  for (std::int32_t slot = 0; slot < 4; ++slot) steps.set_slot(slot, drawn_scan_slot(of, 10 + slot));
  const HostTensor got = run_scan(test.backend, of, in, steps);
  const double bound = kScanGrowth * epsilon(DType::f32) + (of.out_dtype == DType::f32 ? 0 : epsilon(of.out_dtype));
  const std::int64_t n = of.n_heads * of.value_dim;
  for (const StateRun& run : runs) {
    std::vector<double> state(static_cast<std::size_t>(of.n_matrices()));
    if (run.read_slot != StateRun::kZeroState) state = scan_matrices(of, drawn_scan_slot(of, 10 + run.read_slot));
    const std::vector<double> expected = scan_recurrence(of, in, run, state);
    std::vector<double> rows;
    for (std::int64_t i = run.first_row * n; i < (run.first_row + run.n_rows) * n; ++i) rows.push_back(got.at(i));
    EXPECT_LE(scan_error(rows, expected), bound) << "run at row " << run.first_row;
    EXPECT_LE(scan_error(scan_matrices(of, steps.slot(run.write_slot)), state), state_growth * epsilon(DType::f32))
        << run.write_slot;
  }
}
void expect_scan(const TestBackend& test, const ScanCase& of, const std::vector<StateRun>& runs, std::int64_t n_rows) {
  expect_scan_of(test, of, ScanInputs(of, n_rows, 3), runs);
}

std::vector<TestBackend> mamba2_backends() { return recurrent_backends(&BackendCapabilities::has_mamba2); }

TEST(Mamba2Scan, equals_the_recurrence_from_zero) {
  for (const TestBackend& test : mamba2_backends())
    for (const ScanCase& of : {ScanCase{}, ScanCase{1, 1, 16, 16}, ScanCase{3, 6, 32, 48}, ScanCase{1, 3, 256, 64},
                               ScanCase{4, 4, 64, 256}, ScanCase{.dtype = DType::bf16}, ScanCase{.dtype = DType::f16},
                               ScanCase{.dtype = DType::bf16, .out_dtype = DType::bf16, .first_dt = 0}})
      for (const std::int32_t n_rows : {0, 1, 2, 63, 64, 65, 150})
        expect_scan(test, of, {{.n_rows = n_rows, .write_slot = 2}}, n_rows);
}

TEST(Mamba2Scan, continues_states_of_the_same_and_of_other_slots) {
  for (const TestBackend& test : mamba2_backends())
    expect_scan(test, {2, 4, 32, 64},
                {{.first_row = 0, .n_rows = 1, .position = 40, .read_slot = 0, .write_slot = 0},
                 {.first_row = 1, .n_rows = 70, .position = 100, .read_slot = 1, .write_slot = 2},
                 {.first_row = 71, .n_rows = 5, .position = 0, .read_slot = StateRun::kZeroState, .write_slot = 3}},
                76);
}

TEST(Mamba2Scan, long_runs_begin_and_end_anywhere_in_a_chunk) {
  for (const TestBackend& test : mamba2_backends())
    for (const ScanCase& of : {ScanCase{.dtype = DType::bf16}, ScanCase{1, 1, 128, 128, DType::bf16, DType::f16}})
      expect_scan(test, of,
                  {{.first_row = 0, .n_rows = 1, .position = 40, .read_slot = 0, .write_slot = 0},
                   {.first_row = 1, .n_rows = 170, .position = 100, .read_slot = 1, .write_slot = 2},
                   {.first_row = 171, .n_rows = 33, .position = 63, .read_slot = StateRun::kZeroState, .write_slot = 3}},
                  204);
}

/// Two runs of 700 rows.
std::vector<StateRun> runs_of_700_rows() {
  return {{.n_rows = 700, .position = 10, .read_slot = 0, .write_slot = 2},
          {.first_row = 700, .n_rows = 700, .read_slot = StateRun::kZeroState, .write_slot = 3}};
}

// In chunks a column's scale grows while its state decays and nothing is written. Nothing makes up for the errors of the decays of all
// these rows.
TEST(Mamba2Scan, a_state_may_decay_to_nothing_and_be_written_again) {
  for (const TestBackend& test : mamba2_backends())
    for (const double last_values : {0.0, 1.0, 1e5}) {
      SCOPED_TRACE("values of the last rows times " + std::to_string(last_values));
      const ScanCase of{.dtype = DType::bf16};
      ScanInputs in(of, 1400, 3);
      for (std::int64_t h = 0; h < of.n_heads; ++h) in.a_log.set(h, static_cast<float>(h) - 4);
      const std::int64_t values = std::int64_t{of.n_heads} * of.value_dim;
      for (const std::int64_t end : {700, 1400}) {
        in.multiply(end - 600, end - 20, 0, values, 0);
        in.multiply(end - 20, end, 0, values, last_values);
      }
      expect_scan_of(test, of, in, runs_of_700_rows(), 8 * kScanGrowth);
    }
}

// A head each whose time steps are 0 in some rows, so that nothing is written or forgotten, and long in some, so that all is forgotten;
// and rows whose keys or queries are zero.
TEST(Mamba2Scan, time_steps_may_be_extreme) {
  for (const TestBackend& test : mamba2_backends()) {
    const ScanCase of{.dtype = DType::bf16};
    ScanInputs in(of, 1400, 3);
    const std::int64_t keys = std::int64_t{of.n_heads} * of.value_dim;
    for (std::int64_t r = 0; r < 1400; ++r) {
      const std::int64_t dt = r * in.dt.shape[1] + of.first_dt;
      if (r % 300 > 100) in.dt.set(dt, -1e4F);
      if (r % 50 == 33) in.dt.set(dt + 1, 200);
      if (r % 5 == 2) in.multiply(r, r + 1, keys, keys + of.key_dim, 0);
      if (r % 7 == 2) in.multiply(r, r + 1, keys + of.n_groups * of.key_dim, in.xbc.shape[1], 0);
    }
    in.a_log.set(1, 2);
    expect_scan_of(test, of, in, runs_of_700_rows());
  }
}

TEST(Mamba2Scan, leaves_other_rows_slots_and_layers_alone) {
  for (const TestBackend& test : mamba2_backends()) {
    SCOPED_TRACE(test.name);
    const ScanCase of{1, 2, 16, 16};
    const ScanInputs in(of, 9, 4);
    StateRuns steps(test.backend, of.shape(), {{.first_row = 2, .n_rows = 4, .position = 7, .read_slot = 1, .write_slot = 3}});
    for (std::int32_t slot = 0; slot < 4; ++slot) steps.set_slot(slot, drawn_scan_slot(of, 20 + slot));
    const HostTensor got = run_scan(test.backend, of, in, steps);
    const HostTensor untouched(DType::f32, got.shape);
    for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{6, 9}})
      EXPECT_EQ(std::memcmp(got.view().rows(begin, end).data, untouched.view().rows(begin, end).data,
                            got.view().rows(begin, end).size_bytes()),
                0);
    for (const std::int32_t slot : {0, 1, 2}) EXPECT_EQ(steps.slot(slot).bytes, drawn_scan_slot(of, 20 + slot).bytes) << slot;
    const HostTensor written = steps.slot(3);
    const auto n_untouched = written.bytes.size() - static_cast<std::size_t>(of.n_matrices()) * 4;
    EXPECT_EQ(std::memcmp(written.bytes.data(), drawn_scan_slot(of, 23).bytes.data(), n_untouched), 0);
  }
}

/// The results of all rows of one sequence that is cut into steps before the given rows, and its last state.
std::pair<std::vector<std::byte>, HostTensor> scan_in_steps(Backend& backend, const ScanCase& of, const ScanInputs& in,
                                                            std::vector<std::int64_t> cuts) {
  const std::int64_t n_rows = in.xbc.shape[0];
  StateRuns steps(backend, of.shape(), {});
  std::vector<std::byte> all;
  cuts.push_back(n_rows);
  std::int64_t begin = 0;
  for (const std::int64_t end : cuts) {
    ScanInputs part = in;
    part.xbc = HostTensor(of.dtype, {end - begin, in.xbc.shape[1]});
    part.dt = HostTensor(of.dtype, {end - begin, in.dt.shape[1]});
    std::memcpy(part.xbc.bytes.data(), in.xbc.view().rows(begin, end).data, part.xbc.bytes.size());
    std::memcpy(part.dt.bytes.data(), in.dt.view().rows(begin, end).data, part.dt.bytes.size());
    const auto n = static_cast<std::int32_t>(end - begin);
    steps.start(backend, {{0, n, static_cast<std::int32_t>(begin), begin == 0 ? StateRun::kZeroState : 1, 1}}, n);
    const HostTensor got = run_scan(backend, of, part, steps);
    all.insert(all.end(), got.bytes.begin(), got.bytes.end());
    begin = end;
  }
  return {all, steps.slot(1)};
}

TEST(Mamba2Scan, batch_invariant_rows_have_the_same_bits_wherever_their_sequence_is_cut) {
  for (const TestBackend& test : mamba2_backends()) {
    if (!test.backend.capabilities().has_batch_invariant) continue;
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true}).value();
    SCOPED_TRACE(test.name);
    const ScanCase of{1, 2, 32, 80};
    const ScanInputs in(of, 150, 5);
    const auto [whole, state] = scan_in_steps(*backend, of, in, {});
    std::vector<std::int64_t> each;
    for (std::int64_t row = 1; row < 150; ++row) each.push_back(row);
    for (const auto& cuts : {std::vector<std::int64_t>{1}, {63}, {64}, {65, 128}, {7, 30, 149}, each}) {
      const auto [got, last] = scan_in_steps(*backend, of, in, cuts);
      EXPECT_EQ(got, whole) << "cut before row " << cuts.front();
      EXPECT_EQ(std::memcmp(last.bytes.data() + last.bytes.size() / 2, state.bytes.data() + last.bytes.size() / 2,
                            last.bytes.size() / 2),
                0);
    }
  }
}

TEST(Mamba2ScanDeathTest, refuses_what_does_not_fit_its_states) {
  test::RecordingBackend backend;
  const ScanCase of{2, 4, 16, 16};
  const ScanInputs in(of, 3, 6);
  const StepInput step = step_of_rows(3);
  NoStates states(of.shape());
  HostTensor out(DType::f32, {3, of.n_heads, of.value_dim});
  const Mamba2ScanArgs args{{step.view(), 0, &states}, in.xbc.view(),  2,         in.dt.view(), of.first_dt, in.a_log.view(),
                            in.dt_bias.view(),         in.skip.view(), out.view()};
  const auto run = [&](auto change) {
    Mamba2ScanArgs changed = args;
    change(changed);
    mamba2_scan(backend, changed);
  };
  EXPECT_DEATH(run([](auto& a) { a.state.layer = 2; }), "the layer is not in the storage of states");
  EXPECT_DEATH(run([](auto& a) { a.n_groups = 3; }), "not a multiple of the groups");
  EXPECT_DEATH(run([](auto& a) { a.n_groups = 1; }), "xbc has shape .*128.*expected .*96");
  EXPECT_DEATH(run([](auto& a) { a.first_dt = 9; }), "dt has other rows than xbc, or too few columns");
  EXPECT_DEATH(run([](auto& a) { a.skip.shape = {3}; }), "a_log, dt_bias or skip has shape");
  EXPECT_DEATH(run([](auto& a) { a.out.shape = {3, 16, 4}; }), "out has shape");
  EXPECT_DEATH(run([&](auto& a) { a.out.data = const_cast<std::byte*>(in.xbc.view().data); }),
               "out overlaps what it is made from");
}

}  // namespace
}  // namespace baton::testing
