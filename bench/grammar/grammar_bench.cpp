/// Grammars on a vocabulary: compiling a schema of 10 KB, the masks of one answer when nothing is known yet, and when
/// all of it is. One thread, processor time.
///
/// The vocabulary is that of the folder or file that BATON_BENCH_TOKENIZER names; where it is not set, the demo's.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "grammar/grammar.h"
#include "grammar/match/matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = [] {
    const char* named = std::getenv("BATON_BENCH_TOKENIZER");
    const std::filesystem::path path = named != nullptr ? named : BATON_SOURCE_DIR "/models/demo/tokenizer.json";
    auto result = std::filesystem::is_directory(path) ? Tokenizer::load(path) : Tokenizer::load_file(path);
    check(result.has_value(), result ? "" : result.error().message);
    return std::move(*result);
  }();
  return loaded;
}

std::shared_ptr<const grammar::TokenTrie> vocabulary() {
  std::vector<std::string> bytes;
  for (TokenId id = 0; id < tokenizer().n_vocab(); ++id)
    bytes.push_back(tokenizer().is_special(id) ? std::string() : tokenizer().token_bytes(id));
  bytes.emplace_back();
  const auto end = static_cast<TokenId>(bytes.size() - 1);
  return std::make_shared<grammar::TokenTrie>(std::move(bytes), std::vector<TokenId>{end});
}

/// A schema of about 10 KB without prose, and an answer to it: records of every kind of field.
struct Example {
  std::string schema;
  std::string answer;
};

Example large_example() {
  Example example;
  const std::pair<std::string, std::string> kinds[] = {
      {R"({"type": "string"})", "\"Some words, and a \\\"quote\\\".\""},
      {R"({"type": "string", "maxLength": 200})", "\"a text of a few words\""},
      {R"({"type": "integer", "minimum": 1, "maximum": 1000})", "512"},
      {R"({"type": "number"})", "-12.75"},
      {R"({"type": "string", "format": "date-time"})", "\"2024-05-06T07:08:09Z\""},
      {R"({"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$"})", "\"ABC-123456\""},
      {R"({"enum": ["pending", "running", "done", "failed", "cancelled"]})", "\"running\""},
      {R"({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20})", "[\"one\", \"two\", \"three\"]"},
      {R"({"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "object", "properties": {"why": {"type": "string"}}}]})",
       "{\"why\": \"because\"}"}};
  std::string definitions;
  std::string properties;
  for (int record = 0; record < 12; ++record) {
    std::string fields;
    std::string required;
    std::string values;
    int n = 0;
    for (const auto& [schema, value] : kinds) {
      const std::string name = "\"field_" + std::to_string(record) + "_" + std::to_string(n++) + "\"";
      fields += (fields.empty() ? "" : ", ") + name + ": " + schema;
      if (n % 2 == 0) required += (required.empty() ? "" : ", ") + name;
      values += (values.empty() ? "" : ", ") + name + ": " + value;
    }
    const std::string name = "\"record_" + std::to_string(record) + "\"";
    definitions += (record == 0 ? "" : ", ") + name + ": {\"type\": \"object\", \"properties\": {" + fields +
                   "}, \"required\": [" + required + "]" + (record % 2 == 0 ? ", \"additionalProperties\": false" : "") + "}";
    properties += (record == 0 ? "" : ", ") + name + ": {\"$ref\": \"#/$defs/record_" + std::to_string(record) + "\"}";
    example.answer += (record == 0 ? "{" : ", ") + name + ": {" + values + "}";
  }
  example.answer += "}";
  example.schema = "{\"type\": \"object\", \"properties\": {" + properties +
                   "}, \"additionalProperties\": false, \"$defs\": {" + definitions + "}}";
  return example;
}

std::shared_ptr<const grammar::Program> compiled(const std::string& schema) {
  auto result = grammar::compile_grammar({.kind = grammar::GrammarKind::json_schema, .text = schema}, {}, {});
  check(result.has_value(), result ? "" : result.error().message);
  return result->program;
}

void compile(benchmark::State& state) {
  const Example example = large_example();
  for (auto _ : state) benchmark::DoNotOptimize(compiled(example.schema));
  state.counters["schema_bytes"] = static_cast<double>(example.schema.size());
  state.counters["states"] = static_cast<double>(compiled(example.schema)->n_states());
}

/// Goes through the answer; returns how long the slowest mask took, in microseconds.
double masks_of_answer(grammar::Matcher& matcher, const std::vector<TokenId>& tokens, std::vector<std::uint32_t>& mask) {
  double slowest_us = 0;
  grammar::MatcherState at = matcher.start();
  for (const TokenId token : tokens) {
    const auto begin = std::chrono::steady_clock::now();
    check(matcher.mask(at, mask).has_value(), "a place of the answer without tokens");
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    slowest_us = std::max(slowest_us, took.count());
    check(matcher.accept(at, token), "the answer does not match its schema");
  }
  check(matcher.is_complete(at), "the answer is not complete");
  return slowest_us;
}

/// Compiling and all masks of one answer, from nothing.
void first_use(benchmark::State& state) {
  const Example example = large_example();
  const auto tokens = tokenizer().encode_plain(example.answer);
  const auto trie = vocabulary();
  std::vector<std::uint32_t> mask(trie->n_words());
  double slowest_us = 0;
  for (auto _ : state) {
    grammar::Matcher matcher(compiled(example.schema), trie);
    slowest_us = std::max(slowest_us, masks_of_answer(matcher, tokens, mask));
  }
  state.counters["tokens"] = static_cast<double>(tokens.size());
  state.counters["vocabulary"] = trie->n_vocab();
  state.counters["slowest_mask_us"] = slowest_us;
}

/// Compiling and the first mask.
void first_mask(benchmark::State& state) {
  const Example example = large_example();
  const auto trie = vocabulary();
  std::vector<std::uint32_t> mask(trie->n_words());
  for (auto _ : state) {
    grammar::Matcher matcher(compiled(example.schema), trie);
    check(matcher.mask(matcher.start(), mask).has_value(), "no token begins the answer");
  }
}

/// The masks of an answer that was seen before: processor time for each token.
void seen_before(benchmark::State& state) {
  const Example example = large_example();
  const auto tokens = tokenizer().encode_plain(example.answer);
  const auto trie = vocabulary();
  std::vector<std::uint32_t> mask(trie->n_words());
  grammar::Matcher matcher(compiled(example.schema), trie);
  masks_of_answer(matcher, tokens, mask);
  for (auto _ : state) masks_of_answer(matcher, tokens, mask);
  state.counters["per_token"] = benchmark::Counter(static_cast<double>(tokens.size() * state.iterations()),
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["matcher_bytes"] = static_cast<double>(matcher.n_bytes());
}

void make_trie(benchmark::State& state) {
  tokenizer();
  for (auto _ : state) benchmark::DoNotOptimize(vocabulary());
}

BENCHMARK(compile)->Unit(benchmark::kMillisecond);
BENCHMARK(first_mask)->Unit(benchmark::kMillisecond);
BENCHMARK(first_use)->Unit(benchmark::kMillisecond);
BENCHMARK(seen_before)->Unit(benchmark::kMillisecond);
BENCHMARK(make_trie)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace baton
