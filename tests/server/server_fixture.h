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
#include "support/held_engine.h"

namespace baton {

inline constexpr std::string_view kShopText = "Sells mugs for five dollars each, and nothing else on Sundays.";

class ServerFixture {
 public:
  explicit ServerFixture(ServerOptions options = {}, EngineOptions engine_options = {}, std::int32_t n_blocks = 256,
                         std::int32_t max_position = 2048, ServedModel model = byte_model())
      : ServerFixture(std::move(options), engine_options, n_blocks, max_position, std::move(model), /*is_held=*/false) {}
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

 protected:
  ServerFixture(ServerOptions options, EngineOptions engine_options, std::int32_t n_blocks, std::int32_t max_position,
                ServedModel model, bool is_held) {
    ModelSpec spec = testing::tiny_spec();
    spec.max_position = max_position;
    spec.n_vocab = model.n_vocab;
    spec.eos_token_ids = {kEndToken};
    engine = is_held ? testing::make_async_engine(engine_options, n_blocks, testing::Pace::late, spec, &device_)
                     : testing::make_tiny_engine(engine_options, n_blocks, spec);
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

  testing::AsyncBackend* device_ = nullptr;  ///< of a server that is held
};

/// A server whose engine computes only what a test lets it, so that what runs stays unfinished for as long as the test wants,
/// however slow the machine is.
class HeldServer : public ServerFixture {
 public:
  explicit HeldServer(ServerOptions options = {}, EngineOptions engine_options = {}, std::int32_t n_blocks = 256,
                      std::int32_t max_position = 2048)
      : ServerFixture(std::move(options), engine_options, n_blocks, max_position, byte_model(), /*is_held=*/true) {
    device_->hold();
  }
  ~HeldServer() { release(); }

  /// From now on the engine computes by itself.
  void release() { device_->release(); }
  /// Lets the engine compute until the condition holds, and not much longer: an operation a millisecond.
  void run_until(const std::function<bool()>& holds) { testing::run_until(*device_, holds); }
  /// Lets it compute until a token was generated.
  void generate() {
    run_until([&] { return engine->metrics().generation_tokens.value() > 0; });
  }
  /// Waits until the server knows of the end of all exchanges, and has cancelled what clients that left had asked for.
  void wait_until_left() const {
    wait_until([&] { return server->n_open() == 0; });
  }
};

}  // namespace baton
