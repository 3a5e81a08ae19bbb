/// Parses trees.
#include "bench/attention/attention_trees.h"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::int32_t kMostNodes = 65536;
constexpr std::int32_t kLongestLevel = 1 << 20;

constexpr std::array<std::string_view, 20> kPatTrees{
    "1,10_4096,416",
    "1,256_256,32",
    "1,1024_2048,32",
    "1,2,64_1024,256,256",
    "1,4,256_32,256,32",
    "1,8,512_32,512,256",
    "1,8,512_32,2048,256",
    "1,8,512_512,512,256",
    "1,4,8,256_32,256,256,32",
    "1,4,16,512_1024,256,128,32",
    "1,4,16,64,256,1024_256,32,256,64,32,256",
    "1,16,32,64,128,1024_256,128,64,32,32,32",
    "1,16,32,64,256,1024_256,128,64,32,32,32",
    "1,8,16,32,64,128,1024_256,128,64,32,32,32,32",
    "1,8,16,32,64,256,1024_256,128,64,32,32,32,32",
    "2,8,16,256_256,256,32,32",
    "4,16,256,512_512,32,128,32",
    "8,16,32,256_512,512,256,32",
    "256_1024",
    "256_4096",
};

/// "1,8,512"
std::optional<std::vector<std::int32_t>> read_numbers(std::string_view text, std::int32_t most) {
  std::vector<std::int32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    const auto [rest, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc() || numbers.back() < 1 || numbers.back() > most) return std::nullopt;
    if (rest == end) return numbers;
    if (*rest != ',') return std::nullopt;
    at = rest + 1;
  }
}

}  // namespace

Result<std::vector<AttentionLevel>> parse_attention_tree(std::string_view text, std::int32_t block_len) {
  const auto refuse = [&](std::string_view reason) {
    return fail(ErrorCode::invalid_request, fmt::format("the tree {}: {}", text, reason), "tree");
  };
  const std::size_t middle = text.find('_');
  const auto counts = read_numbers(text.substr(0, middle), kMostNodes);
  const auto lengths = middle == std::string_view::npos ? std::nullopt : read_numbers(text.substr(middle + 1), kLongestLevel);
  if (!counts || !lengths || counts->size() != lengths->size())
    return refuse(fmt::format("not COUNTS_LENGTHS, as 1,8,512_32,512,256, with counts from 1 to {} and lengths from 1 to {}",
                              kMostNodes, kLongestLevel));
  std::vector<AttentionLevel> levels;
  for (std::size_t i = 0; i < counts->size(); ++i) {
    if (i > 0 && (*counts)[i] % (*counts)[i - 1] != 0)
      return refuse(fmt::format("{} nodes cannot be divided equally among {}", (*counts)[i], (*counts)[i - 1]));
    if (i + 1 < counts->size() && (*lengths)[i] % block_len != 0)
      return refuse(fmt::format("shared levels are whole blocks of {} tokens, and {} is not", block_len, (*lengths)[i]));
    levels.push_back({(*counts)[i], (*lengths)[i]});
  }
  return levels;
}

std::span<const std::string_view> pat_trees() { return kPatTrees; }

}  // namespace baton
