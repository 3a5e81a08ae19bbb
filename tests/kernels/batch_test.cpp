/// StepInput: appended sections are read back, with any number of layer groups, and bounds are enforced.
#include "kernels/batch.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Numbers [first, first + n) as elements of T.
template <class T>
std::vector<T> elements(int first, std::size_t n) {
  std::vector<T> made(n);
  for (std::size_t i = 0; i < n; ++i) made[i] = static_cast<T>(first + static_cast<int>(i));
  return made;
}

TEST(StepInput, gives_back_the_sections_of_any_number_of_layer_groups) {
  for (const std::int32_t n_groups : {1, 2, 5}) {
    StepInput step(n_groups);
    step.header().n_rows = 3;
    step.append(SectionKind::token_ids, elements<TokenId>(7, 3));
    for (int group = 0; group < n_groups; ++group) {
      step.append(SectionKind::kv_indices, elements<std::int64_t>(100 * group, 3), group);
      step.append(SectionKind::block_lists, elements<std::int32_t>(10 * group, static_cast<std::size_t>(group)), group);
      step.group(group).n_partials = group;
    }
    step.finish();
    const StepInput moved = std::move(step);
    const StepView view = moved.view();
    EXPECT_EQ(view.header->n_rows, 3);
    EXPECT_EQ(view.header->size_bytes, static_cast<std::int32_t>(moved.bytes().size()));
    EXPECT_EQ(view.span<TokenId>(SectionKind::token_ids)[2], 9);
    EXPECT_EQ(view.n_samples(), 0);
    for (int group = 0; group < n_groups; ++group) {
      EXPECT_EQ(view.span<std::int64_t>(SectionKind::kv_indices, group)[1], 100 * group + 1);
      EXPECT_EQ(view.count(SectionKind::block_lists, group), group);
      EXPECT_EQ(view.group(group).n_partials, group);
      EXPECT_EQ(view.section(SectionKind::kv_indices, group).offset % kSectionAlignment, 0u);
    }
  }
}

TEST(StepInput, of_a_model_has_its_headers_at_one_place_whatever_it_holds) {
  StepInput empty(2), full(2);
  full.append(SectionKind::token_ids, elements<TokenId>(0, 1000));
  full.append(SectionKind::rows, std::vector<TokenRow>(1000), 1);
  empty.finish();
  full.finish();
  for (const StepInput* step : {&empty, &full}) {
    const StepView view = step->view();
    EXPECT_EQ(reinterpret_cast<const std::byte*>(&view.group(1)) - view.data,
              static_cast<std::ptrdiff_t>(sizeof(StepHeader) + sizeof(LayerGroupHeader)));
  }
}

TEST(StepInputDeathTest, aborts_on_elements_of_another_size_and_on_a_group_that_is_not_there) {
  StepInput step;
  EXPECT_DEATH(step.append(SectionKind::rows, elements<std::int32_t>(0, 3)), "elements of another size");
  step.finish();
  EXPECT_DEATH((void)step.view().span<std::int64_t>(SectionKind::token_ids), "elements of another size");
  EXPECT_DEATH((void)step.view().group(1), "not in the step");
}

/// Bounds that all differ.
StepBounds small_bounds(std::int32_t n_groups) {
  return {.max_rows = 8,
          .max_samples = 5,
          .max_partials = 11,
          .max_slots = 4,
          .max_items = 9,
          .max_pairs = 18,
          .max_workers = 3,
          .max_block_entries = 13,
          .max_list_entries = 6,
          .max_state_runs = 3,
          .n_groups = n_groups};
}

/// Appends `n` zero elements of a kind.
void append_zeros(StepInput& step, SectionKind kind, std::int64_t n, int group) {
  switch (kSections[static_cast<std::size_t>(kind)].element_bytes) {
    case 4: return step.append(kind, std::vector<std::int32_t>(static_cast<std::size_t>(n)), group);
    case 8: return step.append(kind, std::vector<std::int64_t>(static_cast<std::size_t>(n)), group);
    case sizeof(StateRun): return step.append(kind, std::vector<StateRun>(static_cast<std::size_t>(n)), group);
    case sizeof(TokenRow): return step.append(kind, std::vector<TokenRow>(static_cast<std::size_t>(n)), group);
    case sizeof(AttentionItem): return step.append(kind, std::vector<AttentionItem>(static_cast<std::size_t>(n)), group);
    case sizeof(SamplingMetadata): return step.append(kind, std::vector<SamplingMetadata>(static_cast<std::size_t>(n)), group);
    default: FAIL() << "a kind of elements that this test does not know";
  }
}

/// A step with every kind at its bound, and `n_over` more elements of one kind; of the lists, biases use the whole
/// bound.
StepInput step_at(const StepBounds& bounds, SectionKind over, std::int64_t n_over) {
  StepInput step(bounds.n_groups);
  for (const SectionInfo& info : kSections) {
    std::int64_t n = bounds.*info.max_count + info.n_more;
    if (info.shares_bound && info.kind != SectionKind::token_biases) n = 0;
    if (info.kind == over) n += n_over;
    const bool is_of_group = static_cast<std::size_t>(info.kind) >= kStepKinds;
    for (int group = 0; group < (is_of_group ? bounds.n_groups : 1); ++group) append_zeros(step, info.kind, n, group);
  }
  step.finish();
  return step;
}

TEST(StepBounds, hold_a_step_with_every_kind_at_its_bound_and_no_more) {
  for (const std::int32_t n_groups : {1, 3}) {
    const StepBounds bounds = small_bounds(n_groups);
    const StepInput step = step_at(bounds, SectionKind::token_ids, 0);
    EXPECT_EQ(find_excess(step.view(), bounds), std::nullopt);
    EXPECT_LE(step.bytes().size(), bounds.size_bytes());
    EXPECT_GE(step.bytes().size() + 2 * kSectionAlignment * kSections.size() * static_cast<std::size_t>(n_groups),
              bounds.size_bytes())
        << "no more is reserved than alignment wants";
    for (const SectionInfo& info : kSections) {
      const auto excess = find_excess(step_at(bounds, info.kind, 1).view(), bounds);
      ASSERT_TRUE(excess) << info.name;
      const std::string n = std::to_string(bounds.*info.max_count + info.n_more + 1);
      EXPECT_NE(excess->find("the step has " + n + " " + std::string(info.shares_bound ? "" : info.name)), std::string::npos)
          << *excess;
    }
  }
  StepInput two_groups(2);
  two_groups.finish();
  EXPECT_TRUE(find_excess(two_groups.view(), small_bounds(1)));
}

}  // namespace
}  // namespace baton
