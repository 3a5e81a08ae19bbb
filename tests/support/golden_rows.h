/// A test whose parameter is a golden of a tiny checkpoint: its rows, run in one step or several, and their errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/golden_model.h"

namespace baton::testing {

class GoldenRows : public ::testing::TestWithParam<GoldenCase> {
 protected:
  /// GoldenOptions::max_positions of the golden.
  std::int32_t max_positions() const {
    return golden_.contains("max_positions") ? golden_.read<std::int32_t>("max_positions")[0] : 0;
  }
  /// Logits of the golden's rows in one step after those before them.
  std::vector<float> run_rows(GoldenModel& model) const {
    run_those_before(model);
    return model.run(rest(), n_before(), true, nullptr);
  }
  /// The same rows in three steps after those before them: 11 tokens, 1, the rest, as far as there are so many.
  std::vector<float> run_rows_in_three(GoldenModel& model) const {
    run_those_before(model);
    std::vector<float> parts;
    for (const auto& [begin, wanted] : {std::pair<std::size_t, std::size_t>{0, 11}, {11, 12}, {12, rest().size()}}) {
      const std::size_t end = std::min(wanted, rest().size());
      if (begin >= end) continue;
      const auto part =
          model.run(rest().subspan(begin, end - begin), n_before() + static_cast<std::int32_t>(begin), true, nullptr);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    return parts;
  }
  /// The largest relative error of a row. Both have whole rows; the last rows of `logits` are those of `expected`.
  double row_error(std::span<const float> logits, std::span<const float> expected) const {
    const std::size_t n_vocab = expected_.size() / positions_.size();
    EXPECT_GE(logits.size(), expected.size());
    logits = logits.last(expected.size());
    double largest = 0;
    for (std::size_t at = 0; at < expected.size(); at += n_vocab)
      largest = std::max(largest, relative_error(logits.subspan(at, n_vocab), expected.subspan(at, n_vocab)));
    return largest;
  }

  const Golden golden_{GetParam().file};
  const std::vector<std::int32_t> ids_ = golden_.read<std::int32_t>("input_ids");
  const std::vector<std::int32_t> positions_ = golden_.read<std::int32_t>("positions");  ///< the last ones of ids_
  const std::vector<float> expected_ = golden_.read<float>("logits");

 private:
  std::int32_t n_before() const { return static_cast<std::int32_t>(ids_.size() - positions_.size()); }
  std::span<const std::int32_t> rest() const { return std::span(ids_).last(positions_.size()); }
  void run_those_before(GoldenModel& model) const {
    if (n_before() > 0) model.run(std::span(ids_).first(static_cast<std::size_t>(n_before())), 0, false, nullptr);
  }
};

}  // namespace baton::testing
