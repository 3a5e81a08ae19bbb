/// Reads the files in order and gives their memory back on the way.
#include "load/model_checksum.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/checksum.h"
#include "io/file.h"
#include "load/byte_text.h"
#include "load/weight_rounding.h"

namespace baton {
namespace {

struct FileSum {
  std::uint64_t checksum = 0;
  std::int64_t n_bytes = 0;
};

Result<FileSum> sum_of_file(const std::filesystem::path& path) {
  constexpr std::size_t kPartBytes = std::size_t{64} << 20;
  BATON_TRY(const MappedFile file, MappedFile::open(path));
  std::uint64_t sum = file.bytes().size();
  for (std::size_t at = 0; at < file.bytes().size(); at += kPartBytes) {
    const auto part = file.bytes().subspan(at, std::min(kPartBytes, file.bytes().size() - at));
    sum = damage_checksum(part, sum);
    file.drop_pages(part);
  }
  return FileSum{sum, static_cast<std::int64_t>(file.bytes().size())};
}

/// Enough of a checksum to tell two parts from each other.
Result<std::string> short_checksum(const std::string& text) {
  BATON_TRY(const std::string checksum, sha256_of_text(text));
  return "checksum " + checksum.substr(0, 16);
}

struct WeightsText {
  std::string text;   ///< for the checksum
  std::string shown;  ///< for people
};

/// Reads all weights.
Result<WeightsText> weights_text(const ModelFiles& files, const ModelOptions& options) {
  if (options.load_format == "dummy")
    return WeightsText{fmt::format("\nrandom weights, seed {}", options.seed), fmt::format("random, seed {}", options.seed)};
  WeightsText weights;
  const std::vector<std::filesystem::path> paths = weight_files(files.folder);
  std::int64_t n_bytes = 0;
  for (const std::filesystem::path& path : paths) {
    BATON_TRY(const FileSum file, sum_of_file(path));
    weights.text += fmt::format("\n{} {:016x}", path.filename().string(), file.checksum);
    n_bytes += file.n_bytes;
  }
  BATON_TRY(const std::string checksum, short_checksum(weights.text));
  weights.shown =
      fmt::format("{} {} with {}, {}", paths.size(), paths.size() == 1 ? "file" : "files", byte_text(n_bytes), checksum);
  return weights;
}

}  // namespace

Result<PrefixIdentity> model_checksum(const ModelFiles& files, const ModelOptions& options) {
  BATON_TRY(const std::string config, read_file(files.folder / "config.json"));
  BATON_TRY(const QuantizationText quantization, quantization_text(files.folder, options));
  BATON_TRY(const WeightsText weights, weights_text(files, options));
  BATON_TRY(std::string checksum, sha256_of_text(config + quantization.whole() + weights.text));
  BATON_TRY(std::string of_config, short_checksum(config));
  PrefixIdentity facts{{"model", std::move(checksum)},
                       {"model: config.json", std::move(of_config)},
                       {"model: weights", weights.shown},
                       {"model: --quantization", quantization.rounding.empty() ? "none" : quantization.rounding}};
  if (!quantization.activations.empty()) facts.emplace_back("model: --activation-dtype", quantization.activations);
  for (const auto& [name, contents] : quantization.files) {
    BATON_TRY(std::string of_file, short_checksum(contents));
    facts.emplace_back("model: " + name, std::move(of_file));
  }
  return facts;
}

}  // namespace baton
