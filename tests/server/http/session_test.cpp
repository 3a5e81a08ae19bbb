/// Connections over real sockets: order, keep-alive, limits, slow clients and disconnects (server/http/session.h).
#include "server/http/session.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "server/http_fixture.h"
#include "support/wait_until.h"

namespace baton {
namespace {

TEST(HttpSession, answers_several_requests_on_one_connection) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  for (int i = 0; i < 3; ++i) {
    const RawResponse response = client.post("/echo", std::to_string(i));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "POST " + std::to_string(i));
    EXPECT_TRUE(response.has("\r\nDate: "));
    EXPECT_FALSE(response.has("Connection: close"));
  }
}

TEST(HttpSession, answers_pipelined_requests_in_their_order_one_at_a_time) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto [first, request] = fixture.next_request();
  EXPECT_EQ(request.path, "/a");
  EXPECT_EQ(fixture.n_requests(), 0u);
  fixture.answer(first, "one");
  EXPECT_EQ(client.read_response().body, "one");
  const auto [second, next] = fixture.next_request();
  EXPECT_EQ(next.path, "/b");
  fixture.answer(second, "two");
  EXPECT_EQ(client.read_response().body, "two");
  EXPECT_EQ(client.read_response().body, "GET ");
}

TEST(HttpSession, streams_in_chunks_and_keeps_the_connection) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/stream", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  fixture.send_piece(id, "data: 1\n\n");
  EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(client.read_chunk(), "data: 1\n\n");
  fixture.send_piece(id, "data: 2\n\n");
  fixture.end_stream(id);
  EXPECT_EQ(client.read_chunk(), "data: 2\n\n");
  EXPECT_EQ(client.read_chunk(), "");
  EXPECT_EQ(client.get("/echo").status, 200);
}

TEST(HttpSession, streams_to_an_old_client_without_chunks_until_the_connection_ends) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  fixture.send_piece(id, "abc");
  fixture.end_stream(id);
  const RawResponse response = client.read_response();
  EXPECT_TRUE(response.has("Connection: close"));
  EXPECT_EQ(response.body, "abc");
}

TEST(HttpSession, sends_no_body_to_head_but_its_length) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.read_response(/*has_body=*/false).has("Content-Length: 5"));
  EXPECT_EQ(client.get("/echo").body, "GET ");
}

TEST(HttpSession, asks_for_the_body_of_a_client_that_waits) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(client.read_response().body, "POST ab");
}

TEST(HttpSession, refuses_an_over_long_body_before_reading_it_and_lets_the_client_see_why) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  client.send_post("/echo", std::string(1 << 20, 'x'));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 413);
  EXPECT_TRUE(response.has("Connection: close"));
  EXPECT_EQ(response.body, R"({"error":{"message":"the request body has 1048576 bytes; this server accepts 1000",)"
                           R"("type":"BadRequestError","param":null,"code":413}})");
}

TEST(HttpSession, refuses_in_the_form_of_the_tickets_dialect_or_before_there_is_one_of_the_path) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  limits.max_header_count = 10;
  limits.body_timeout_ms = 1;
  HttpFixture fixture(limits);
  const std::string line = "POST /other/x HTTP/1.1\r\n";
  std::string fields = "Host: h\r\n";
  for (int i = 0; i < 10; ++i) fields += "a: b\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {line + "Host: h\r\nContent-Length: 1001\r\n\r\n",  // by the parser, which knows the length before the header ends
       R"([{"error":{"message":"the request body has 1001 bytes; this server accepts 1000","type":"BadRequestError",)"
       R"("param":null,"code":413}}])"},
      {line + fields + "\r\n",
       R"([{"error":{"message":"the request has 11 header fields; this server accepts 10","type":"BadRequestError",)"
       R"("param":null,"code":431}}])"},
      {line + "Host: h\r\nContent-Length: 2\r\n\r\n",  // by the session, which waits for the body
       R"([{"error":{"message":"the request did not arrive in time","type":"BadRequestError","param":null,"code":408}}])"}};
  for (const auto& [request, body] : cases) {
    RawClient client(fixture.server->port());
    client.send(request);
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.body, body);
    EXPECT_TRUE(response.has("other: yes")) << response.head;
  }
}

TEST(HttpSession, looks_up_and_checks_a_request_once) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(client.post("/echo", "ab").status, 200);
    EXPECT_EQ(fixture.n_look_ups, i);
    EXPECT_EQ(fixture.n_checks, i);
  }
}

TEST(HttpSession, refuses_by_the_header_before_the_body_comes) {
  HttpFixture fixture;
  RawClient stalled(fixture.server->port());
  stalled.send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\nabc");
  const RawResponse response = stalled.read_response();
  EXPECT_EQ(response.status, 401);
  EXPECT_TRUE(response.has("Connection: close"));
  RawClient waits(fixture.server->port());
  waits.send("POST /refused HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(waits.read_response().status, 401);
  EXPECT_EQ(fixture.server->budgets().bodies.used(), 0);
}

/// A connection whose request is refused by its header, which announces more.
void send_refused(RawClient& client) {
  client.send("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 401);
}

TEST(HttpSession, the_rest_of_a_refused_request_has_limits_of_bytes_and_of_time) {
  HttpLimits limits;
  limits.max_linger_bytes = 20'000;
  limits.max_linger_ms = 600;
  HttpFixture fixture(limits);
  RawClient many(fixture.server->port());
  send_refused(many);
  EXPECT_TRUE(many.send(std::string(10'000, 'x')));
  testing::wait_until([&] { return !many.send(std::string(10'000, 'x')); });  // the server reads no more than the limit
  RawClient slow(fixture.server->port());
  send_refused(slow);
  int n_sent = 0;
  testing::wait_until([&] { return ++n_sent % 10 == 0 && !slow.send("x"); });  // nor for longer
}

TEST(HttpSession, keeps_the_connection_of_a_refused_request_whose_body_is_here) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  for (int i = 0; i < 2; ++i) {
    const RawResponse refused = client.post("/refused", "{}");
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(refused.body, "no");
  }
  EXPECT_EQ(client.get("/refused").status, 401);
  EXPECT_EQ(client.post("/echo", "ab").body, "POST ab");
}

TEST(HttpSession, bodies_of_all_connections_share_a_budget) {
  HttpLimits limits;
  limits.budgets.body_bytes = 1 << 20;
  HttpFixture fixture(limits);
  const std::string head = "POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 700000\r\n\r\n";
  const auto wait_until_used = [&](std::int64_t least, std::int64_t most) {
    const auto is_met = [&] {
      return fixture.server->budgets().bodies.used() >= least && fixture.server->budgets().bodies.used() <= most;
    };
    testing::wait_until(is_met);
  };
  auto stalled = std::make_unique<RawClient>(fixture.server->port());
  stalled->send(head + std::string(600'000, 'x'));
  wait_until_used(600'000, 1 << 20);
  auto refused = std::make_unique<RawClient>(fixture.server->port());
  refused->send(head + std::string(600'000, 'x'));
  const RawResponse response = refused->read_response();
  wait_until_used(600'000, 700'000);  // a refused body is freed, although its connection lasts a little
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.has("Retry-After: "));
  EXPECT_LE(fixture.server->budgets().bodies.used(), 1 << 20);
  EXPECT_EQ(fixture.server->budgets().bodies.n_refused(), 1);
  RawClient small(fixture.server->port());
  EXPECT_EQ(small.post("/echo", "ab").body, "POST ab");
  stalled.reset();
  wait_until_used(0, 0);
}

TEST(HttpSession, headers_of_all_connections_share_a_budget) {
  HttpLimits limits;
  limits.budgets.header_bytes = 128 << 10;
  HttpFixture fixture(limits);
  const Budget& headers = fixture.server->budgets().headers;
  const auto wait_until = [](const std::function<bool()>& holds) { testing::wait_until(holds); };
  const std::string unfinished = "GET /echo HTTP/1.1\r\nHost: h\r\nX: " + std::string(60'000, 'x');
  RawClient first(fixture.server->port()), second(fixture.server->port());
  first.send(unfinished);
  wait_until([&] { return headers.used() > 60'000; });
  second.send(unfinished);
  const RawResponse refused = second.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("the headers of the requests in hand have "), std::string::npos) << refused.body;
  EXPECT_EQ(headers.n_refused(), 1);
  RawClient small(fixture.server->port());
  EXPECT_EQ(small.get("/echo").status, 200) << "a quarter is kept for small headers";
  // A request that waits for its answer keeps its header; one that is answered does not.
  first.send("\r\n\r\n");
  EXPECT_EQ(first.read_response().status, 503) << "as fields it takes more";
  RawClient waiting(fixture.server->port());
  waiting.send("GET /wait HTTP/1.1\r\nHost: h\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n");
  {
    const auto [id, request] = fixture.next_request();
    EXPECT_GT(headers.used(), 40'000);
    fixture.answer(id, "done");
    EXPECT_EQ(waiting.read_response().body, "done");
  }
  wait_until([&] { return headers.used() == 0; });
}

TEST(HttpSession, answers_that_are_not_taken_share_a_budget) {
  HttpLimits limits;
  limits.budgets.unsent_bytes = 1 << 20;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.answer(id, std::string(2 << 20, 'x'));
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_EQ(fixture.next_gone(), id);
  EXPECT_EQ(fixture.server->budgets().unsent.n_refused(), 1);
  RawClient other(fixture.server->port());
  EXPECT_EQ(other.post("/echo", "ab").body, "POST ab");
}

TEST(HttpSession, answers_garbage_with_400_and_closes) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 400);
  EXPECT_TRUE(client.is_closed_by_server());
  RawClient chunked(fixture.server->port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
  EXPECT_EQ(chunked.read_response().status, 400);
}

TEST(HttpSession, gives_up_on_a_header_that_comes_too_slowly) {
  HttpLimits limits;
  limits.header_timeout_ms = 1000;
  HttpFixture fixture(limits);
  // Half of a header is there when the connection is accepted.
  RawClient holder(fixture.server->port());
  holder.send_post("/hold", "{}");
  fixture.next_request();
  RawClient client(fixture.server->port());
  client.send("GET /echo HTTP/1.1\r\nHo");
  fixture.let_go();
  EXPECT_EQ(client.read_response().status, 408);
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpSession, gives_up_on_a_connection_whose_first_request_does_not_come) {
  HttpLimits limits;
  limits.header_timeout_ms = 1000;
  HttpFixture fixture(limits);
  RawClient silent(fixture.server->port());
  EXPECT_TRUE(silent.is_closed_by_server()) << "the time between two requests is for clients that had one";
}

TEST(HttpSession, gives_up_on_a_body_that_comes_too_slowly) {
  HttpLimits limits;
  limits.body_timeout_ms = 1000;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(client.read_response().status, 408);
}

TEST(HttpSession, closes_a_connection_that_asks_for_nothing) {
  HttpLimits limits;
  limits.idle_timeout_ms = 300;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  EXPECT_EQ(client.get("/echo").status, 200);
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpSession, notices_that_the_client_left_while_its_answer_is_made) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  client.close();
  EXPECT_EQ(fixture.next_gone(), id);
  fixture.answer(id, "to a client that left");
  RawClient another(fixture.server->port());
  EXPECT_EQ(another.get("/echo").status, 200);
}

TEST(HttpSession, notices_a_reset_after_pipelined_bytes_that_it_does_not_read) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  client.send(std::string(96 << 10, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that the reset comes after the bytes
  const linger at_once{1, 0};
  ::setsockopt(client.socket(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  client.close();
  EXPECT_EQ(fixture.next_gone(), id);
}

TEST(HttpSession, answers_a_client_that_has_shut_down_its_side) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  ::shutdown(client.socket(), SHUT_WR);
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  fixture.answer(id, "the answer");
  EXPECT_EQ(client.read_response().body, "the answer");
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST(HttpSession, continues_the_stream_of_a_client_that_has_shut_down_its_side) {
  HttpFixture fixture;
  for (const bool has_piece : {true, false}) {
    RawClient client(fixture.server->port());
    client.send_post("/stream", "{}");
    const auto [id, request] = fixture.next_request();
    fixture.begin_stream(id);
    EXPECT_FALSE(client.read_until("\r\n\r\n").empty());
    ::shutdown(client.socket(), SHUT_WR);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that the pieces come after the end
    if (has_piece) fixture.send_piece(id, "the answer");
    fixture.end_stream(id);
    EXPECT_EQ(client.read_chunk(), has_piece ? "the answer" : "");
    if (has_piece) {
      EXPECT_EQ(client.read_chunk(), "");
    }
    EXPECT_TRUE(client.is_closed_by_server());
  }
}

TEST(HttpSession, answers_all_pipelined_requests_of_a_client_that_has_shut_down_its_side) {
  HttpFixture fixture;
  for (const std::string version : {"1.0", "1.1"}) {
    RawClient client(fixture.server->port());
    const std::string head = " HTTP/" + version + "\r\nHost: h\r\nConnection: keep-alive\r\n\r\n";
    client.send("GET /echo" + head + "GET /wait" + head);
    ::shutdown(client.socket(), SHUT_WR);
    EXPECT_EQ(client.read_response().body, "GET ");
    const auto [id, request] = fixture.next_request();
    fixture.begin_stream(id);
    fixture.send_piece(id, "last");
    fixture.end_stream(id);
    const std::string rest = client.read_to_end();
    EXPECT_NE(rest.find("last"), std::string::npos) << rest;
  }
}

TEST(HttpSession, notices_that_the_client_left_in_the_middle_of_a_stream) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send_post("/stream", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  fixture.send_piece(id, "abc");
  client.read_until("abc");
  client.close();
  EXPECT_EQ(fixture.next_gone(), id);
}

TEST(HttpSession, cuts_off_a_client_that_does_not_read_its_stream) {
  HttpLimits limits;
  limits.max_unsent_bytes = 1 << 20;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  client.send_post("/stream", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  for (int i = 0; i < 64; ++i) fixture.send_piece(id, std::string(1 << 19, 'x'));
  EXPECT_EQ(fixture.next_gone(), id);
}

TEST(HttpSession, gives_up_on_a_client_that_takes_no_byte_for_too_long) {
  HttpLimits limits;
  limits.write_timeout_ms = 300;
  limits.max_unsent_bytes = 128 << 20;
  HttpFixture fixture(limits);
  RawClient client(fixture.server->port());
  client.send_post("/wait", "{}");
  const auto [id, request] = fixture.next_request();
  fixture.begin_stream(id);
  fixture.send_piece(id, std::string(64 << 20, 'x'));
  EXPECT_EQ(fixture.next_gone(), id);
}

TEST(HttpSession, ignores_empty_lines_between_requests) {
  HttpFixture fixture;
  RawClient client(fixture.server->port());
  client.send("\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.read_response().status, 200);
}

}  // namespace
}  // namespace baton
