/// Reads the files in order and gives their memory back on the way.
#include "load/model_checksum.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "io/checksum.h"
#include "io/file.h"
#include "load/weight_rounding.h"

namespace baton {
namespace {

Result<std::uint64_t> checksum_of_file(const std::filesystem::path& path) {
  constexpr std::size_t kPartBytes = std::size_t{64} << 20;
  BATON_TRY(const MappedFile file, MappedFile::open(path));
  std::uint64_t sum = file.bytes().size();
  for (std::size_t at = 0; at < file.bytes().size(); at += kPartBytes) {
    const auto part = file.bytes().subspan(at, std::min(kPartBytes, file.bytes().size() - at));
    sum = damage_checksum(part, sum);
    file.drop_pages(part);
  }
  return sum;
}

}  // namespace

Result<std::string> model_checksum(const ModelFiles& files, const ModelOptions& options) {
  BATON_TRY(std::string text, read_file(files.folder / "config.json"));
  BATON_TRY(const std::string quantization, quantization_text(files.folder, options));
  text += quantization;
  if (options.load_format == "dummy") return sha256_of_text(text + fmt::format("\nrandom weights, seed {}", options.seed));
  for (const std::filesystem::path& path : weight_files(files.folder)) {
    BATON_TRY(const std::uint64_t sum, checksum_of_file(path));
    text += fmt::format("\n{} {:016x}", path.filename().string(), sum);
  }
  return sha256_of_text(text);
}

}  // namespace baton
