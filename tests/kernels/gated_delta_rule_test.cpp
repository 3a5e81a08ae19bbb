/// gated_delta_rule on every backend that has recurrent layers: compared with the recurrence in double precision, from zero and from
/// states of other slots, and its bits however a sequence is cut into steps.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/on_device.h"
#include "support/recording_backend.h"
#include "support/state_runs.h"

namespace baton::testing {
namespace {

struct DeltaCase {
  std::int64_t n_key_heads = 2;
  std::int32_t n_heads = 4;
  std::int32_t key_dim = 128;
  std::int32_t value_dim = 128;
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;

  StateShape shape(std::int32_t n_slots = 4) const {
    return {.n_layers = 2,
            .n_slots = n_slots,
            .n_channels = 16,
            .conv_len = 3,
            .n_heads = n_heads,
            .key_dim = key_dim,
            .value_dim = value_dim};
  }
  std::int64_t width() const { return 2 * n_key_heads * key_dim + std::int64_t{n_heads} * value_dim; }
  std::int64_t n_matrices() const { return std::int64_t{n_heads} * key_dim * value_dim; }
};

std::string describe(const TestBackend& test, const DeltaCase& of) {
  return test.name + ", " + std::to_string(of.n_key_heads) + " and " + std::to_string(of.n_heads) + " heads of " +
         std::to_string(of.key_dim) + " x " + std::to_string(of.value_dim) + ", " + std::string(to_string(of.dtype)) + " to " +
         std::string(to_string(of.out_dtype));
}

struct DeltaInputs {
  DeltaInputs(const DeltaCase& of, std::int64_t n_rows, std::uint32_t seed)
      : qkv(of.dtype, {n_rows, of.width()}),
        gates(DType::f32, {n_rows, 2 * of.n_heads}),
        a_log(DType::f32, {of.n_heads}),
        dt_bias(DType::f32, {of.n_heads}) {
    std::mt19937 random(seed);
    qkv = random_tensor(random, of.dtype, qkv.shape);
    gates = random_tensor(random, DType::f32, gates.shape);
    // Half-lives from a token to hundreds of them, as in trained models.
    std::uniform_real_distribution<float> log_rate(-6, 2);
    for (std::int64_t h = 0; h < of.n_heads; ++h) a_log.set(h, log_rate(random));
    dt_bias = random_tensor(random, DType::f32, dt_bias.shape);
  }
  /// Multiplies the values of rows [first, end) of all heads.
  void multiply_values(const DeltaCase& of, std::int64_t first, std::int64_t end, double factor) {
    for (std::int64_t r = first; r < end; ++r)
      for (std::int64_t i = r * of.width() + 2 * of.n_key_heads * of.key_dim; i < (r + 1) * of.width(); ++i)
        qkv.set(i, static_cast<float>(factor * qkv.at(i)));
  }
  HostTensor qkv, gates, a_log, dt_bias;
};

/// The recurrence of ops.h over rows [first_row, first_row + n_rows). `state` has the matrices of all heads, and is changed.
std::vector<double> recurrence(const DeltaCase& of, const DeltaInputs& in, const StateRun& run, std::vector<double>& state) {
  std::vector<double> all;
  const std::int64_t dk = of.key_dim;
  const std::int64_t dv = of.value_dim;
  for (std::int64_t r = run.first_row; r < run.first_row + run.n_rows; ++r)
    for (std::int64_t h = 0; h < of.n_heads; ++h) {
      const auto unit = [&](std::int64_t first) {
        std::vector<double> x;
        double squares = 0;
        for (std::int64_t i = 0; i < dk; ++i) x.push_back(in.qkv.at(r * of.width() + first + i));
        for (const double number : x) squares += number * number;
        for (double& number : x) number /= std::sqrt(squares + 1e-6);
        return x;
      };
      const std::int64_t key_head = h / (of.n_heads / of.n_key_heads);
      const std::vector<double> q = unit(key_head * dk);
      const std::vector<double> k = unit((of.n_key_heads + key_head) * dk);
      const double b = in.gates.at(r * 2 * of.n_heads + h);
      const double a = in.gates.at(r * 2 * of.n_heads + of.n_heads + h) + in.dt_bias.at(h);
      const double decay = std::exp(-std::exp(in.a_log.at(h)) * std::log1p(std::exp(a)));
      double* const s = state.data() + h * dk * dv;
      std::vector<double> written(static_cast<std::size_t>(dv)), out(written.size());
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t c = 0; c < dv; ++c)
          written[static_cast<std::size_t>(c)] -= k[static_cast<std::size_t>(i)] * (s[i * dv + c] *= decay);
      for (std::int64_t c = 0; c < dv; ++c) {
        double& of_column = written[static_cast<std::size_t>(c)];
        of_column = (in.qkv.at(r * of.width() + 2 * of.n_key_heads * dk + h * dv + c) + of_column) / (1 + std::exp(-b));
      }
      for (std::int64_t i = 0; i < dk; ++i)
        for (std::int64_t c = 0; c < dv; ++c) {
          s[i * dv + c] += k[static_cast<std::size_t>(i)] * written[static_cast<std::size_t>(c)];
          out[static_cast<std::size_t>(c)] += q[static_cast<std::size_t>(i)] * s[i * dv + c];
        }
      for (const double number : out) all.push_back(number / std::sqrt(static_cast<double>(dk)));
    }
  return all;
}

HostTensor run_rule(Backend& backend, const DeltaCase& of, const DeltaInputs& in, const StateRuns& runs, int layer = 1) {
  const std::int64_t n_rows = in.qkv.shape[0];
  const OnDevice qkv(backend, in.qkv), gates(backend, in.gates), a_log(backend, in.a_log), dt_bias(backend, in.dt_bias);
  const OnDevice out(backend, HostTensor(of.out_dtype, {n_rows, of.n_heads, of.value_dim}));
  gated_delta_rule(backend,
                   {runs.args(layer), qkv.view(), of.n_key_heads, gates.view(), a_log.view(), dt_bias.view(), out.view()});
  return out.to_host();
}

/// The matrices of layer 1 in a slot.
std::vector<double> matrices(const DeltaCase& of, const HostTensor& slot) {
  std::vector<double> all;
  for (std::int64_t i = slot.shape[0] - of.n_matrices(); i < slot.shape[0]; ++i) all.push_back(slot.at(i));
  return all;
}

HostTensor drawn_slot(const DeltaCase& of, std::uint32_t seed) {
  std::mt19937 random(seed);
  return random_tensor(random, DType::f32, {of.shape().slot_bytes() / 4});
}

/// Rows of `got` [rows, ...] as a vector.
std::vector<double> rows_of(const HostTensor& got, const StateRun& run) {
  const std::int64_t n = got.shape[1] * got.shape[2];
  std::vector<double> rows;
  for (std::int64_t i = run.first_row * n; i < (run.first_row + run.n_rows) * n; ++i) rows.push_back(got.at(i));
  return rows;
}

double error_of(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

/// Errors of a row decay with the state, so they do not grow with the number of rows; sums have key_dim terms, twice.
constexpr double kGrowth = 16;

void expect_recurrence_of(const TestBackend& test, const DeltaCase& of, const DeltaInputs& in,
                          const std::vector<StateRun>& runs, double state_growth = kGrowth) {
  SCOPED_TRACE(describe(test, of) + ", " + std::to_string(in.qkv.shape[0]) + " rows");
  const auto n_slots = static_cast<std::int32_t>(std::max<std::size_t>(4, runs.size() + 1));
  StateRuns steps(test.backend, of.shape(n_slots), runs);
  for (std::int32_t slot = 0; slot < n_slots; ++slot) steps.set_slot(slot, drawn_slot(of, 10 + slot));
  const HostTensor got = run_rule(test.backend, of, in, steps);
  const double bound = kGrowth * epsilon(DType::f32) + (of.out_dtype == DType::f32 ? 0 : epsilon(of.out_dtype));
  for (const StateRun& run : runs) {
    std::vector<double> state(static_cast<std::size_t>(of.n_matrices()));
    if (run.read_slot != StateRun::kZeroState) state = matrices(of, drawn_slot(of, 10 + run.read_slot));
    const std::vector<double> expected = recurrence(of, in, run, state);
    EXPECT_LE(error_of(rows_of(got, run), expected), bound) << "run at row " << run.first_row;
    EXPECT_LE(error_of(matrices(of, steps.slot(run.write_slot)), state), state_growth * epsilon(DType::f32)) << run.write_slot;
  }
}
void expect_recurrence(const TestBackend& test, const DeltaCase& of, const std::vector<StateRun>& runs, std::int64_t n_rows) {
  expect_recurrence_of(test, of, DeltaInputs(of, n_rows, 3), runs);
}

TEST(GatedDeltaRule, equals_the_recurrence_from_zero) {
  for (const TestBackend& test : recurrent_backends())
    for (const DeltaCase& of : {DeltaCase{}, DeltaCase{1, 1, 16, 16}, DeltaCase{2, 6, 32, 48}, DeltaCase{1, 3, 256, 16},
                                DeltaCase{4, 4, 64, 256}, DeltaCase{.dtype = DType::bf16}, DeltaCase{.dtype = DType::f16},
                                DeltaCase{.dtype = DType::bf16, .out_dtype = DType::bf16}})
      for (const std::int32_t n_rows : {0, 1, 2, 63, 64, 65, 150})
        expect_recurrence(test, of, {{.n_rows = n_rows, .write_slot = 2}}, n_rows);
}

TEST(GatedDeltaRule, continues_states_of_the_same_and_of_other_slots) {
  for (const TestBackend& test : recurrent_backends()) {
    const DeltaCase of{2, 4, 32, 64};
    expect_recurrence(test, of,
                      {{.first_row = 0, .n_rows = 1, .position = 40, .read_slot = 0, .write_slot = 0},
                       {.first_row = 1, .n_rows = 70, .position = 100, .read_slot = 1, .write_slot = 2},
                       {.first_row = 71, .n_rows = 5, .position = 0, .read_slot = StateRun::kZeroState, .write_slot = 3}},
                      76);
  }
}

/// `n` runs of a row each; the first have 3, no and 2 rows, and the third begins from zero.
std::vector<StateRun> runs_of_few_rows(std::int32_t n) {
  std::vector<StateRun> runs;
  std::int32_t first_row = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    const std::int32_t n_rows = i == 0 ? 3 : i == 1 ? 0 : i == 2 ? 2 : 1;
    runs.push_back({.first_row = first_row,
                    .n_rows = n_rows,
                    .position = i == 2 ? 0 : 5 + i,
                    .read_slot = i == 2 ? StateRun::kZeroState : i,
                    .write_slot = i});
    first_row += n_rows;
  }
  return runs;
}

// So many heads of all sequences occupy a whole GPU, whose blocks then go from one to the next.
TEST(GatedDeltaRule, computes_few_rows_of_each_of_many_sequences) {
  for (const TestBackend& test : recurrent_backends())
    for (const DeltaCase& of : {DeltaCase{2, 8, 128, 128}, DeltaCase{4, 8, 128, 128, DType::bf16, DType::bf16}})
      expect_recurrence(test, of, runs_of_few_rows(40), 42);
}

// As those do that share a prompt.
TEST(GatedDeltaRule, many_sequences_may_begin_from_one_state) {
  for (const TestBackend& test : recurrent_backends()) {
    std::vector<StateRun> runs;
    for (std::int32_t i = 0; i < 40; ++i)
      runs.push_back({.first_row = i, .n_rows = 1, .position = 64, .read_slot = 40, .write_slot = i});
    expect_recurrence(test, {2, 8, 128, 128, DType::bf16}, runs, 40);
  }
}

// Bits are those of a sequence that is alone.
TEST(GatedDeltaRule, batch_invariant_rows_have_the_same_bits_beside_any_number_of_sequences) {
  for (const TestBackend& test : recurrent_backends()) {
    if (!test.backend.capabilities().has_batch_invariant) continue;
    SCOPED_TRACE(test.name);
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true}).value();
    const DeltaCase of{2, 8, 128, 128, DType::bf16};
    const DeltaInputs in(of, 42, 7);
    const auto results = [&](const std::vector<StateRun>& runs) {
      StateRuns steps(*backend, of.shape(40), runs);
      for (std::int32_t slot = 0; slot < 40; ++slot) steps.set_slot(slot, drawn_slot(of, 10 + slot));
      const HostTensor got = run_rule(*backend, of, in, steps);
      return std::pair{rows_of(got, runs.front()), steps.slot(0).bytes};
    };
    const std::vector<StateRun> runs = runs_of_few_rows(40);
    EXPECT_EQ(results(runs), results({runs.front()}));
  }
}

TEST(GatedDeltaRule, long_runs_begin_and_end_anywhere_in_a_chunk) {
  for (const TestBackend& test : recurrent_backends())
    for (const DeltaCase& of : {DeltaCase{2, 4, 128, 128, DType::bf16}, DeltaCase{1, 1, 128, 64, DType::bf16, DType::f16}})
      expect_recurrence(test, of,
                        {{.first_row = 0, .n_rows = 1, .position = 40, .read_slot = 0, .write_slot = 0},
                         {.first_row = 1, .n_rows = 170, .position = 100, .read_slot = 1, .write_slot = 2},
                         {.first_row = 171, .n_rows = 33, .position = 63, .read_slot = StateRun::kZeroState, .write_slot = 3}},
                        204);
}

// A GPU cuts the chunks of one long run into pieces when the heads alone do not occupy it. The state is that of the slot that the run
// writes.
TEST(GatedDeltaRule, a_long_run_may_be_computed_in_pieces) {
  for (const TestBackend& test : recurrent_backends())
    for (const DeltaCase& of : {DeltaCase{1, 2, 128, 128, DType::bf16}, DeltaCase{1, 1, 128, 64, DType::bf16, DType::bf16}})
      for (const std::int32_t n_rows : {1920, 2500})
        expect_recurrence(test, of, {{.n_rows = n_rows, .position = 77, .read_slot = 1, .write_slot = 1}}, n_rows);
}

/// Rows 0 to 1999 as one run, which a GPU may cut into pieces, and as two of the same length.
std::vector<std::vector<StateRun>> runs_of_2000_rows() {
  return {{{.n_rows = 2000, .read_slot = 0, .write_slot = 2}},
          {{.n_rows = 1000, .position = 10, .read_slot = 0, .write_slot = 2},
           {.first_row = 1000, .n_rows = 1000, .read_slot = StateRun::kZeroState, .write_slot = 3}}};
}

// In chunks a column's scale grows while its state decays and nothing is written. Nothing makes up for the errors of the decays of all
// these rows.
TEST(GatedDeltaRule, a_state_may_decay_to_nothing_and_be_written_again) {
  for (const TestBackend& test : recurrent_backends())
    for (const double last_values : {0.0, 1.0, 1e5})
      for (const auto& runs : runs_of_2000_rows()) {
        SCOPED_TRACE("values of the last rows times " + std::to_string(last_values));
        const DeltaCase of{.dtype = DType::bf16};
        DeltaInputs in(of, 2000, 3);
        for (std::int64_t h = 0; h < of.n_heads; ++h) in.a_log.set(h, static_cast<float>(h) - 4);
        for (const StateRun& run : runs) {
          const std::int64_t end = run.first_row + run.n_rows;
          in.multiply_values(of, run.first_row + 100, end - 20, 0);
          in.multiply_values(of, end - 20, end, last_values);
        }
        expect_recurrence_of(test, of, in, runs, 8 * kGrowth);
      }
}

// A head each that forgets everything at once in some rows, writes nothing in some, overwrites what a key knows, and never forgets.
TEST(GatedDeltaRule, gates_may_be_extreme) {
  for (const TestBackend& test : recurrent_backends())
    for (const auto& runs : runs_of_2000_rows()) {
      const DeltaCase of{.dtype = DType::bf16};
      DeltaInputs in(of, 2000, 3);
      for (std::int64_t r = 0; r < 2000; ++r) {
        const std::int64_t b = r * 2 * of.n_heads;
        const std::int64_t a = b + of.n_heads;
        if (r % 50 == 33) in.gates.set(a, 1e4F);
        if (r % 300 > 100) in.gates.set(b + 1, -1e4F);
        in.gates.set(b + 2, 1e4F);
        in.gates.set(a + 3, -1e4F);
      }
      expect_recurrence_of(test, of, in, runs);
    }
}

TEST(GatedDeltaRule, leaves_other_rows_slots_and_layers_alone) {
  for (const TestBackend& test : recurrent_backends()) {
    SCOPED_TRACE(test.name);
    const DeltaCase of{1, 2, 16, 16};
    const DeltaInputs in(of, 9, 4);
    StateRuns steps(test.backend, of.shape(), {{.first_row = 2, .n_rows = 4, .position = 7, .read_slot = 1, .write_slot = 3}});
    for (std::int32_t slot = 0; slot < 4; ++slot) steps.set_slot(slot, drawn_slot(of, 20 + slot));
    const HostTensor got = run_rule(test.backend, of, in, steps);
    const HostTensor untouched(DType::f32, got.shape);
    for (const auto& [begin, end] : {std::pair{0, 2}, std::pair{6, 9}})
      EXPECT_EQ(std::memcmp(got.view().rows(begin, end).data, untouched.view().rows(begin, end).data,
                            got.view().rows(begin, end).size_bytes()),
                0);
    for (const std::int32_t slot : {0, 1, 2}) EXPECT_EQ(steps.slot(slot).bytes, drawn_slot(of, 20 + slot).bytes) << slot;
    const HostTensor written = steps.slot(3);
    const auto n_untouched = written.bytes.size() - static_cast<std::size_t>(of.n_matrices()) * 4;
    EXPECT_EQ(std::memcmp(written.bytes.data(), drawn_slot(of, 23).bytes.data(), n_untouched), 0);
  }
}

/// The results of all rows of one sequence that is cut into steps before the given rows, and its last state.
std::pair<std::vector<std::byte>, HostTensor> in_steps(Backend& backend, const DeltaCase& of, const DeltaInputs& in,
                                                       std::vector<std::int64_t> cuts) {
  const std::int64_t n_rows = in.qkv.shape[0];
  StateRuns steps(backend, of.shape(), {});
  std::vector<std::byte> all;
  cuts.push_back(n_rows);
  std::int64_t begin = 0;
  for (const std::int64_t end : cuts) {
    DeltaInputs part = in;
    part.qkv = HostTensor(of.dtype, {end - begin, of.width()});
    part.gates = HostTensor(DType::f32, {end - begin, 2 * of.n_heads});
    std::memcpy(part.qkv.bytes.data(), in.qkv.view().rows(begin, end).data, part.qkv.bytes.size());
    std::memcpy(part.gates.bytes.data(), in.gates.view().rows(begin, end).data, part.gates.bytes.size());
    const auto n = static_cast<std::int32_t>(end - begin);
    steps.start(backend, {{0, n, static_cast<std::int32_t>(begin), begin == 0 ? StateRun::kZeroState : 1, 1}}, n);
    const HostTensor got = run_rule(backend, of, part, steps);
    all.insert(all.end(), got.bytes.begin(), got.bytes.end());
    begin = end;
  }
  return {all, steps.slot(1)};
}

TEST(GatedDeltaRule, batch_invariant_rows_have_the_same_bits_wherever_their_sequence_is_cut) {
  for (const TestBackend& test : recurrent_backends()) {
    if (!test.backend.capabilities().has_batch_invariant) continue;
    const auto backend = test.make({.n_threads = 2, .batch_invariant = true}).value();
    SCOPED_TRACE(test.name);
    const DeltaCase of{1, 2, 32, 128};
    const DeltaInputs in(of, 150, 5);
    const auto [whole, state] = in_steps(*backend, of, in, {});
    std::vector<std::int64_t> each;
    for (std::int64_t row = 1; row < 150; ++row) each.push_back(row);
    for (const auto& cuts : {std::vector<std::int64_t>{1}, {63}, {64}, {65, 128}, {7, 30, 149}, each}) {
      const auto [got, last] = in_steps(*backend, of, in, cuts);
      EXPECT_EQ(got, whole) << "cut before row " << cuts.front();
      EXPECT_EQ(std::memcmp(last.bytes.data() + last.bytes.size() / 2, state.bytes.data() + last.bytes.size() / 2,
                            last.bytes.size() / 2),
                0);
    }
  }
}

TEST(GatedDeltaRuleDeathTest, refuses_what_does_not_fit_its_states) {
  test::RecordingBackend backend;
  const DeltaCase of{2, 4, 16, 16};
  const DeltaInputs in(of, 3, 6);
  const StepInput step = step_of_rows(3);
  NoStates states(of.shape());
  HostTensor out(DType::f32, {3, of.n_heads, of.value_dim});
  const GatedDeltaRuleArgs args{{step.view(), 0, &states}, in.qkv.view(),     2,         in.gates.view(),
                                in.a_log.view(),           in.dt_bias.view(), out.view()};
  const auto run = [&](auto change) {
    GatedDeltaRuleArgs changed = args;
    change(changed);
    gated_delta_rule(backend, changed);
  };
  EXPECT_DEATH(run([](auto& a) { a.state.layer = 2; }), "the layer is not in the storage of states");
  EXPECT_DEATH(run([](auto& a) { a.state.storage = nullptr; }), "the layer is not in the storage of states");
  EXPECT_DEATH(run([](auto& a) { a.n_key_heads = 3; }), "not a multiple of the key heads");
  EXPECT_DEATH(run([](auto& a) { a.n_key_heads = 1; }), "qkv has shape .*128.*expected .*96");
  EXPECT_DEATH(run([](auto& a) { a.gates.shape = {3, 4}; }), "gates has shape .*4.*expected .*8");
  EXPECT_DEATH(run([](auto& a) { a.a_log.shape = {3}; }), "a_log or dt_bias has shape");
  EXPECT_DEATH(run([](auto& a) { a.out.shape = {3, 16, 4}; }), "out has shape");
  EXPECT_DEATH(run([&](auto& a) { a.out.data = const_cast<std::byte*>(in.qkv.view().data); }),
               "out overlaps what it is made from");
  EXPECT_DEATH(run([](auto& a) {
                 for (ConstTensorView* rows : {&a.qkv, &a.gates}) *rows = rows->rows(0, 2);
                 a.out = a.out.rows(0, 2);
               }),
               "fewer rows than the step has");
}

TEST(StateStorage, refuses_shapes_and_keeps_slots_apart) {
  for (const TestBackend& test : recurrent_backends()) {
    SCOPED_TRACE(test.name);
    const DeltaCase of{1, 2, 16, 32};
    for (const auto& [change, text] : std::vector<std::pair<void (*)(StateShape&), std::string>>{
             {[](StateShape& s) { s.key_dim = 24; }, "24 x 32"},
             {[](StateShape& s) { s.value_dim = 272; }, "16 x 272"},
             {[](StateShape& s) { s.n_channels = 40; }, "40 channels"},
             {[](StateShape& s) { s.conv_len = 8; }, "a convolution of 9 tokens"}}) {
      StateShape shape = of.shape();
      change(shape);
      const auto made = test.backend.make_state_storage(shape);
      ASSERT_FALSE(made) << text;
      EXPECT_EQ(made.error().code, ErrorCode::unsupported);
      EXPECT_NE(made.error().message.find(text), std::string::npos) << made.error().message;
    }
    EXPECT_EQ(of.shape().slot_bytes(), 2 * 4 * (3 * 16 + 2 * 16 * 32));
    const StateShape no_heads{.n_layers = 2, .n_slots = 4, .n_channels = 48, .conv_len = 2};
    EXPECT_EQ(no_heads.slot_bytes(), 2 * 4 * 2 * 48);
    if (test.backend.capabilities().has_gated_conv) {
      EXPECT_TRUE(test.backend.make_state_storage(no_heads));
    }
    StateRuns steps(test.backend, of.shape(), {});
    for (std::int32_t slot = 0; slot < 4; ++slot) steps.set_slot(slot, drawn_slot(of, 30 + slot));
    for (std::int32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(steps.slot(slot).bytes, drawn_slot(of, 30 + slot).bytes);
  }
}

}  // namespace
}  // namespace baton::testing
