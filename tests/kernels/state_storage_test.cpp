/// Recurrent states compared with the canonical form on every backend: whole slots, some layers of them, and copies that nothing
/// waits for.
#include "kernels/state_storage.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_backends.h"

namespace baton::testing {
namespace {

constexpr StateShape kStates{
    .n_layers = 3, .n_slots = 5, .n_channels = 48, .conv_len = 3, .n_heads = 2, .key_dim = 16, .value_dim = 32};

/// f32 numbers that differ between slots and places.
std::vector<float> numbers_of(std::int32_t slot, std::int64_t n_bytes = kStates.slot_bytes()) {
  std::vector<float> numbers(static_cast<std::size_t>(n_bytes) / sizeof(float));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(slot) + static_cast<float>(i) / 8192;
  return numbers;
}

TensorView view_of_numbers(std::vector<float>& numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), DType::f32, {static_cast<std::int64_t>(numbers.size())}};
}

std::vector<float> exported(const StateStorage& states, std::int32_t slot) {
  std::vector<float> numbers(static_cast<std::size_t>(kStates.slot_bytes()) / sizeof(float));
  states.export_slot(slot, view_of_numbers(numbers), 0);
  return numbers;
}

/// A storage whose slots hold their numbers.
std::unique_ptr<StateStorage> filled(const TestBackend& test) {
  std::unique_ptr<StateStorage> states = test.backend.make_state_storage(kStates).value();
  states->fill_bytes(0xff);
  for (std::int32_t slot = 0; slot < kStates.n_slots; ++slot) {
    std::vector<float> numbers = numbers_of(slot);
    states->import_slot(slot, view_of_numbers(numbers), 0);
  }
  return states;
}

TEST(StateStorage, gives_back_a_slot_whole_and_in_layers) {
  for (const TestBackend& test : test_backends()) {
    const auto states = filled(test);
    for (std::int32_t slot = 0; slot < kStates.n_slots; ++slot)
      ASSERT_EQ(exported(*states, slot), numbers_of(slot)) << test.name;
    std::vector<float> two(static_cast<std::size_t>(2 * kStates.layer_bytes()) / sizeof(float));
    states->export_slot(3, view_of_numbers(two), 1);
    const std::vector<float> whole = numbers_of(3);
    ASSERT_TRUE(std::equal(two.begin(), two.end(), whole.begin() + static_cast<std::ptrdiff_t>(two.size() / 2))) << test.name;
    states->import_slot(0, view_of_numbers(two), 1);
    const std::vector<float> changed = exported(*states, 0);
    ASSERT_TRUE(std::equal(two.begin(), two.end(), changed.begin() + static_cast<std::ptrdiff_t>(two.size() / 2))) << test.name;
    ASSERT_EQ(changed.front(), numbers_of(0).front()) << test.name << ": it wrote beside its layers";
    ASSERT_EQ(exported(*states, 1), numbers_of(1)) << test.name << ": it wrote beside its slot";
  }
}

TEST(StateStorage, saves_and_loads_slots_in_the_order_of_the_calls) {
  for (const TestBackend& test : test_backends()) {
    const auto states = filled(test);
    const auto n_bytes = static_cast<std::size_t>(kStates.slot_bytes());
    auto host = test.backend.allocate_host(3 * n_bytes);
    ASSERT_TRUE(host) << host.error().message;
    std::fill_n(host->data(), 3 * n_bytes, std::byte{0x5a});
    states->save_slot(2, host->data() + n_bytes);
    test.backend.synchronize();
    for (const std::size_t outside : {n_bytes - 1, 2 * n_bytes})
      ASSERT_EQ(host->data()[outside], std::byte{0x5a}) << test.name << ": it wrote beside its bytes";
    // Saved before it is overwritten, and loaded before it is read.
    states->save_slot(1, host->data());
    states->load_slot(1, host->data() + n_bytes);
    states->load_slot(4, host->data());
    ASSERT_EQ(exported(*states, 4), numbers_of(1)) << test.name;
    ASSERT_EQ(exported(*states, 1), numbers_of(2)) << test.name;
    ASSERT_EQ(exported(*states, 0), numbers_of(0)) << test.name;
  }
}

}  // namespace
}  // namespace baton::testing
