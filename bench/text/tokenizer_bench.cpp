/// Text to ids, in bytes of text per second: `text` as a whole and `lines` one by one on one thread, in processor time;
/// `threads` as a whole on all threads, in real time.
///
/// Of every NAME.json in the folder that BATON_BENCH_TOKENIZERS names, on every NAME.txt beside it; where it is not set,
/// of the goldens on the demo's catalogue. bench/peers/tokenizers_package.py sets it and compares.
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "io/file.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

/// A tokenizer that is read when it is first used, because most runs measure one of many.
class LazyTokenizer {
 public:
  explicit LazyTokenizer(fs::path file) : file_(std::move(file)) {}
  /// `n_threads`: of a long text; 0 for all that are available.
  const Tokenizer& get(int n_threads) {
    if (!tokenizer_) {
      auto loaded = Tokenizer::load_file(file_);
      check(loaded.has_value(), loaded ? "" : loaded.error().message);
      tokenizer_ = std::move(*loaded);
    }
    tokenizer_->use_threads(n_threads, Tokenizer::kLongTextBytes);
    return *tokenizer_;
  }

 private:
  fs::path file_;
  std::optional<Tokenizer> tokenizer_;
};

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::size_t n_bytes = 0;
  std::size_t n_ids = 0;
  for (auto _ : state)
    for (const std::string& text : texts) {
      n_bytes += text.size();
      n_ids += tokenizer.encode(text, /*add_special_tokens=*/false).size();
    }
  state.SetBytesProcessed(static_cast<std::int64_t>(n_bytes));
  state.counters["bytes_per_id"] = static_cast<double>(n_bytes) / static_cast<double>(n_ids);
}

struct NamedFile {
  std::string name;
  fs::path path;
};

/// The tokenizers and the texts to measure.
void find_files(std::vector<NamedFile>& tokenizers, std::vector<NamedFile>& texts) {
  const char* const folder = std::getenv("BATON_BENCH_TOKENIZERS");
  const fs::path source = BATON_SOURCE_DIR;
  if (folder == nullptr) {
    for (const auto& entry : fs::directory_iterator(source / "tests/goldens/tokenizers"))
      if (fs::exists(entry.path() / "tokenizer.json"))
        tokenizers.push_back({entry.path().filename().string(), entry.path() / "tokenizer.json"});
    texts.push_back({"catalogue", source / "models/demo/catalogue.txt"});
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".json") tokenizers.push_back({path.stem().string(), path});
    if (path.extension() == ".txt") texts.push_back({path.stem().string(), path});
  }
}

int register_all() {
  std::vector<NamedFile> tokenizers;
  std::vector<NamedFile> texts;
  find_files(tokenizers, texts);
  for (const NamedFile& file : tokenizers) {
    const auto tokenizer = std::make_shared<LazyTokenizer>(file.path);
    for (const NamedFile& text : texts) {
      const std::string whole = read_file(text.path).value();
      const std::string name = "encode/" + file.name + "/" + text.name;
      const auto add = [&](const char* way, std::vector<std::string> pieces, int n_threads) {
        return benchmark::RegisterBenchmark((name + way).c_str(),
                                            [=](benchmark::State& state) { encode(state, tokenizer->get(n_threads), pieces); });
      };
      add("/text", {whole}, 1);
      add("/lines", lines_of(whole), 1);
      add("/threads", {whole}, 0)->UseRealTime();
    }
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace baton
