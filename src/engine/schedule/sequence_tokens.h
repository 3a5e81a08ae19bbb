/// The tokens of a sequence: its prompt and what it has generated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/shared_list.h"

namespace baton {

/// Tokens stand in a row. The sequences of a request share their prompt until the first token follows it; from then on
/// a sequence has a copy. So a waiting sequence costs no copy, and only sequences that ran have one.
/// Thread: one at a time; other sequences that share the prompt may be used by other threads.
class SequenceTokens {
 public:
  using value_type = TokenId;
  using iterator = const TokenId*;
  using const_iterator = const TokenId*;

  SequenceTokens() = default;
  explicit SequenceTokens(SharedList<TokenId> prompt)
      : prompt_(std::move(prompt)), data_(prompt_.data()), size_(prompt_.size()) {}
  SequenceTokens(SequenceTokens&& other) noexcept { *this = std::move(other); }
  SequenceTokens& operator=(SequenceTokens&& other) noexcept {
    prompt_ = std::move(other.prompt_);
    own_ = std::move(other.own_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const TokenId* data() const { return data_; }
  const TokenId* begin() const { return data_; }
  const TokenId* end() const { return data_ + size_; }
  /// `index` < size().
  const TokenId& operator[](std::size_t index) const { return data_[index]; }

  friend bool operator==(const SequenceTokens& a, std::span<const TokenId> b) { return std::ranges::equal(a, b); }

  void push_back(TokenId token) {
    if (own_.size() < size_) {
      own_.reserve(size_ + size_ / 8 + kRoom);
      own_.assign(begin(), end());
      prompt_ = {};
    }
    own_.push_back(token);
    data_ = own_.data();
    size_ = own_.size();
  }

 private:
  static constexpr std::size_t kRoom = 32;  ///< for the first generated tokens

  SharedList<TokenId> prompt_;
  std::vector<TokenId> own_;       ///< empty, or all tokens
  const TokenId* data_ = nullptr;  ///< of prompt_ or own_
  std::size_t size_ = 0;
};

}  // namespace baton
