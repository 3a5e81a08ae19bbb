/// Decimal comparison and divisibility as automata over digits.
#include "grammar/automaton/number_language.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "grammar/automaton/expression.h"

namespace baton::grammar {

namespace {

/// A decimal's digits, without its sign; `fraction` has no zeros at its end.
struct Magnitude {
  std::string_view whole;
  std::string_view fraction;
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

Magnitude magnitude_of(std::string_view decimal) {
  if (decimal.starts_with('-')) decimal.remove_prefix(1);
  const std::size_t dot = decimal.find('.');
  if (dot == std::string_view::npos) return {decimal, {}};
  return {decimal.substr(0, dot), decimal.substr(dot + 1)};
}

/// Expressions of digits.
class Digits {
 public:
  explicit Digits(Expressions& expressions) : e_(expressions) {}

  ExprId between(char first, char last) {
    ByteSet set;
    for (char c = first; c <= last; ++c) set.set(static_cast<std::size_t>(c));
    return e_.byte_set(set);
  }
  ExprId digits(int min, int max) { return e_.repeat(between('0', '9'), min, max); }
  ExprId whole() { return e_.choice({e_.bytes("0"), e_.sequence({between('1', '9'), digits(0, kUnlimited)})}); }
  ExprId any_fraction() { return e_.optional(e_.sequence({e_.bytes("."), digits(1, kUnlimited)})); }
  ExprId unsigned_any() { return e_.sequence({whole(), any_fraction()}); }
  ExprId negative(ExprId magnitude) { return e_.sequence({e_.bytes("-"), magnitude}); }

  ExprId greater_whole(std::string_view digits_of_bound);
  ExprId smaller_whole(std::string_view digits_of_bound);
  ExprId fraction_at_least(std::string_view fraction, bool is_exclusive);
  ExprId fraction_at_most(std::string_view fraction, bool is_exclusive);
  ExprId at_least(const NumberBound& bound);
  ExprId at_most(const NumberBound& bound);

 private:
  ExprId magnitude_at_least(const Magnitude& bound, bool is_exclusive) {
    return e_.choice({e_.sequence({greater_whole(bound.whole), any_fraction()}),
                      e_.sequence({e_.bytes(bound.whole), fraction_at_least(bound.fraction, is_exclusive)})});
  }
  ExprId magnitude_at_most(const Magnitude& bound, bool is_exclusive) {
    return e_.choice({e_.sequence({smaller_whole(bound.whole), any_fraction()}),
                      e_.sequence({e_.bytes(bound.whole), fraction_at_most(bound.fraction, is_exclusive)})});
  }

  Expressions& e_;
};

ExprId Digits::greater_whole(std::string_view bound) {
  const int n = static_cast<int>(bound.size());
  std::vector<ExprId> all{e_.sequence({between('1', '9'), digits(n, kUnlimited)})};
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (bound[i] < '9')
      all.push_back(e_.sequence({e_.bytes(bound.substr(0, i)), between(static_cast<char>(bound[i] + 1), '9'),
                                 digits(n - static_cast<int>(i) - 1, n - static_cast<int>(i) - 1)}));
  return e_.choice(all);
}

ExprId Digits::smaller_whole(std::string_view bound) {
  const int n = static_cast<int>(bound.size());
  std::vector<ExprId> all;
  if (n > 1) all = {e_.bytes("0"), e_.sequence({between('1', '9'), digits(0, n - 2)})};
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const char least = i == 0 && n > 1 ? '1' : '0';
    if (bound[i] > least)
      all.push_back(e_.sequence({e_.bytes(bound.substr(0, i)), between(least, static_cast<char>(bound[i] - 1)),
                                 digits(n - static_cast<int>(i) - 1, n - static_cast<int>(i) - 1)}));
  }
  return e_.choice(all);
}

ExprId Digits::fraction_at_least(std::string_view fraction, bool is_exclusive) {
  const ExprId nonzero_tail = e_.sequence({digits(0, kUnlimited), between('1', '9'), digits(0, kUnlimited)});
  if (fraction.empty()) return is_exclusive ? e_.sequence({e_.bytes("."), nonzero_tail}) : any_fraction();
  std::vector<ExprId> all{e_.sequence({e_.bytes(fraction), is_exclusive ? nonzero_tail : digits(0, kUnlimited)})};
  for (std::size_t i = 0; i < fraction.size(); ++i)
    if (fraction[i] < '9')
      all.push_back(e_.sequence(
          {e_.bytes(fraction.substr(0, i)), between(static_cast<char>(fraction[i] + 1), '9'), digits(0, kUnlimited)}));
  return e_.sequence({e_.bytes("."), e_.choice(all)});
}

ExprId Digits::fraction_at_most(std::string_view fraction, bool is_exclusive) {
  const ExprId zeros = e_.repeat(e_.bytes("0"), 0, kUnlimited);
  if (fraction.empty()) {
    if (is_exclusive) return e_.nothing();
    return e_.optional(e_.sequence({e_.bytes(".0"), zeros}));
  }
  std::vector<ExprId> all;
  if (!is_exclusive) all.push_back(e_.sequence({e_.bytes(fraction), zeros}));
  for (std::size_t i = 0; i < fraction.size(); ++i) {
    if (i > 0) all.push_back(e_.bytes(fraction.substr(0, i)));
    if (fraction[i] > '0')
      all.push_back(e_.sequence(
          {e_.bytes(fraction.substr(0, i)), between('0', static_cast<char>(fraction[i] - 1)), digits(0, kUnlimited)}));
  }
  return e_.optional(e_.sequence({e_.bytes("."), e_.choice(all)}));
}

ExprId Digits::at_least(const NumberBound& bound) {
  const Magnitude magnitude = magnitude_of(bound.decimal);
  if (!bound.decimal.starts_with('-')) return magnitude_at_least(magnitude, bound.is_exclusive);
  return e_.choice({unsigned_any(), negative(magnitude_at_most(magnitude, bound.is_exclusive))});
}

ExprId Digits::at_most(const NumberBound& bound) {
  const Magnitude magnitude = magnitude_of(bound.decimal);
  if (bound.decimal.starts_with('-')) return negative(magnitude_at_least(magnitude, bound.is_exclusive));
  if (magnitude.is_zero()) {
    const ExprId below = negative(magnitude_at_least(magnitude, /*is_exclusive=*/true));
    return bound.is_exclusive ? below : e_.choice({below, magnitude_at_most(magnitude, false)});
  }
  return e_.choice({negative(unsigned_any()), magnitude_at_most(magnitude, bound.is_exclusive)});
}

/// The multiples of `decimal` with at most as many digits of fraction as it has, and zeros after them: the remainder
/// of the digits read so far by its digits is the state.
Result<Dfa> multiples(std::string_view decimal, WorkMeter& meter) {
  constexpr std::uint64_t kMost = 20'000;
  const Magnitude magnitude = magnitude_of(decimal);
  std::uint64_t modulus = 0;
  for (const char digit : std::string(magnitude.whole) + std::string(magnitude.fraction)) {
    modulus = modulus * 10 + static_cast<std::uint64_t>(digit - '0');
    if (modulus > kMost)
      return fail(ErrorCode::unsupported, fmt::format("a multiple of {} has digits over {}", decimal, kMost));
  }
  const std::size_t n_fraction = magnitude.fraction.size();
  if (modulus * (n_fraction + 2) > Dfa::kMaxStates)
    return fail(ErrorCode::unsupported, fmt::format("a multiple of {} needs more than {} states", decimal, Dfa::kMaxStates));
  const auto row = static_cast<std::int32_t>(modulus);
  if (!meter.spend(static_cast<std::int64_t>(16 * modulus * (n_fraction + 2)))) return over_budget(meter);
  Dfa dfa(meter);
  // 0: start; 1: after the sign; 2: a leading zero; then a row of remainders for the whole part, one for the dot, and
  // one for each digit of the fraction.
  for (int i = 0; i < 3; ++i) dfa.add_state(i == 2);
  const auto state = [&](std::size_t place, std::uint64_t remainder) {
    return 3 + static_cast<std::int32_t>(place) * row + static_cast<std::int32_t>(remainder);
  };
  for (std::size_t place = 0; place <= n_fraction + 1; ++place) {
    if (!meter.is_within()) return over_budget(meter);
    for (std::uint64_t remainder = 0; remainder < modulus; ++remainder) {
      std::uint64_t scaled = remainder;
      for (std::size_t digit = place == 0 ? 0 : place - 1; digit < n_fraction; ++digit) scaled = scaled * 10 % modulus;
      const bool is_behind_dot = place == 1;
      dfa.add_state(scaled == 0 && !is_behind_dot);
    }
  }
  // A state for zeros after the last digit that counts.
  const std::int32_t zeros = dfa.add_state(true);
  const auto edge = [&](std::int32_t from, char byte, std::int32_t to) {
    dfa.next[static_cast<std::size_t>(from)][static_cast<unsigned char>(byte)] = to;
  };
  edge(0, '-', 1);
  for (const std::int32_t from : {0, 1}) {
    edge(from, '0', 2);
    for (char c = '1'; c <= '9'; ++c) edge(from, c, state(0, static_cast<std::uint64_t>(c - '0') % modulus));
  }
  edge(2, '.', state(1, 0));
  for (std::uint64_t remainder = 0; remainder < modulus; ++remainder) {
    edge(state(0, remainder), '.', state(1, remainder));
    for (char c = '0'; c <= '9'; ++c) {
      const std::uint64_t next = (remainder * 10 + static_cast<std::uint64_t>(c - '0')) % modulus;
      edge(state(0, remainder), c, state(0, next));
      for (std::size_t place = 1; place <= n_fraction; ++place) edge(state(place, remainder), c, state(place + 1, next));
    }
  }
  edge(state(n_fraction + 1, 0), '0', zeros);
  edge(zeros, '0', zeros);
  return dfa;
}

}  // namespace

Result<Dfa> number_automaton(const NumberLanguage& language, WorkMeter& meter) {
  Expressions expressions(meter);
  Digits digits(expressions);
  const ExprId sign = expressions.optional(expressions.bytes("-"));
  BATON_TRY(Dfa dfa,
            determinize(expressions, expressions.sequence({sign, language.is_integer ? digits.whole() : digits.unsigned_any()}),
                        meter));
  const auto intersect = [&](const Dfa& other) -> Result<void> {
    BATON_TRY(dfa, combine(dfa, other, DfaProduct::intersection, meter));
    return {};
  };
  for (const NumberBound& bound : language.at_least) {
    BATON_TRY(const Dfa other, determinize(expressions, digits.at_least(bound), meter));
    BATON_TRY_VOID(intersect(other));
  }
  for (const NumberBound& bound : language.at_most) {
    BATON_TRY(const Dfa other, determinize(expressions, digits.at_most(bound), meter));
    BATON_TRY_VOID(intersect(other));
  }
  for (const std::string& multiple : language.multiples_of) {
    BATON_TRY(const Dfa other, multiples(multiple, meter));
    BATON_TRY_VOID(intersect(other));
  }
  return dfa;
}

}  // namespace baton::grammar
