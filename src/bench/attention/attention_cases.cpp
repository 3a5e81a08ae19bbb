/// The cases of the workloads W1, W2, W3 and pat (docs/workloads.md), and other programs' times for them.
#include "bench/attention/attention_cases.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr double kProductFlopsPerUs = 600e6;

/// W1: batch, length; times of Flash-Decoding on an A100, eager, FlashAttention-2, FlashInfer, cuDNN.
struct FlashDecodingLine {
  std::int32_t n_requests, own_len;
  double published, eager, flash, flashinfer, cudnn;
};
constexpr std::array<FlashDecodingLine, 10> kFlashDecoding{{
    {256, 256, 63.4, 1476.6, 33.9, 27.4, 23.5},
    {128, 512, 67.7, 1462.3, 30.5, 23.4, 20.8},
    {64, 1024, 77.7, 1453.4, 25.6, 27.1, 20.5},
    {32, 2048, 58.5, 1463.4, 25.9, 26.4, 23.4},
    {16, 4096, 57.0, 1453.3, 27.9, 25.9, 23.3},
    {8, 8192, 56.4, 1450.6, 28.1, 25.9, 23.6},
    {4, 16384, 58.2, 1456.6, 31.1, 26.0, 24.0},
    {2, 32768, 60.3, 1465.5, 37.4, 26.4, 25.1},
    {1, 65536, 64.4, 1647.6, 48.1, 27.3, 24.1},
    {1, 131072, 106.6, 3263.4, 62.0, 43.6, 38.8},
}};

/// W2: shared; times of FlashInfer's plain and cascade, PyTorch without sharing and as a relay of three kernels.
struct RelayFigureLine {
  std::int32_t shared_len;
  double plain, cascade, unshared, torch_relay;
};
constexpr std::array<RelayFigureLine, 8> kRelayFigure{{
    {64, 32.1, 37.8, 79.1, 68.8},
    {128, 34.2, 38.1, 97.3, 70.7},
    {256, 42.7, 40.0, 136.0, 75.0},
    {512, 64.1, 42.9, 214.0, 82.4},
    {1024, 106.6, 48.4, 394.4, 92.1},
    {2048, 193.2, 56.4, 754.3, 94.2},
    {4096, 369.7, 68.2, 1493.7, 110.3},
    {8192, 718.6, 91.3, 2909.2, 138.4},
}};

/// W3: requests, own, shared; times of FlashInfer's plain and cascade.
struct LlamaLine {
  std::int32_t n_requests, own_len, shared_len;
  double plain, cascade;
};
constexpr std::array<LlamaLine, 24> kLlama{{
    {8, 128, 512, 12.8, 16.5},      {8, 128, 2048, 18.1, 18.0},     {8, 128, 8192, 39.6, 23.9},
    {8, 128, 32768, 123.5, 48.6},   {8, 512, 512, 14.3, 21.9},      {8, 512, 2048, 19.0, 23.6},
    {8, 512, 8192, 40.6, 30.2},     {8, 512, 32768, 122.8, 54.4},   {32, 128, 512, 17.2, 23.1},
    {32, 128, 2048, 37.1, 25.5},    {32, 128, 8192, 118.8, 34.5},   {32, 128, 32768, 443.8, 68.1},
    {32, 512, 512, 29.2, 36.7},     {32, 512, 2048, 49.2, 39.5},    {32, 512, 8192, 129.9, 49.7},
    {32, 512, 32768, 456.5, 84.4},  {128, 128, 512, 59.3, 42.0},    {128, 128, 2048, 139.8, 49.2},
    {128, 128, 8192, 467.8, 81.5},  {128, 128, 32768, 1783.6, 213}, {128, 512, 512, 103.2, 92.5},
    {128, 512, 2048, 184.9, 102.5}, {128, 512, 8192, 509.9, 135.3}, {128, 512, 32768, 1823.2, 266.7},
}};

/// The head shapes of PAT's kernel benchmark.
constexpr std::array<AttentionHeads, 4> kPatHeads{{{32, 32, 128}, {16, 8, 128}, {32, 8, 128}, {64, 8, 128}}};

}  // namespace

std::vector<AttentionLevel> AttentionBenchCase::shared_levels() const {
  if (!tree.empty() || shared_len == 0) return tree;
  return {{n_groups, shared_len}};
}

std::int64_t AttentionBenchCase::distinct_tokens() const {
  std::int64_t tokens = static_cast<std::int64_t>(n_requests) * own_len;
  for (const AttentionLevel& level : shared_levels()) tokens += static_cast<std::int64_t>(level.n_nodes) * level.len;
  return tokens;
}

AttentionShape AttentionBenchCase::attention_shape(DType kv_dtype) const {
  AttentionShape shape{n_heads, n_kv_heads, head_dim, static_cast<std::int32_t>(size_bytes(kv_dtype)), 0, kBenchBlockLen};
  shape.latent_dim = latent_dim;
  return shape;
}

double AttentionBenchCase::flops() const {
  const std::int32_t v_dim = latent_dim > 0 ? latent_dim : head_dim;
  return 2.0 * n_heads * (head_dim + v_dim) * static_cast<double>(plain_tokens());
}

AttentionBenchCase tree_case(std::string table, const AttentionHeads& heads, std::vector<AttentionLevel> levels) {
  const AttentionLevel requests = levels.back();
  levels.pop_back();
  AttentionBenchCase made{std::move(table), heads.n_heads, heads.n_kv_heads, heads.head_dim, requests.n_nodes, 0, requests.len};
  for (const AttentionLevel& level : levels) made.shared_len += level.len;
  if (!levels.empty()) made.n_groups = levels.front().n_nodes;
  made.tree = std::move(levels);
  made.latent_dim = heads.latent_dim;
  return made;
}

std::string shared_text(const AttentionBenchCase& of) {
  std::string text;
  for (const AttentionLevel& level : of.shared_levels())
    text += (text.empty() ? "" : " + ") +
            (level.n_nodes > 1 ? fmt::format("{} x {}", level.n_nodes, level.len) : std::to_string(level.len));
  return text.empty() ? "0" : text;
}

std::vector<AttentionBenchCase> attention_bench_cases(const std::vector<std::string>& tables) {
  std::vector<AttentionBenchCase> cases;
  const auto wanted = [&](const char* table) { return std::find(tables.begin(), tables.end(), table) != tables.end(); };
  if (wanted("W1"))
    for (const FlashDecodingLine& line : kFlashDecoding) cases.push_back({"W1", 16, 2, 128, line.n_requests, 0, line.own_len});
  if (wanted("W2"))
    for (const RelayFigureLine& line : kRelayFigure) cases.push_back({"W2", 52, 52, 128, 32, line.shared_len, 128});
  if (wanted("W3"))
    for (const LlamaLine& line : kLlama) cases.push_back({"W3", 32, 8, 128, line.n_requests, line.shared_len, line.own_len});
  if (wanted("pat"))
    for (const AttentionHeads& heads : kPatHeads)
      for (const std::string_view tree : pat_trees())
        cases.push_back(tree_case(fmt::format("PAT {}/{}", heads.n_heads, heads.n_kv_heads), heads,
                                  parse_attention_tree(tree, kBenchBlockLen).value()));
  return cases;
}

DType table_dtype(const std::string& table) { return table == "W1" ? DType::f16 : DType::bf16; }

double AttentionReferences::best_peer_us() const {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [name, us] : peers) best = std::min(best, us);
  return best;
}

std::vector<std::string> reference_titles(const std::string& table) {
  if (table == "W1") return {"FlashInfer", "cuDNN", "FlashAttention-2", "eager", "Flash-Decoding, A100"};
  if (table == "W2") return {"plain, shared pages", "cascade", "torch relay", "no sharing"};
  if (table == "W3") return {"plain, shared pages", "cascade"};
  return {};
}

std::optional<AttentionReferences> attention_references(const AttentionBenchCase& of) {
  const std::vector<std::string> titles = reference_titles(of.table);
  if (of.table == "W1")
    for (const FlashDecodingLine& line : kFlashDecoding)
      if (line.n_requests == of.n_requests && line.own_len == of.own_len)
        return AttentionReferences{
            {{titles[0], line.flashinfer}, {titles[1], line.cudnn}, {titles[2], line.flash}, {titles[3], line.eager}},
            {{titles[4], line.published}}};
  if (of.table == "W2")
    for (const RelayFigureLine& line : kRelayFigure)
      if (line.shared_len == of.shared_len)
        return AttentionReferences{
            {{titles[0], line.plain}, {titles[1], line.cascade}, {titles[2], line.torch_relay}, {titles[3], line.unshared}},
            {}};
  if (of.table == "W3")
    for (const LlamaLine& line : kLlama)
      if (line.n_requests == of.n_requests && line.own_len == of.own_len && line.shared_len == of.shared_len)
        return AttentionReferences{{{titles[0], line.plain}, {titles[1], line.cascade}}, {}};
  return std::nullopt;
}

std::optional<double> attention_goal_us(const AttentionBenchCase& of, double read_us, double floor_us) {
  if (of.table == "W1") return read_us + 2;
  if (of.table == "W2") return 1.15 * floor_us + 3;
  if (of.table != "W3") return std::nullopt;
  return std::max(1.25 * std::max(floor_us, of.flops() / kProductFlopsPerUs) + 4, 7.0);
}

}  // namespace baton
