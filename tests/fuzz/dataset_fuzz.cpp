/// Fuzzes the files of benchmark datasets: any bytes give an error that names the file, or requests that an engine takes.
/// The first byte chooses the dataset.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/dataset/dataset.h"
#include "core/check.h"
#include "support/fuzz_parts.h"

namespace {

using baton::Tokenizer;

/// Every printable ASCII character is a token; answers of MMLU are one token after "Answer: " and a line feed.
const Tokenizer& tokenizer() {
  static const auto made = [] {
    std::string vocabulary = "\"\\n\":0,\"?\":1";
    int id = 2;
    for (char c = ' '; c < 127; ++c)
      if (c != '"' && c != '\\' && c != '?') vocabulary += std::string(",\"") + c + "\":" + std::to_string(id++);
    return Tokenizer::from_json("{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {" + vocabulary +
                                    "}, \"merges\": []}, \"added_tokens\": []}",
                                "{\"chat_template\": \"{% for m in messages %}{{ m.content }}{% endfor %}\"}");
  }();
  return *made;
}

void check_requests(const baton::Workload& workload) {
  double last_s = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const baton::WorkloadRequest& request = workload.requests[i];
    baton::check(!request.prompt.empty() && request.output_len >= 1, "a request without prompt or output");
    for (const baton::TokenId id : request.prompt)
      baton::check(id >= 0 && id < tokenizer().n_vocab(), "an id that is not in the vocabulary");
    baton::check(request.shared_len >= 0 && request.shared_len <= static_cast<std::int32_t>(request.prompt.size()),
                 "more tokens shared than there are");
    baton::check(request.arrival_s >= last_s, "an arrival before the last one");
    last_s = request.arrival_s;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::array<const char*, 4> kNames{"sharegpt", "custom", "mmlu", "mooncake"};
  static const baton::test::FuzzFolder folder;
  if (size == 0) return 0;
  const std::string_view text = baton::test::fuzz_text(data + 1, size - 1);
  baton::DatasetOptions options;
  options.name = kNames[data[0] % kNames.size()];
  options.num_prompts = 20;
  options.num_shots = 1;
  options.mmlu_prompt = "relay-attention";
  const std::filesystem::path root = folder.path();
  std::string_view rest = text;
  if (options.name == "mmlu") {
    std::filesystem::create_directories(root / "dev");
    std::filesystem::create_directories(root / "test");
    std::ofstream(root / "dev/a_dev.csv") << baton::test::take_part(rest);
    std::ofstream(root / "test/a_test.csv") << rest;
    options.path = root.string();
  } else {
    options.path = (root / "file").string();
    std::ofstream(options.path) << text;
  }
  if (options.name == "mooncake") options.num_prompts = 2;
  const auto workload = baton::make_workload(options, {.tokenizer = &tokenizer(), .max_model_len = 1 << 20});
  if (workload) {
    check_requests(*workload);
  } else {
    baton::check(!workload.error().message.empty(), "an error without words");
  }
  return 0;
}
