#include "common/metrics/http_responder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& request) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
      0);
  EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char block[4096];
  for (ssize_t n = 0; (n = ::recv(socket, block, sizeof(block), 0)) > 0;) {
    answer.append(block, static_cast<size_t>(n));
  }
  ::close(socket);
  return answer;
}

class HttpResponderTest : public testing::Test {
 protected:
  HttpResponderTest()
      : responder_(HttpResponder::Start(
                       "127.0.0.1:0",
                       {{"/page", {"text/plain", [] { return "hello"; }}}})
                       .value()) {}
  const std::unique_ptr<HttpResponder> responder_;
};

TEST_F(HttpResponderTest, GetReturnsThePageAndHeadOnlyItsHeaders) {
  const std::string got =
      Ask(responder_->port(), "GET /page?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(got, HasSubstr("\r\n\r\nhello"));
  const std::string head =
      Ask(responder_->port(), "HEAD /page HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_EQ(head.find("hello"), std::string::npos);
}

TEST_F(HttpResponderTest, OtherMethodsPathsAndProtocolsAreRefused) {
  EXPECT_THAT(Ask(responder_->port(), "POST /page HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask(responder_->port(), "GET /../etc HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(responder_->port(), "nonsense\r\n\r\n"),
              StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpResponderTest, AnEndlessHeaderIsCutOffAndTheNextClientServed) {
  EXPECT_EQ(Ask(responder_->port(),
                "GET /page HTTP/1.1\r\nX: " + std::string(8190, 'a')),
            "");
  EXPECT_THAT(Ask(responder_->port(), "GET /page HTTP/1.1\r\n\r\n"),
              HasSubstr("hello"));
}

TEST_F(HttpResponderTest, AnAddressInUseIsNamed) {
  const std::string address = absl::StrCat("127.0.0.1:", responder_->port());
  const absl::Status status = HttpResponder::Start(address, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

}  // namespace
}  // namespace dapd
