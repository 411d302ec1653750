#include "common/metrics/http_responder.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/loopback_socket.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Reads to the end of the connection.
std::string Read(int socket) {
  std::string answer;
  char block[4096];
  for (ssize_t n = 0; (n = ::recv(socket, block, sizeof(block), 0)) > 0;) {
    answer.append(block, static_cast<size_t>(n));
  }
  return answer;
}

std::string Ask(int port, const std::string& request) {
  const int socket = ConnectToLoopback(port);
  EXPECT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  const std::string answer = Read(socket);
  ::close(socket);
  return answer;
}

constexpr char kGet[] = "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n";

class HttpResponderTest : public testing::Test {
 protected:
  HttpResponderTest()
      : responder_(
            HttpResponder::Start(
                {.listen = "127.0.0.1:0"},
                {{"/page", {"text/plain", [] { return "hello"; }}},
                 {"/large",
                  {"text/plain", [] { return std::string(4 << 20, 'x'); }}}})
                .value()) {}
  const std::unique_ptr<HttpResponder> responder_;
};

TEST_F(HttpResponderTest, APageIsServedToItsEnd) {
  EXPECT_THAT(Ask(responder_->port(), kGet), HasSubstr("\r\n\r\nhello"));
  EXPECT_GT(
      Ask(responder_->port(), "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
          .size(),
      size_t{4 << 20});
}

TEST_F(HttpResponderTest, ARefusalReachesAClientThatSendsABody) {
  EXPECT_THAT(Ask(responder_->port(),
                  "POST /page HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Length: 5000\r\n\r\n" +
                      std::string(5000, 'b')),
              StartsWith("HTTP/1.1 405"));
}

TEST_F(HttpResponderTest, AnEndlessHeaderIsCutOffAndTheNextClientServed) {
  EXPECT_EQ(Ask(responder_->port(),
                "GET /page HTTP/1.1\r\nX: " + std::string(8190, 'a')),
            "");
  EXPECT_THAT(Ask(responder_->port(), kGet), HasSubstr("hello"));
}

TEST_F(HttpResponderTest, SilentClientsDoNotKeepOthersWaiting) {
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i)
    silent.push_back(ConnectToLoopback(responder_->port()));
  EXPECT_THAT(Ask(responder_->port(), kGet), HasSubstr("hello"));
  // At most 64 connections are kept: the oldest were closed.
  EXPECT_EQ(Read(silent.front()), "");
  for (const int socket : silent) ::close(socket);
}

TEST_F(HttpResponderTest, AClientThatDoesNotReadDoesNotKeepOthersWaiting) {
  const int socket = ConnectToLoopback(responder_->port());
  const std::string request = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  EXPECT_THAT(Ask(responder_->port(), kGet), HasSubstr("hello"));
  ::close(socket);
}

TEST_F(HttpResponderTest, PlainTextOffLoopbackNeedsAFlag) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const absl::Status refused =
        HttpResponder::Start({.listen = address}, {}).status();
    EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfig) << address;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("security.insecure_metrics"));
    const auto open = HttpResponder::Start(
        {.listen = address,
         .security = Security::Load({.insecure_metrics = true}, {}).value()},
        {{"/page", {"text/plain", [] { return "hello"; }}}});
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_THAT(Ask((*open)->port(), kGet), HasSubstr("hello"));
  }
}

// tests/integration tests clients with certificates and tokens.
TEST_F(HttpResponderTest, WithACertificateOtherMachinesGetTlsAndNoPlainText) {
  const CertificateAuthority authority("authority");
  const auto section = WriteIdentity(
      "own", authority.Issue("URI:spiffe://dapd/rollout"), authority.pem());
  const auto responder =
      HttpResponder::Start({.listen = "0.0.0.0:0",
                            .security = Security::Load(section, {}).value()},
                           {{"/page", {"text/plain", [] { return "hello"; }}}})
          .value();
  const std::string answer = Ask(responder->port(), kGet);
  EXPECT_THAT(answer, testing::Not(HasSubstr("hello")));
  EXPECT_THAT(answer, testing::Not(HasSubstr("HTTP")));
}

TEST_F(HttpResponderTest, AnAddressInUseIsNamed) {
  const std::string address = absl::StrCat("127.0.0.1:", responder_->port());
  const absl::Status status = HttpResponder::Start({address}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

}  // namespace
}  // namespace dapd
