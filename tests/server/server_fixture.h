/// A whole server on a free loopback port: a small random model on the CPU, tokens that are bytes, the prefix "shop".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "server/byte_model.h"
#include "server/raw_client.h"
#include "server/server.h"
#include "support/tiny_engine.h"
#include "support/wait_until.h"

namespace baton {

inline constexpr std::string_view kShopText = "Sells mugs for five dollars each, and nothing else on Sundays.";

class ServerFixture {
 public:
  explicit ServerFixture(ServerOptions options = {}, EngineOptions engine_options = {}, std::int32_t n_blocks = 256,
                         std::int32_t max_position = 2048, ServedModel model = byte_model()) {
    ModelSpec spec = testing::tiny_spec();
    spec.max_position = max_position;
    spec.n_vocab = model.n_vocab;
    spec.eos_token_ids = {kEndToken};
    engine = testing::make_tiny_engine(engine_options, n_blocks, spec);
    engine->start();
    options.address.host = "127.0.0.1";
    options.address.port = 0;
    options.routes.version = "0.0-test";
    auto bound = Server::bind(std::move(options));
    EXPECT_TRUE(bound) << (bound ? "" : bound.error().message);
    server = std::move(*bound);
    std::vector<PrefixDefinition> prefixes;
    prefixes.push_back({"shop", parsed(R"([{"role": "system", "content": ")" + std::string(kShopText) + "\"}]")});
    const auto started = server->start(std::move(model), *engine, std::move(prefixes));
    EXPECT_TRUE(started) << (started ? "" : started.error().message);
  }
  ~ServerFixture() {
    server.reset();
    engine->stop();
  }

  RawClient client() const { return RawClient(server->port()); }
  RawResponse get(std::string_view path) const { return RawClient(server->port()).get(path); }
  RawResponse remove(std::string_view path) const { return RawClient(server->port()).remove(path); }
  RawResponse post(std::string_view path, std::string_view body, std::string_view headers = "") const {
    return RawClient(server->port()).post(path, body, headers);
  }

  /// Waits for an effect of other threads.
  static void wait_until(const std::function<bool()>& holds) { testing::wait_until(holds); }

  std::unique_ptr<Engine> engine;
  std::unique_ptr<Server> server;
};

}  // namespace baton
