/// Room for connections, TLS and the shutdown of a server (server/http/server.h).
#include "server/http/server.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "server/http_fixture.h"
#include "support/wait_until.h"

namespace baton {
namespace {

std::string scratch_file(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_http_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

TEST(HttpServer, refuses_connections_between_bind_and_start) {
  auto server = HttpServer::bind({.host = "127.0.0.1", .port = 0}, {});
  ASSERT_TRUE(server);
  EXPECT_GT((*server)->port(), 0);
  EXPECT_EQ((*server)->address(), "http://127.0.0.1:" + std::to_string((*server)->port()));
  EXPECT_FALSE(RawClient((*server)->port()).is_connected());
}

TEST(HttpServer, listens_on_all_interfaces_when_no_host_is_given) {
  HttpFixture fixture({}, {.host = "", .port = 0});
  RawClient client(fixture.server->port());
  EXPECT_EQ(client.get("/echo").status, 200);
}

/// Limits with room for `n` connections.
HttpLimits room_for(std::size_t n) {
  HttpLimits limits;
  limits.max_connections = n;
  return limits;
}

/// A connection whose request the test's server never answers.
std::unique_ptr<RawClient> busy_client(HttpFixture& fixture) {
  auto client = std::make_unique<RawClient>(fixture.server->port());
  client->send_post("/wait", "{}");
  fixture.next_request();
  return client;
}

TEST(HttpServer, tells_clients_beyond_the_limit_that_it_is_full) {
  HttpFixture fixture(room_for(2));
  const auto first = busy_client(fixture), second = busy_client(fixture);
  RawClient third(fixture.server->port());
  const RawResponse answer = third.post("/echo", "{}");
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("2 connections are open, which is this server's limit"), std::string::npos) << answer.body;
  EXPECT_TRUE(third.is_closed_by_server());
  EXPECT_EQ(fixture.server->connection_counts().refused_connections.value(), 1);
  EXPECT_EQ(fixture.server->connection_counts().open.value(), 2);
}

TEST(HttpServer, answers_vital_requests_when_it_is_full) {
  HttpFixture fixture(room_for(1));
  const auto busy = busy_client(fixture);
  // More than the reserve has, and none of them asks for anything.
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<RawClient>(fixture.server->port()));
  for (int i = 0; i < 3; ++i) {
    const RawResponse answer = RawClient(fixture.server->port()).get("/vital");
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.has("Connection: close"));
  }
}

TEST(HttpServer, closes_the_connection_that_is_idle_longest_for_a_new_one) {
  HttpFixture fixture(room_for(3));
  const auto busy = busy_client(fixture);
  RawClient longest(fixture.server->port()), other(fixture.server->port());
  EXPECT_EQ(longest.get("/echo").status, 200);
  EXPECT_EQ(other.get("/echo").status, 200);
  EXPECT_EQ(RawClient(fixture.server->port()).get("/echo").status, 200);
  EXPECT_TRUE(longest.is_closed_by_server());
  EXPECT_EQ(other.get("/echo").status, 200);
  EXPECT_EQ(fixture.server->connection_counts().reclaimed.value(), 1);
  EXPECT_EQ(fixture.server->connection_counts().refused_connections.value(), 0);
}

TEST(HttpServer, closes_no_connection_whose_request_has_arrived_for_another) {
  HttpFixture fixture(room_for(3));
  const auto busy = busy_client(fixture);
  RawClient holder(fixture.server->port());
  holder.send_post("/hold", "{}");
  fixture.next_request();
  // Both wait to be accepted, one after the other, and there is room for one.
  RawClient early(fixture.server->port());
  early.send("GET /vital HTTP/1.1\r\nHost: test\r\n\r\n");
  RawClient silent(fixture.server->port());
  fixture.let_go();
  EXPECT_EQ(early.read_response().status, 200);
  EXPECT_EQ(fixture.server->connection_counts().reclaimed.value(), 0);
}

TEST(HttpServer, a_client_that_connects_has_a_moment_to_send_its_request) {
  HttpLimits limits = room_for(2);
  limits.fresh_grace_ms = std::chrono::milliseconds(testing::kUntilKilled).count();
  HttpFixture fixture(limits);
  const auto busy = busy_client(fixture);
  RawClient early(fixture.server->port());
  EXPECT_EQ(RawClient(fixture.server->port()).get("/vital").status, 200);
  EXPECT_EQ(early.get("/echo").status, 200);
}

TEST(HttpServer, a_refused_client_may_send_the_rest_of_its_request_while_others_come) {
  HttpFixture fixture(room_for(2));
  const auto busy = busy_client(fixture);
  RawClient refused(fixture.server->port());
  refused.send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n");
  EXPECT_EQ(refused.read_response().status, 401);
  EXPECT_EQ(RawClient(fixture.server->port()).get("/vital").status, 200);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(refused.send("12")) << "the connection was reset";
    EXPECT_EQ(RawClient(fixture.server->port()).get("/vital").status, 200) << "the I/O thread has seen those bytes";
  }
  // All of it is here: the connection has the place that the next client takes.
  testing::wait_until([&] { return RawClient(fixture.server->port()).get("/echo").status == 200; });
  EXPECT_EQ(fixture.server->connection_counts().reclaimed.value(), 1);
}

TEST(HttpServer, stalled_requests_do_not_keep_new_clients_out) {
  HttpFixture fixture(room_for(8));
  std::vector<std::unique_ptr<RawClient>> stalled;
  for (int i = 0; i < 8; ++i) {
    stalled.push_back(std::make_unique<RawClient>(fixture.server->port()));
    stalled.back()->send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  }
  testing::wait_until([&] { return RawClient(fixture.server->port()).get("/echo").status == 200; });
}

TEST(HttpServer, limits_the_connections_of_an_address_when_told_to) {
  HttpLimits limits;
  limits.max_connections_per_address = 2;
  HttpFixture fixture(limits);
  RawClient first(fixture.server->port()), second(fixture.server->port());
  EXPECT_EQ(first.get("/echo").status, 200);
  EXPECT_EQ(second.get("/echo").status, 200);
  RawClient third(fixture.server->port());
  const RawResponse answer = third.get("/echo");
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.body.find("2 connections from your address are open"), std::string::npos) << answer.body;
  EXPECT_EQ(RawClient(fixture.server->port()).get("/vital").status, 200);
  EXPECT_EQ(fixture.server->connection_counts().refused_address.value(), 1);
  second.close();
  testing::wait_until([&] { return RawClient(fixture.server->port()).get("/echo").status == 200; });  // it is no longer counted
}

/// Opens files until this process may open no more, and closes them at its end.
class AllFiles {
 public:
  AllFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{256, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int file = ::dup(0); file >= 0; file = ::dup(0)) files_.push_back(file);
  }
  ~AllFiles() {
    while (!files_.empty()) give_one();
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  void give_one() {
    ::close(files_.back());
    files_.pop_back();
  }

 private:
  rlimit before_{};
  std::vector<int> files_;
};

TEST(HttpServer, answers_vital_requests_when_there_are_no_files_left) {
  HttpFixture fixture(room_for(100));
  const auto busy = busy_client(fixture);
  AllFiles all;
  all.give_one();  // for the client
  {
    RawClient vital(fixture.server->port());
    EXPECT_EQ(vital.get("/vital").status, 200);
  }
  RawClient other(fixture.server->port());
  const RawResponse answer = other.get("/echo");
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("may open no more files"), std::string::npos) << answer.body;
}

TEST(HttpServerDeathTest, does_not_start_with_fewer_files_than_it_needs_and_says_so) {
  const auto bind_with = [](rlim_t n_files) {
    const rlimit few{n_files, n_files};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const auto server = HttpServer::bind({.host = "127.0.0.1", .port = 0}, {});
    if (!server) std::fprintf(stderr, "%s\n", server.error().message.c_str());
    std::_Exit(server ? 0 : 3);
  };
  EXPECT_EXIT(bind_with(64), ::testing::ExitedWithCode(3),
              "this process may open 64 files .ulimit -n., and a server needs at least 137: 136 for itself");
  EXPECT_EXIT(bind_with(136), ::testing::ExitedWithCode(3), "this process may open 136 files");
  EXPECT_EXIT(bind_with(137), ::testing::ExitedWithCode(0), "");
}

TEST(HttpServer, closes_idle_connections_when_there_are_no_files_left) {
  HttpFixture fixture(room_for(100));
  RawClient idle(fixture.server->port());
  EXPECT_EQ(idle.get("/echo").status, 200);
  AllFiles all;
  all.give_one();  // for the client
  RawClient other(fixture.server->port());
  EXPECT_EQ(other.get("/echo").status, 200);
  EXPECT_TRUE(idle.is_closed_by_server());
}

/// All memory that malloc can find within a limit of address space, as a list of blocks. Allocates nothing else.
class AllMemory {
 public:
  void take() {
    std::size_t n_pages = 0;
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    if (std::fscanf(file, "%zu", &n_pages) != 1) std::abort();
    std::fclose(file);
    const rlimit limit{n_pages * 4096, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
    for (std::size_t size = std::size_t{1} << 20; size >= sizeof(Block); size /= 4)
      while (auto* const block = static_cast<Block*>(std::malloc(size))) first_ = new (block) Block{first_};
  }
  void give_back() {
    const rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    while (first_ != nullptr) std::free(std::exchange(first_, first_->next));
  }

 private:
  struct Block {
    Block* next;
  };
  Block* first_ = nullptr;
};

// The functions below allocate nothing.

int connected_to(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  return ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? client : -1;
}

/// The status of an answer on an open connection; 0 if there is none.
int status_on(int client, const char* request) {
  std::array<char, 4096> answer{};
  if (::send(client, request, std::strlen(request), MSG_NOSIGNAL) <= 0) return 0;
  if (::recv(client, answer.data(), answer.size() - 1, 0) < 12) return 0;
  return std::atoi(answer.data() + 9);
}

/// The status of an answer on a connection of its own.
int status_of(std::uint16_t port, const char* request) {
  const int client = connected_to(port);
  const int status = status_on(client, request);
  ::close(client);
  return status;
}

/// Exit codes: 0 if the I/O thread answered what is vital without memory, refused the rest, and recovered.
[[noreturn]] void serve_without_memory() {
  auto server = HttpServer::bind({.host = "127.0.0.1", .port = 0}, {});
  AllMemory all;
  HttpCallbacks callbacks;
  callbacks.look_up = [](const HttpRequest& head) {
    auto ticket = std::make_shared<Ticket>();
    ticket->is_health_check = head.path != "/other";
    return ticket;
  };
  callbacks.on_gone = [](ExchangeId) {};
  callbacks.on_request = [&](ExchangeId id, HttpRequest request, const std::shared_ptr<Ticket>&) {
    if (request.path == "/take") all.take();
    if (request.path == "/give") all.give_back();
    (*server)->deliver({id, HttpOutput::Kind::whole, {200, {}, "ok"}, {}});
  };
  if (!(*server)->start(std::move(callbacks))) std::_Exit(1);
  const std::uint16_t port = (*server)->port();
  const char* const other = "GET /other HTTP/1.1\r\nHost: h\r\n\r\n";
  // This connection stays open: what it holds, and what one before it held, would otherwise be free after /take.
  const int held = connected_to(port);
  if (status_on(held, other) != 200) std::_Exit(2);
  status_on(held, "GET /take HTTP/1.1\r\nHost: h\r\n\r\n");
  for (int i = 0; i < 20; ++i)
    if (status_of(port, "GET /vital HTTP/1.1\r\nHost: h\r\n\r\n") != 200) std::_Exit(3);
  if (status_of(port, other) != 503) std::_Exit(4);
  if (status_of(port, "GET /give HTTP/1.1\r\nHost: h\r\n\r\n") != 200) std::_Exit(5);
  std::_Exit(status_of(port, other) == 200 ? 0 : 6);
}

TEST(HttpServerDeathTest, answers_vital_requests_when_there_is_no_memory_left) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take address space of their own";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(serve_without_memory(), ::testing::ExitedWithCode(0), "");
}

TEST(HttpServer, lets_an_answer_in_hand_finish_when_it_stops) {
  HttpFixture fixture;
  RawClient idle(fixture.server->port());
  EXPECT_EQ(idle.get("/echo").status, 200);
  RawClient client(fixture.server->port());
  client.send_post("/stream", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  fixture.send_piece(id, "first");
  EXPECT_FALSE(client.read_until("first").empty());
  std::thread stopping([&] { fixture.server->stop(10'000); });
  EXPECT_TRUE(idle.is_closed_by_server());
  fixture.send_piece(id, "last");
  fixture.end_stream(id);
  const std::string rest = client.read_to_end();
  EXPECT_NE(rest.find("last"), std::string::npos);
  EXPECT_TRUE(rest.ends_with("0\r\n\r\n"));
  client.close();
  stopping.join();
  EXPECT_FALSE(RawClient(fixture.server->port()).is_connected());
}

TEST(HttpServer, stops_although_an_answer_never_comes) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.server->stop(0);
  EXPECT_EQ(fixture.next_gone(), id);
}

/// Writes a key and a self-signed certificate.
void write_certificate(const std::string& key_file, const std::string& certificate_file) {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* const certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_sign(certificate, key, EVP_sha256());
  std::FILE* file = std::fopen(key_file.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  file = std::fopen(certificate_file.c_str(), "w");
  PEM_write_X509(file, certificate);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

/// A server with TLS, and a client that is connected to it.
struct TlsClient {
  TlsClient() {
    const std::string key = scratch_file("key.pem");
    const std::string certificate = scratch_file("certificate.pem");
    write_certificate(key, certificate);
    const HttpAddress address = {.host = "127.0.0.1", .port = 0, .ssl_keyfile = key, .ssl_certfile = certificate};
    fixture = std::make_unique<HttpFixture>(HttpLimits{}, address);
    client = std::make_unique<RawClient>(fixture->server->port());
    SSL_set_fd(tls, client->socket());
    EXPECT_EQ(SSL_connect(tls), 1);
  }
  ~TlsClient() {
    SSL_free(tls);
    SSL_CTX_free(context);
  }
  bool send(const std::string& bytes) { return SSL_write(tls, bytes.data(), static_cast<int>(bytes.size())) > 0; }
  /// Reads until the data ends so, or to the end of the connection.
  std::string read_until(const std::string& end) {
    std::string read;
    char buffer[1024];
    while (end.empty() || !read.ends_with(end)) {
      const int n = SSL_read(tls, buffer, sizeof(buffer));
      if (n <= 0) break;
      read.append(buffer, static_cast<std::size_t>(n));
    }
    return read;
  }

  std::unique_ptr<HttpFixture> fixture;
  std::unique_ptr<RawClient> client;
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* tls = SSL_new(context);
};

TEST(HttpServer, speaks_tls_with_a_key_and_a_certificate) {
  TlsClient client;
  EXPECT_TRUE(client.fixture->server->address().starts_with("https://"));
  ASSERT_TRUE(client.send("POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"));
  const std::string response = client.read_until("");
  EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK")) << response;
  EXPECT_TRUE(response.ends_with("POST ok")) << response;
}

TEST(HttpServer, a_refused_client_may_send_the_rest_of_its_request_over_tls) {
  ::signal(SIGPIPE, SIG_IGN);
  TlsClient client;
  ASSERT_TRUE(client.send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"));
  EXPECT_TRUE(client.read_until("no").starts_with("HTTP/1.1 401 "));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(client.send("12")) << "the connection was reset";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(client.read_until(""), "");
  EXPECT_EQ(SSL_get_shutdown(client.tls) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN) << "the end is announced";
}

TEST(HttpServer, names_the_file_that_is_no_certificate_or_key) {
  const std::string key = scratch_file("key2.pem");
  const std::string certificate = scratch_file("certificate2.pem");
  write_certificate(key, certificate);
  const HttpAddress address = {.host = "127.0.0.1", .port = 0, .ssl_keyfile = key, .ssl_certfile = "/nowhere.pem"};
  auto server = HttpServer::bind(address, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with("/nowhere.pem is not a PEM certificate: ")) << server.error().message;
  server = HttpServer::bind({.host = "127.0.0.1", .port = 0, .ssl_keyfile = certificate, .ssl_certfile = certificate}, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with(certificate + " is not a PEM key of that certificate: "));
}

}  // namespace
}  // namespace baton
