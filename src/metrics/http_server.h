// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "util/file.h"
#include "util/status.h"

struct pollfd;

namespace vramscope::cli {

// The answer to a request whose header is whole, or "" if more of it is to come. `metrics`: what
// GET /metrics returns. A seam for tests.
std::string AnswerTo(std::string_view request, std::string_view metrics);

// Serves one text at GET /metrics. HTTP/1.1, one request a connection. It runs on the thread that
// polls its descriptors, and no client makes it wait: a slow one is dropped after ten seconds.
class HttpServer {
 public:
  // `address`: PORT, HOST:PORT or [HOST]:PORT, with a numeric HOST; without one, 127.0.0.1.
  static util::Result<HttpServer> Listen(const std::string& address);

  // "127.0.0.1:19400", with the port that was chosen for port 0.
  const std::string& address() const { return address_; }
  // Whether only programs of this machine can connect.
  bool IsLoopback() const { return is_loopback_; }

  // Adds what to poll; the same order is expected by Serve().
  void AddPolls(std::vector<pollfd>* polls) const;
  void Serve(const pollfd* polls, std::string_view metrics);
  // Milliseconds until a client has to be dropped; -1: there is none.
  int TimeoutMs() const;

 private:
  struct Client {
    util::UniqueFd socket;
    int64_t deadline_ns = 0;
    std::string request;
    std::string answer;  // "": the request is not whole
    size_t sent = 0;
  };

  void Accept();
  // False if the connection is to be closed.
  static bool Advance(Client* client, std::string_view metrics);

  util::UniqueFd socket_;
  std::string address_;
  bool is_loopback_ = false;
  std::list<Client> clients_;
};

}  // namespace vramscope::cli
