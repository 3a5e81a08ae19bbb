#include "support/drawn_golden.h"

#include <stdlib.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/split_mix.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

/// zlib's checksum.
std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t low = 1;
  std::uint32_t high = 0;
  for (const char byte : bytes) {
    low = (low + static_cast<std::uint8_t>(byte)) % 65521;
    high = (high + low) % 65521;
  }
  return high << 16 | low;
}

/// A safetensors file as it is drawn.
struct DrawnFile {
  std::string name;
  std::uint32_t checksum = 0;
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;

  /// `line`: dtype, mean, spread, shape. `n_drawn`: the elements before those of this tensor, counted on.
  void append(const std::string& tensor, std::istringstream& line, std::uint64_t seed, std::uint64_t& n_drawn) {
    std::string dtype;
    std::int64_t mean = 0;
    std::int64_t spread = 0;
    line >> dtype >> mean >> spread;
    std::uint64_t n_elements = 1;
    std::string shape;
    for (std::uint64_t n = 0; line >> n; n_elements *= n) shape += (shape.empty() ? "" : ",") + std::to_string(n);
    const std::size_t begin = data.size();
    for (const std::uint64_t end = n_drawn + n_elements; n_drawn < end; ++n_drawn) {
      const std::uint64_t word = split_mix(seed, n_drawn);
      std::int64_t noise = -131070;
      for (int shift = 0; shift < 64; shift += 16) noise += static_cast<std::int64_t>(word >> shift & 0xffff);
      // The integer and its scaling are exact in a double; only the conversion to float rounds.
      const auto value = static_cast<float>(static_cast<double>(mean * 0x20000 + spread * noise) * 0x1p-27);
      auto bits = std::bit_cast<std::uint32_t>(value);
      if (dtype == "BF16") bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      data.append(reinterpret_cast<const char*>(&bits), dtype == "BF16" ? 2 : 4);
    }
    header += ",\"" + tensor + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }

  void write_into(const fs::path& folder) const {
    const std::string text = header + "}" + std::string((8 - (header.size() + 1) % 8) % 8, ' ');
    const std::uint64_t length = text.size();
    const std::string bytes = std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data;
    if (adler32(bytes) != checksum)
      throw std::runtime_error(folder.string() + ": the bytes drawn for " + name + " are not those of weights.txt");
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
};

void draw(const fs::path& recipe, const fs::path& folder) {
  std::ifstream lines(recipe);
  std::uint64_t seed = 0;
  std::uint64_t n_drawn = 0;
  DrawnFile file;
  const auto write_file = [&] {
    if (!file.name.empty()) file.write_into(folder);
  };
  for (std::string text; std::getline(lines, text);) {
    std::istringstream line(text);
    std::string first;
    line >> first;
    if (first == "seed") {
      line >> seed;
    } else if (first == "file") {
      write_file();
      file = {};
      line >> file.name >> file.checksum;
    } else {
      file.append(first, line, seed, n_drawn);
    }
  }
  write_file();
}

}  // namespace

DrawnGolden::DrawnGolden(const fs::path& golden) : folder_(golden) {
  if (!fs::exists(golden / "weights.txt")) return;
  std::string pattern = (fs::temp_directory_path() / "baton_golden_XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error(pattern + ": cannot be made");
  temporary_ = pattern;
  folder_ = temporary_ / golden.filename();
  fs::create_directory(folder_);
  for (const auto& file : fs::directory_iterator(golden))
    if (file.path().extension() == ".json") fs::copy(file.path(), folder_);
  draw(golden / "weights.txt", folder_);
}

DrawnGolden::~DrawnGolden() {
  if (!temporary_.empty()) fs::remove_all(temporary_);
}

}  // namespace baton::test
