// Rates of llama.cpp behind one shared prompt: prefill of the prompt once, then decoding of several numbers of requests.
//
//   llama_cpp_decode FILE.gguf SHARED NEW RUNS THREADS on|off N,N,...      (on, off: flash attention)
//
// llama-batched-bench measures the same (-pps -kvu), but prefills the prompt again for each number of requests, which on
// two cores takes most of its time. Writes one JSON object. Linked with the libraries of a build of llama.cpp
// (llama_cpp_quantised.py).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_cpp_decode: %s\n", what);
  std::exit(1);
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Engine {
 public:
  Engine(const char* file, int n_context, int n_sequences, int threads, bool is_flash) {
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) { level == GGML_LOG_LEVEL_ERROR ? std::fputs(text, stderr) : 0; },
        nullptr);
    llama_backend_init();
    model_ = llama_model_load_from_file(file, llama_model_default_params());
    if (model_ == nullptr) fail("the file does not load");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_context;
    params.n_batch = 2048;
    params.n_ubatch = 512;
    params.n_seq_max = n_sequences;
    params.n_threads = params.n_threads_batch = threads;
    params.flash_attn_type = is_flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.kv_unified = true;  // the prompt is stored once
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) fail("no context");
    batch_ = llama_batch_init(2048, 0, 1);
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
  }

  /// Tokens a second.
  double prefill(int n_tokens) {
    const double begin = seconds_now();
    for (int first = 0; first < n_tokens; first += 2048) {
      batch_.n_tokens = 0;
      for (int i = first; i < n_tokens && i < first + 2048; ++i) add(0, i, i + 1 == n_tokens);
      run();
    }
    return n_tokens / (seconds_now() - begin);
  }

  /// Tokens a second of n_requests after the first n_shared positions of sequence 0, n_new steps each. Forgets them.
  double decode(int n_requests, int n_shared, int n_new) {
    const llama_memory_t memory = llama_get_memory(context_);
    for (int i = 1; i < n_requests; ++i) llama_memory_seq_cp(memory, 0, i, -1, -1);
    const double begin = seconds_now();
    for (int step = 0; step < n_new; ++step) {
      batch_.n_tokens = 0;
      for (int i = 0; i < n_requests; ++i) add(i, n_shared + step, true);
      run();
    }
    const double seconds = seconds_now() - begin;
    llama_memory_seq_rm(memory, 0, n_shared, -1);
    for (int i = 1; i < n_requests; ++i) llama_memory_seq_rm(memory, i, -1, -1);
    return n_requests * n_new / seconds;
  }

 private:
  void add(int sequence, int position, bool has_logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = std::rand() % n_vocab_;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = has_logits;
  }

  void run() {
    if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
    llama_synchronize(context_);
  }

  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  llama_batch batch_{};
  int n_vocab_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) fail("usage: llama_cpp_decode FILE.gguf SHARED NEW RUNS THREADS on|off N,N,...");
  const int n_shared = std::atoi(argv[2]);
  const int n_new = std::atoi(argv[3]);
  const int runs = std::atoi(argv[4]);
  std::vector<int> requests;
  int most = 1;
  std::istringstream list(argv[7]);
  for (std::string word; std::getline(list, word, ',');) {
    requests.push_back(std::atoi(word.c_str()));
    most = requests.back() > most ? requests.back() : most;
  }
  Engine engine(argv[1], n_shared + most * n_new + 64, most, std::atoi(argv[5]), std::strcmp(argv[6], "on") == 0);
  std::printf("{\"prefill\": %.3f, \"decode\": {", engine.prefill(n_shared));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine.decode(requests[i], n_shared, 2);  // the first steps of a number of rows are slower
    std::printf("%s\"%d\": [", i == 0 ? "" : ", ", requests[i]);
    for (int run = 0; run < runs; ++run)
      std::printf("%s%.3f", run == 0 ? "" : ", ", engine.decode(requests[i], n_shared, n_new));
    std::printf("]");
  }
  std::printf("}}\n");
  return 0;
}
