/// The port where rank 0 waits for the others.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ranks/rank_address.h"
#include "ranks/rank_group.h"

namespace baton {
namespace {

tl::unexpected<Error> unavailable(std::string sentence) { return fail(ErrorCode::unavailable, std::move(sentence)); }

}  // namespace

Result<RankListener> RankListener::bind(const std::string& address, std::uint16_t port) {
  const addrinfo hints = hints_of(AI_PASSIVE | AI_NUMERICSERV);
  AddressList found;
  const char* name = address.empty() ? nullptr : address.c_str();
  if (const int code = ::getaddrinfo(name, std::to_string(port).c_str(), &hints, &found.first); code != 0)
    return unavailable(fmt::format("rank 0 cannot listen at '{}': {}", address, ::gai_strerror(code)));
  int why = 0;
  for (const addrinfo* each = found.first; each != nullptr; each = each->ai_next) {
    FileDescriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (socket.number() < 0 || ::bind(socket.number(), each->ai_addr, each->ai_addrlen) != 0 ||
        ::listen(socket.number(), kMaxRanks) != 0 ||
        ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      why = errno;
      continue;
    }
    const std::uint16_t chosen = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                                   : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    return RankListener(std::move(socket), chosen);
  }
  return unavailable(
      fmt::format("rank 0 cannot listen at port {}{}: {}", port, address.empty() ? "" : " of " + address, std::strerror(why)));
}

}  // namespace baton
