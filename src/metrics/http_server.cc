// SPDX-License-Identifier: Apache-2.0
#include "metrics/http_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMostClients = 64;
constexpr size_t kLongestRequest = 16 << 10;
constexpr int64_t kPatienceNs = 10'000'000'000;
constexpr int kBacklog = 64;
constexpr std::string_view kLoopback = "127.0.0.1";
constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kPlainType = "text/plain; charset=utf-8";

struct Endpoint {
  std::string host;
  std::string port;
};

util::Result<Endpoint> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  Endpoint to{std::string(kLoopback), address};
  if (colon != std::string::npos)
    to = {address.substr(0, colon), address.substr(colon + 1)};
  if (to.host.starts_with('[') && to.host.ends_with(']'))
    to.host = to.host.substr(1, to.host.size() - 2);
  const std::optional<uint16_t> port = util::WholeNumber<uint16_t>(to.port);
  if (to.host.empty() || !port) {
    return util::Status::Error(fmt::format(
        "--listen {}: is not an address: use PORT or HOST:PORT, as in 127.0.0.1:19400", address));
  }
  return to;
}

util::Status ListenError(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return util::Status::Error(
        fmt::format("--listen {}: another program uses this port: choose another one", address));
  }
  if (error == EADDRNOTAVAIL) {
    return util::Status::Error(
        fmt::format("--listen {}: this machine does not have this address: use one of its own, or "
                    "0.0.0.0 for all",
                    address));
  }
  return util::Status::Error(fmt::format("--listen {}: {}", address, util::ErrnoText(error)));
}

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  const auto* const six = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

std::string NameOfSocket(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(socket, generic, &size) != 0 ||
      getnameinfo(generic, size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "";
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

std::string Answer(std::string_view status,
                   std::string_view type,
                   std::string_view body,
                   bool with_body,
                   std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
      status, type, body.size(), more, with_body ? body : "");
}

}  // namespace

std::string AnswerTo(std::string_view request, std::string_view metrics) {
  if (request.find("\r\n\r\n") == std::string_view::npos &&
      request.find("\n\n") == std::string_view::npos) {
    return request.size() < kLongestRequest
               ? ""
               : Answer("431 Request Header Fields Too Large", kPlainType, "", true);
  }
  const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const size_t space = line.find(' ');
  const size_t end = line.rfind(' ');
  if (space == std::string_view::npos || end == space || !line.substr(end).starts_with(" HTTP/1."))
    return Answer("400 Bad Request", kPlainType, "not a request of HTTP/1.1\n", true);
  const std::string_view method = line.substr(0, space);
  std::string_view path = line.substr(space + 1, end - space - 1);
  path = path.substr(0, path.find('?'));
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head)
    return Answer("405 Method Not Allowed", kPlainType, "", true, "Allow: GET, HEAD\r\n");
  if (path == "/metrics")
    return Answer("200 OK", kMetricsType, metrics, !is_head);
  if (path == "/")
    return Answer("200 OK", kPlainType, "vramscope metrics: see /metrics\n", !is_head);
  return Answer("404 Not Found", kPlainType, "see /metrics\n", !is_head);
}

util::Result<HttpServer> HttpServer::Listen(const std::string& address) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseAddress(address));
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &wanted, &found) != 0) {
    return util::Status::Error(fmt::format(
        "--listen {}: is not an address: HOST must be a number, as in 127.0.0.1", address));
  }
  HttpServer self;
  self.is_loopback_ = IsLoopbackAddress(found->ai_addr);
  self.socket_ =
      util::UniqueFd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const bool listens =
      self.socket_.ok() &&
      setsockopt(self.socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(self.socket_.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      listen(self.socket_.get(), kBacklog) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!listens)
    return ListenError(address, error);
  self.address_ = NameOfSocket(self.socket_.get());
  return self;
}

void HttpServer::AddPolls(std::vector<pollfd>* polls) const {
  // Too many clients wait in the kernel's queue.
  polls->push_back({clients_.size() < kMostClients ? socket_.get() : -1, POLLIN, 0});
  for (const Client& client : clients_) {
    const bool reads = client.answer.empty();
    polls->push_back({client.socket.get(), static_cast<short>(reads ? POLLIN : POLLOUT), 0});
  }
}

void HttpServer::Serve(const pollfd* polls, std::string_view metrics) {
  const pollfd* own = polls + 1;
  const int64_t now_ns = base::MonotonicNs();
  for (auto client = clients_.begin(); client != clients_.end(); ++own) {
    const bool stays =
        (own->revents == 0 || Advance(&*client, metrics)) && now_ns < client->deadline_ns;
    client = stays ? std::next(client) : clients_.erase(client);
  }
  if (polls->revents != 0)
    Accept();
}

int HttpServer::TimeoutMs() const {
  if (clients_.empty())
    return -1;
  int64_t first_ns = INT64_MAX;
  for (const Client& client : clients_)
    first_ns = std::min(first_ns, client.deadline_ns);
  const int64_t left_ns = std::max<int64_t>(first_ns - base::MonotonicNs(), 0);
  return static_cast<int>(left_ns / 1'000'000) + 1;
}

void HttpServer::Accept() {
  util::UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.ok()) {
    // Without descriptors the connection stays in the queue: poll() would return at once.
    if (errno == EMFILE || errno == ENFILE)
      (void)poll(nullptr, 0, 100);
    return;
  }
  clients_.push_back({std::move(socket), base::MonotonicNs() + kPatienceNs, "", "", 0});
}

bool HttpServer::Advance(Client* client, std::string_view metrics) {
  if (client->answer.empty()) {
    char buffer[4096];
    const ssize_t got = recv(client->socket.get(), buffer, sizeof buffer, 0);
    if (got <= 0)
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    client->request.append(buffer, static_cast<size_t>(got));
    client->answer = AnswerTo(client->request, metrics);
    if (client->answer.empty())
      return true;
  }
  const ssize_t sent = send(client->socket.get(), client->answer.data() + client->sent,
                            client->answer.size() - client->sent, MSG_NOSIGNAL);
  if (sent < 0)
    return errno == EAGAIN || errno == EINTR;
  client->sent += static_cast<size_t>(sent);
  if (client->sent < client->answer.size())
    return true;
  shutdown(client->socket.get(), SHUT_WR);
  return false;
}

}  // namespace vramscope::cli
