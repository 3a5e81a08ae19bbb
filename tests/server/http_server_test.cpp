/// Addresses, TLS, Unix sockets and the shutdown of a server (server/http_server.h).
#include "server/http_server.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "server/http_fixture.h"

namespace baton {
namespace {

std::string scratch_file(const std::string& name) {
  const auto folder = std::filesystem::temp_directory_path() / ("baton_http_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

TEST(HttpServer, says_in_a_sentence_that_a_port_is_in_use) {
  HttpFixture fixture;
  const std::uint16_t port = fixture.server->port();
  const auto second = HttpServer::bind({.host = "127.0.0.1", .port = port}, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            "port " + std::to_string(port) + " of 127.0.0.1 is in use by another program; choose another with --port");
}

TEST(HttpServer, says_which_host_is_unknown) {
  const auto server = HttpServer::bind({.host = "no such host", .port = 0}, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with("the host 'no such host' is unknown: ")) << server.error().message;
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

TEST(HttpServer, serves_a_unix_socket_replaces_a_stale_one_and_removes_its_own) {
  const std::string path = scratch_file("uds");
  {
    HttpFixture fixture({}, {.uds = path});
    EXPECT_EQ(fixture.server->address(), "unix:" + path);
    RawClient client(path);
    EXPECT_EQ(client.get("/echo").status, 200);
    const auto second = HttpServer::bind({.uds = path}, {});
    ASSERT_FALSE(second);
    EXPECT_TRUE(second.error().message.starts_with("cannot listen on the socket " + path)) << second.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // A killed server leaves a socket file that nobody listens on.
  const int left_over = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(left_over, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(left_over);
  HttpFixture fixture({}, {.uds = path});
  RawClient client(path);
  EXPECT_EQ(client.get("/echo").status, 200);
}

TEST(HttpServer, does_not_replace_a_file_that_is_no_socket) {
  const std::string path = scratch_file("plain");
  std::fclose(std::fopen(path.c_str(), "w"));
  EXPECT_FALSE(HttpServer::bind({.uds = path}, {}));
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST(HttpServer, tells_who_comes_beyond_the_limit_that_it_is_full) {
  HttpLimits limits;
  limits.max_connections = 2;
  HttpFixture fixture(limits);
  RawClient first(fixture.server->port()), second(fixture.server->port());
  EXPECT_EQ(first.get("/echo").status, 200);
  EXPECT_EQ(second.get("/echo").status, 200);
  RawClient third(fixture.server->port());
  const std::string answer = third.read_to_end();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n")) << answer;
  EXPECT_NE(answer.find("2 connections are open, which is this server's limit"), std::string::npos) << answer;
  EXPECT_EQ(first.get("/echo").status, 200);  // an open connection stays open
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

TEST(HttpServer, speaks_tls_with_a_key_and_a_certificate) {
  const std::string key = scratch_file("key.pem");
  const std::string certificate = scratch_file("certificate.pem");
  write_certificate(key, certificate);
  HttpFixture fixture({}, {.host = "127.0.0.1", .port = 0, .ssl_keyfile = key, .ssl_certfile = certificate});
  EXPECT_TRUE(fixture.server->address().starts_with("https://"));
  RawClient client(fixture.server->port());
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL* const tls = SSL_new(context);
  SSL_set_fd(tls, client.socket());
  ASSERT_EQ(SSL_connect(tls), 1);
  const std::string request = "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
  ASSERT_GT(SSL_write(tls, request.data(), static_cast<int>(request.size())), 0);
  std::string response;
  char buffer[1024];
  for (int n; (n = SSL_read(tls, buffer, sizeof(buffer))) > 0;) response.append(buffer, static_cast<std::size_t>(n));
  EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK")) << response;
  EXPECT_TRUE(response.ends_with("POST ok")) << response;
  SSL_free(tls);
  SSL_CTX_free(context);
}

TEST(HttpServer, names_the_file_that_is_no_certificate_or_key) {
  const std::string key = scratch_file("key2.pem");
  const std::string certificate = scratch_file("certificate2.pem");
  write_certificate(key, certificate);
  const HttpAddress address = {.host = "127.0.0.1", .port = 0, .ssl_keyfile = key, .ssl_certfile = "/nowhere.pem"};
  auto server = HttpServer::bind(address, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with("/nowhere.pem is no PEM certificate: ")) << server.error().message;
  server = HttpServer::bind({.host = "127.0.0.1", .port = 0, .ssl_keyfile = certificate, .ssl_certfile = certificate}, {});
  ASSERT_FALSE(server);
  EXPECT_TRUE(server.error().message.starts_with(certificate + " is no PEM key of that certificate: "));
}

}  // namespace
}  // namespace baton
