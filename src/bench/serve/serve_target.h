/// The server and the model that a serving benchmark measures: address, names, vocabulary, tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/http/server_address.h"
#include "core/result.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {

struct ServeTargetOptions {
  std::string base_url;  ///< empty: http://host:port
  std::string host = "127.0.0.1";
  std::int32_t port = 8000;
  std::vector<std::string> headers;  ///< KEY=VALUE
  std::string model;                 ///< empty: the first of /v1/models
  std::string served_model_name;     ///< in requests; empty: the model
  std::string tokenizer;             ///< folder, Hugging Face id or file; empty: the model's, if it is on this machine
  std::int32_t vocab_size = 0;       ///< 0: the model's or the tokenizer's
  double ready_timeout_s = 600;      ///< 0: no check; at most 1e9
};

struct ServeTarget {
  ServerAddress address;
  std::vector<std::string> headers;  ///< lines
  std::string model;
  std::string served_name;
  std::string tokenizer_name;  ///< empty: none
  std::optional<Tokenizer> tokenizer;
  std::int32_t n_vocab = 0;        ///< 0: the tokenizer's
  std::int32_t max_model_len = 0;  ///< 0: the server does not say
};

/// Waits until the server answers GET /v1/models, and reads the model's name and length from it; then finds the
/// tokenizer or, without one, the vocabulary's size. The environment variable OPENAI_API_KEY becomes a bearer token.
/// Errors: unavailable (no server within the time), invalid_request (a flag is wrong, or one is needed).
Result<ServeTarget> find_serve_target(const ServeTargetOptions& options);

}  // namespace baton
