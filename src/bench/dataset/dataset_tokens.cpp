/// Draws by SplitMix64.
#include "bench/dataset/dataset_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/split_mix.h"

namespace baton {
namespace {

constexpr TokenId kFirstDrawnId = 10;

std::vector<TokenId> drawable_ids(const DatasetContext& context) {
  std::vector<TokenId> ids;
  if (context.tokenizer == nullptr) {
    for (TokenId id = context.n_vocab < 2 * kFirstDrawnId ? 0 : kFirstDrawnId; id < context.n_vocab; ++id) ids.push_back(id);
    return ids;
  }
  const Tokenizer& tokenizer = *context.tokenizer;
  const std::int32_t end = context.n_vocab == 0 ? tokenizer.n_vocab() : std::min(context.n_vocab, tokenizer.n_vocab());
  for (TokenId id = 0; id < end; ++id)
    if (tokenizer.contains(id) && !tokenizer.is_special(id)) ids.push_back(id);
  return ids;
}

}  // namespace

Result<DatasetTokens> DatasetTokens::make(const DatasetContext& context, std::uint64_t seed) {
  DatasetTokens made;
  made.seed_ = seed;
  made.ids_ = drawable_ids(context);
  if (made.ids_.empty())
    return fail(ErrorCode::invalid_request, "the vocabulary has no token that a dataset could draw; --tokenizer names one");
  return made;
}

void DatasetTokens::append(std::vector<TokenId>& tokens, DatasetStream stream, std::uint64_t number, std::int32_t count) const {
  const std::uint64_t key = key_of(stream, number);
  tokens.reserve(tokens.size() + static_cast<std::size_t>(std::max(count, 0)));
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(ids_[split_mix(key, static_cast<std::uint64_t>(i)) % ids_.size()]);
}

std::int32_t DatasetTokens::number_in(std::int32_t low, std::int32_t high, DatasetStream stream, std::uint64_t number) const {
  const auto n_values = static_cast<std::uint64_t>(static_cast<std::int64_t>(high) - low + 1);
  return low + static_cast<std::int32_t>(key_of(stream, number) % n_values);
}

std::vector<std::size_t> DatasetTokens::order_of(std::size_t n) const {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Fisher-Yates: the order of the standard library's shuffle differs between libraries.
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[key_of(DatasetStream::order, i) % i]);
  return order;
}

std::uint64_t DatasetTokens::key_of(DatasetStream stream, std::uint64_t number) const {
  return split_mix(split_mix(seed_, static_cast<std::uint64_t>(stream)), number);
}

}  // namespace baton
