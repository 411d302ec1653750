#include "common/security/tls_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/no_descriptors.h"

namespace dapd {
namespace {

// This OpenSSL client has the second end of a socket pair.
class TestClient {
 public:
  // `own` is the client's certificate; it may be empty.
  TestClient(int socket, const std::string& ca, const SecuritySection& own)
      : socket_(socket), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_file(context_.get(), ca.c_str());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (!own.certificate.empty()) {
      SSL_CTX_use_certificate_chain_file(context_.get(),
                                         own.certificate.c_str());
      SSL_CTX_use_PrivateKey_file(
          context_.get(), own.private_key.c_str(), SSL_FILETYPE_PEM);
    }
  }
  ~TestClient() {
    ssl_.reset();
    ::close(socket_);
  }

  void SetMaxVersion(int version) {
    // Debian's default allows nothing below TLS 1.2; level 0 allows it.
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), version);
  }

  SSL* ssl() {
    if (ssl_ == nullptr) {
      ssl_.reset(SSL_new(context_.get()));
      SSL_set_fd(ssl_.get(), socket_);
      SSL_set_connect_state(ssl_.get());
    }
    return ssl_.get();
  }

 private:
  const int socket_;
  SslContextPointer context_;
  SslPointer ssl_;
};

class TlsServerTest : public testing::Test {
 protected:
  TlsServerTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_),
              0);
    own_ = WriteIdentity("server",
                         authority_.Issue("URI:spiffe://dapd/trainer"),
                         authority_.pem());
  }
  ~TlsServerTest() override { ::close(sockets_[0]); }

  TlsServer MakeServer() {
    return TlsServer::Create({own_.certificate, own_.private_key, own_.ca})
        .value();
  }

  // Runs both ends until the server has read "hello" or an end has failed.
  // Returns whether "hello" was read.
  static bool Exchange(TlsStream& server, TestClient& client) {
    bool is_sent = false;
    for (int i = 0; i < 1000; ++i) {
      if (!is_sent) {
        const int sent = SSL_write(client.ssl(), "hello", 5);
        is_sent = sent == 5;
        const int error = SSL_get_error(client.ssl(), sent);
        if (!is_sent && error != SSL_ERROR_WANT_READ &&
            error != SSL_ERROR_WANT_WRITE) {
          return false;
        }
      }
      char block[16384];
      const ssize_t count = server.Read(block, sizeof(block));
      if (count == 0) return false;
      if (count > 0) return std::string(block, count) == "hello";
    }
    return false;
  }

  // Returns whether a client that trusts `ca` accepts the server's certificate.
  static bool Serves(TlsServer& server, const std::string& ca) {
    int sockets[2] = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets),
              0);
    const auto stream = server.Accept(sockets[0]);
    TestClient client(sockets[1], ca, {});
    const bool is_served = Exchange(*stream, client);
    ::close(sockets[0]);
    return is_served;
  }

  const CertificateAuthority authority_{"authority"};
  SecuritySection own_;
  int sockets_[2] = {};  // TestClient closes the second
};

TEST_F(TlsServerTest, AClientWithoutACertificateIsServedAndHasNoRole) {
  TlsServer server = MakeServer();
  const auto stream = server.Accept(sockets_[0]);
  TestClient client(sockets_[1], own_.ca, {});
  EXPECT_TRUE(Exchange(*stream, client));
  EXPECT_EQ(stream->PeerRoles(), RoleSet());
  EXPECT_EQ(stream->Write("answer", 6), 6);
  stream->EndWriting();
  char block[16];
  EXPECT_EQ(SSL_read(client.ssl(), block, sizeof(block)), 6);
  EXPECT_LE(SSL_read(client.ssl(), block, sizeof(block)), 0);
  EXPECT_EQ(SSL_get_error(client.ssl(), 0), SSL_ERROR_ZERO_RETURN);
}

TEST_F(TlsServerTest, AClientsCertificateGrantsItsRole) {
  TlsServer server = MakeServer();
  const auto stream = server.Accept(sockets_[0]);
  TestClient client(sockets_[1],
                    own_.ca,
                    WriteIdentity("client",
                                  authority_.Issue("URI:spiffe://dapd/viewer"),
                                  authority_.pem()));
  EXPECT_TRUE(Exchange(*stream, client));
  EXPECT_EQ(stream->PeerRoles(), RoleSet{Role::kViewer});
}

TEST_F(TlsServerTest, ACertificateOfAnotherAuthorityOrAnExpiredOneEndsIt) {
  const CertificateAuthority other("other");
  for (const auto& issued :
       {other.Issue("URI:spiffe://dapd/admin"),
        authority_.Issue("URI:spiffe://dapd/admin", -absl::Hours(1))}) {
    int sockets[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets),
              0);
    TlsServer server = MakeServer();
    const auto stream = server.Accept(sockets[0]);
    TestClient client(
        sockets[1], own_.ca, WriteIdentity("client", issued, authority_.pem()));
    EXPECT_FALSE(Exchange(*stream, client));
    EXPECT_EQ(stream->PeerRoles(), RoleSet());
    ::close(sockets[0]);
  }
}

TEST_F(TlsServerTest, VersionsBefore12AreRefused) {
  for (const auto& [version, is_served] : {std::pair{TLS1_VERSION, false},
                                           std::pair{TLS1_1_VERSION, false},
                                           std::pair{TLS1_2_VERSION, true},
                                           std::pair{TLS1_3_VERSION, true}}) {
    int sockets[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets),
              0);
    TlsServer server = MakeServer();
    const auto stream = server.Accept(sockets[0]);
    TestClient client(sockets[1], own_.ca, {});
    client.SetMaxVersion(version);
    EXPECT_EQ(Exchange(*stream, client), is_served) << version;
    ::close(sockets[0]);
  }
}

TEST_F(TlsServerTest, PlainTextIsNoHandshake) {
  TlsServer server = MakeServer();
  const auto stream = server.Accept(sockets_[0]);
  ASSERT_GT(::send(sockets_[1], "GET / HTTP/1.1\r\n\r\n", 18, 0), 0);
  char block[16];
  EXPECT_EQ(stream->Read(block, sizeof(block)), 0);
  ::close(sockets_[1]);
}

TEST_F(TlsServerTest, AReplacedCertificateIsUsedAndABrokenOneIsNot) {
  TlsServer server = MakeServer();
  const CertificateAuthority next("next");
  const std::string first_ca = TempPath("first");
  ASSERT_TRUE(WriteFileAtomically(first_ca, authority_.pem()).ok());
  EXPECT_TRUE(Serves(server, first_ca));

  WriteIdentity("server", next.Issue("URI:spiffe://dapd/trainer"), next.pem());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!Serves(server, own_.ca) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(Serves(server, own_.ca));
  EXPECT_FALSE(Serves(server, first_ca));

  // The private key belongs to another certificate.
  testing::internal::CaptureStderr();
  WriteSecret(own_.private_key, next.Issue("DNS:a").private_key);
  std::string logged;
  while (logged.empty() && absl::Now() < deadline) {
    EXPECT_TRUE(Serves(server, own_.ca));
    logged = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    absl::SleepFor(absl::Milliseconds(20));
  }
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, testing::HasSubstr("stays in effect"));
}

TEST_F(TlsServerTest, ACertificateThatCannotBeReadForAMomentIsUsedLater) {
  TlsServer server = MakeServer();
  const CertificateAuthority next("next");
  WriteIdentity("server", next.Issue("URI:spiffe://dapd/trainer"), next.pem());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  std::string logged;
  while (logged.empty() && absl::Now() < deadline) {
    testing::internal::CaptureStderr();
    {
      const NoDescriptors none;
      server.Accept(sockets_[0]);
    }
    logged = testing::internal::GetCapturedStderr();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(logged, testing::HasSubstr("stays in effect"));
  bool is_used = false;
  while (!is_used && absl::Now() < deadline) {
    is_used = Serves(server, own_.ca);
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(is_used);
}

}  // namespace
}  // namespace dapd
