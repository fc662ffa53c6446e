// SPDX-License-Identifier: Apache-2.0
#include "metrics/http_server.h"

#include <gtest/gtest.h>

#include <string>

namespace vramscope::cli {
namespace {

std::string StatusOf(const std::string& request) {
  const std::string answer = AnswerTo(request, "text");
  return answer.substr(0, answer.find("\r\n"));
}

TEST(AnswerTo, ReturnsMetrics) {
  const std::string answer = AnswerTo("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", "text\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(answer.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\ntext\n"));
}

TEST(AnswerTo, WaitsForTheWholeHeader) {
  EXPECT_EQ(AnswerTo("GET /metrics HTTP/1.1\r\nHost: a\r\n", "text"), "");
  EXPECT_EQ(AnswerTo("", "text"), "");
}

TEST(AnswerTo, HeadHasNoBody) {
  const std::string answer = AnswerTo("HEAD /metrics HTTP/1.1\r\n\r\n", "text");
  EXPECT_NE(answer.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
}

TEST(AnswerTo, RejectsOtherRequests) {
  EXPECT_EQ(StatusOf("GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(StatusOf("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(StatusOf("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(StatusOf("GET  \r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(StatusOf(std::string(1 << 20, 'x')), "HTTP/1.1 431 Request Header Fields Too Large");
}

TEST(HttpServer, RejectsAddresses) {
  for (const char* const address : {"", "x", "127.0.0.1:99999", "localhost:1", ":1", "127.0.0.1:"})
    EXPECT_FALSE(HttpServer::Listen(address).ok()) << address;
  const auto foreign = HttpServer::Listen("192.0.2.1:19400");
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.status().message().find("does not have this address"), std::string::npos);
}

TEST(HttpServer, TellsWhenThePortIsTaken) {
  const auto first = HttpServer::Listen("0");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->IsLoopback());
  const auto second = HttpServer::Listen(first->address());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("another program uses this port"), std::string::npos);
}

}  // namespace
}  // namespace vramscope::cli
