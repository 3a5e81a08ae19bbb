/// Judges texts by grammars, token by token, for tools/json_schema_suite.py.
///
///     check_instances TOKENIZER.json < requests > verdicts
///
/// A request is a line {"kind": "json_schema", "text": "...", "instances": ["...", ...]}. Its verdict is a line
/// {"error": "..."} or {"accepted": [true, ...], "compile_us": N, "mask_us": N (the slowest), "ignored": [...]}: an
/// instance is accepted if the mask of every place allows its next token, and the last place the end. With "walks": N in
/// the request, "texts" has what N walks along random allowed tokens wrote, if they ended within 400 tokens.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace baton;
using Clock = std::chrono::steady_clock;

std::int64_t microseconds_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
}

std::shared_ptr<const grammar::TokenTrie> vocabulary_of(const Tokenizer& tokenizer, TokenId end) {
  std::vector<std::string> bytes;
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id)
    bytes.push_back(tokenizer.is_special(id) ? std::string() : tokenizer.token_bytes(id));
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), std::vector<TokenId>{end});
}

bool accepts(grammar::Matcher& matcher, const std::vector<TokenId>& tokens, TokenId end, std::int64_t& slowest_us) {
  grammar::MatcherState state = matcher.start();
  std::vector<std::uint32_t> mask(matcher.vocabulary().n_words());
  const auto is_allowed = [&](TokenId token) {
    const auto begin = Clock::now();
    const bool is_there = matcher.mask(state, mask).has_value();
    slowest_us = std::max(slowest_us, microseconds_since(begin));
    return is_there && (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  for (const TokenId token : tokens) {
    const bool allowed = is_allowed(token);
    if (matcher.accept(state, token) != allowed) {
      std::cerr << "check_instances: the mask and accept differ for token " << token << "\n";
      std::exit(1);
    }
    if (!allowed) return false;
  }
  return is_allowed(end);
}

/// A text of random allowed tokens, with quotes and brackets preferred so that it ends; nullopt if it does not.
std::optional<std::string> random_text(grammar::Matcher& matcher, std::mt19937& random) {
  const grammar::TokenTrie& vocabulary = matcher.vocabulary();
  std::vector<std::uint32_t> mask(vocabulary.n_words());
  grammar::MatcherState state = matcher.start();
  std::string text;
  for (int step = 0; step < 400; ++step) {
    if (matcher.must_end(state) || (matcher.is_complete(state) && random() % 3 == 0)) return text;
    if (!matcher.mask(state, mask)) return std::nullopt;
    std::vector<TokenId> allowed;
    std::vector<TokenId> closing;
    for (TokenId token = 0; token < vocabulary.n_vocab(); ++token) {
      if ((mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) == 0 || vocabulary.is_end(token)) continue;
      allowed.push_back(token);
      const std::string_view bytes = vocabulary.bytes_of(token);
      if (bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(token);
    }
    const std::vector<TokenId>& choices = !closing.empty() && random() % 4 == 0 ? closing : allowed;
    const TokenId token = choices[random() % choices.size()];
    matcher.accept(state, token);
    text += vocabulary.bytes_of(token);
  }
  return std::nullopt;
}

json::Value judge(const json::Value& request, const Tokenizer& tokenizer,
                  const std::shared_ptr<const grammar::TokenTrie>& vocabulary) {
  grammar::GrammarSource source{.text = request["text"].get<std::string>()};
  for (const auto kind : {grammar::GrammarKind::json_schema, grammar::GrammarKind::regex, grammar::GrammarKind::ebnf})
    if (request["kind"].get<std::string>() == to_string(kind)) source.kind = kind;
  const auto begin = Clock::now();
  auto compiled = grammar::compile_grammar(source, {}, {});
  const std::int64_t compile_us = microseconds_since(begin);
  json::Value verdict = json::Value::object();
  if (!compiled) {
    verdict["error"] = compiled.error().message;
    return verdict;
  }
  grammar::Matcher matcher(compiled->program, vocabulary);
  json::Value accepted = json::Value::array();
  std::int64_t mask_us = 0;
  for (const json::Value& text : request["instances"])
    accepted.push_back(accepts(matcher, tokenizer.encode_plain(text.get<std::string>()), vocabulary->ends()[0], mask_us));
  verdict["accepted"] = std::move(accepted);
  std::mt19937 random(1);
  json::Value texts = json::Value::array();
  for (int walk = 0; walk < request.value("walks", 0); ++walk)
    if (auto text = random_text(matcher, random)) texts.push_back(std::move(*text));
  verdict["texts"] = std::move(texts);
  verdict["compile_us"] = compile_us;
  verdict["mask_us"] = mask_us;
  verdict["n_bytes"] = matcher.n_bytes();
  verdict["ignored"] = compiled->ignored;
  return verdict;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "use: check_instances TOKENIZER.json < requests > verdicts\n";
    return 2;
  }
  const auto tokenizer = Tokenizer::load_file(argv[1]);
  if (!tokenizer) {
    std::cerr << "check_instances: " << tokenizer.error().message << "\n";
    return 1;
  }
  TokenId end = 0;
  while (end + 1 < tokenizer->n_vocab() && !tokenizer->is_special(end)) ++end;
  const auto vocabulary = vocabulary_of(*tokenizer, tokenizer->eos().value_or(end));
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = json::parse(line, "a request");
    if (!request) {
      std::cerr << "check_instances: " << request.error().message << "\n";
      return 1;
    }
    std::cout << json::dump(judge(*request, *tokenizer, vocabulary)) << "\n" << std::flush;
  }
  return 0;
}
