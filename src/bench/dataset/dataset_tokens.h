/// Numbers and token ids of datasets, drawn from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/dataset/dataset.h"

namespace baton {

/// What is drawn. The values are part of each key: changing one changes the workloads.
enum class DatasetStream : std::uint64_t {
  system_prompt = 1,  ///< --prefix-len
  shared_prompt = 2,  ///< a prefix of several requests, by its number
  request = 3,        ///< what a request has alone
  trace_block = 4,    ///< a block of a trace, by its hash id
  input_len = 5,
  output_len = 6,
  order = 7,
};

/// Draws from one seed. A draw depends on nothing but the seed, its stream, its number and its place.
class DatasetTokens {
 public:
  /// The ids that may be drawn: those of the tokenizer that are not special; without a tokenizer all below n_vocab but
  /// the first ten, and those too in a vocabulary of fewer than 20. Errors: invalid_request, if there is none.
  static Result<DatasetTokens> make(const DatasetContext& context, std::uint64_t seed);

  /// Appends the first `count` tokens of run `number` of a stream.
  void append(std::vector<TokenId>& tokens, DatasetStream stream, std::uint64_t number, std::int32_t count) const;
  /// A number in [low, high].
  std::int32_t number_in(std::int32_t low, std::int32_t high, DatasetStream stream, std::uint64_t number) const;
  /// 0 to n - 1 in random order.
  std::vector<std::size_t> order_of(std::size_t n) const;

 private:
  std::uint64_t key_of(DatasetStream stream, std::uint64_t number) const;

  std::uint64_t seed_ = 0;
  std::vector<TokenId> ids_;
};

}  // namespace baton
