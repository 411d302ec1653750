// Tests how much one client can take from a server before it is stopped.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/server/server.h"
#include "common/rpc/transport.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/held_trainer.h"
#include "tests/fakes/loopback_socket.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Returns a message of `bytes` bytes with one unknown field, which parsers
// skip.
std::string MessageOf(size_t bytes) {
  std::string length;
  for (size_t header = 2; header < 8; ++header) {
    length.clear();
    size_t value = bytes - header;
    for (; value >= 128; value >>= 7) {
      length.push_back(static_cast<char>((value & 127) | 128));
    }
    length.push_back(static_cast<char>(value));
    if (length.size() + 1 == header) break;
  }
  std::string message = absl::StrCat("\x7a", length);  // field 15, bytes
  message.resize(bytes, 'x');
  return message;
}

class RawConnection {
 public:
  explicit RawConnection(int port) : socket_(ConnectToLoopback(port)) {}
  ~RawConnection() { ::close(socket_); }

  bool Send(const std::string& bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  // Returns the bytes that the server sends until it closes, and appends "open"
  // if it does not close.
  std::string ReadToEnd(absl::Duration patience) {
    std::string received;
    const absl::Time deadline = absl::Now() + patience;
    while (absl::Now() < deadline) {
      pollfd waiting = {socket_, POLLIN, 0};
      if (::poll(&waiting, 1, 50) <= 0) continue;
      char block[4096];
      const ssize_t count = ::recv(socket_, block, sizeof(block), 0);
      if (count <= 0) return received;
      received.append(block, static_cast<size_t>(count));
    }
    return received + "open";
  }

 private:
  const int socket_;
};

class ServerLimitsTest : public testing::Test {
 protected:
  void Start(RpcServerOptions options) {
    options.listen = "127.0.0.1:0";
    server_ =
        RpcServer::Start(options,
                         {{&service_, v1::TrainerService::service_full_name()}})
            .value();
  }
  ~ServerLimitsTest() override { service_.hold = false; }

  HeldTrainer service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ServerLimitsTest, AMessageOfTheLimitPassesAndOneByteMoreIsRefused) {
  Start({});
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel(
      server_->address(), grpc::InsecureChannelCredentials(), arguments);
  const grpc::Status at_limit =
      CallByName(channel, kGetStatus, MessageOf(kMaxMessageBytes));
  EXPECT_TRUE(at_limit.ok()) << at_limit.error_message();
  EXPECT_EQ(CallByName(channel, kGetStatus, MessageOf(kMaxMessageBytes + 1))
                .error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
  EXPECT_EQ(service_.calls, 2);
}

// The size of the header list counts every name and value and 32 bytes for each
// pair, including gRPC's own headers.
TEST_F(ServerLimitsTest, HeadersPassUpToTheLimitAndNotBeyond) {
  Start({});
  const auto call = [&](int bytes) {
    // gRPC may close the connection of a client that exceeds the limit.
    const auto channel = OpenPlaintextChannel(server_->address());
    // After this call both ends know the frame size of the peer; a list in
    // several frames counts for more.
    EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
    grpc::ClientContext context;
    // The deadline is a header, too, rounded up to tens of seconds. The time
    // left has to lie well between two multiples of ten seconds, or the
    // header's size varies.
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1195)));
    context.AddMetadata("x-filler", std::string(bytes, 'x'));
    v1::GetStatusResponse response;
    return v1::TrainerService::NewStub(channel)
        ->GetStatus(&context, {}, &response)
        .error_code();
  };
  int low = 1;
  int high = 2 * kMaxMetadataBytes;
  ASSERT_EQ(call(low), grpc::StatusCode::OK);
  ASSERT_EQ(call(high), grpc::StatusCode::RESOURCE_EXHAUSTED);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (call(middle) == grpc::StatusCode::OK ? low : high) = middle;
  }
  EXPECT_LE(low, kMaxMetadataBytes);
  EXPECT_GT(low, kMaxMetadataBytes - 1024);
  EXPECT_EQ(call(low), grpc::StatusCode::OK);
  EXPECT_EQ(call(low + 1), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServerLimitsTest, OneConnectionRunsSoManyCallsAtATime) {
  Start({.max_concurrent_streams = 3});
  const auto channel = OpenPlaintextChannel(server_->address());
  service_.hold = true;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back(
        [&] { EXPECT_TRUE(CallByName(channel, kGetStatus).ok()); });
  }
  EXPECT_TRUE(Eventually([&] { return service_.calls >= 3; }));
  EXPECT_EQ(
      CallByName(channel, kGetStatus, "", nullptr, absl::Milliseconds(300))
          .error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(service_.calls, 3);
  service_.hold = false;
  EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
}

TEST_F(ServerLimitsTest, MoreCallsThanThreadsAreRefusedAndTheOthersGoOn) {
  constexpr int kCalls = 30;
  Start({.max_threads = 12});
  service_.hold = true;
  // A connection that is not made in time would be a third outcome.
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < kCalls; ++i) {
    channels.push_back(OpenPlaintextChannel(server_->address()));
    ASSERT_TRUE(channels.back()->WaitForConnected(
        absl::ToChronoTime(absl::Now() + absl::Seconds(60))));
  }
  std::atomic<int> served = 0;
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> callers;
    for (const auto& channel : channels) {
      callers.emplace_back([&, channel] {
        const grpc::Status status = CallByName(channel, kGetStatus);
        served += status.ok();
        if (status.ok()) return;
        ++refused;
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
            << status.error_message();
      });
    }
    EXPECT_TRUE(Eventually([&] { return refused != 0; }));
    service_.hold = false;
  }
  EXPECT_GT(served, 0);
  EXPECT_TRUE(
      CallByName(OpenPlaintextChannel(server_->address()), kGetStatus).ok());
}

TEST_F(ServerLimitsTest, TheDocumentNamesTheLimits) {
  const std::string document =
      ReadFile(std::string(DAPD_SOURCE_DIR) + "/docs/security.md", 1 << 20)
          .value();
  const RpcServerOptions options;
  for (const std::string& row :
       {absl::StrCat("| message | ", kMaxMessageBytes >> 20, " MiB |"),
        absl::StrCat("| headers of a call | ", kMaxMetadataBytes >> 10, " KiB"),
        absl::StrCat("| calls of one connection | ",
                     options.max_concurrent_streams),
        absl::StrCat("| calls of a server (each holds a thread) | ",
                     options.max_threads),
        absl::StrCat("| handshake | ",
                     absl::ToInt64Seconds(options.handshake_timeout),
                     " s |"),
        absl::StrCat("| pings | one in ", kKeepaliveTimeMs / 2000, " s,"),
        absl::StrCat("| answer to the server's own ping | ",
                     kKeepaliveTimeoutMs / 1000.0,
                     " s |"),
        absl::StrCat("| connection without a call | ",
                     absl::ToInt64Minutes(options.max_connection_idle),
                     " min |")}) {
    EXPECT_THAT(document, HasSubstr(row));
  }
}

TEST_F(ServerLimitsTest, AnIdleConnectionIsClosedAndTheNextCallMakesAnother) {
  Start({.max_connection_idle = absl::Milliseconds(200)});
  const auto channel = OpenPlaintextChannel(server_->address());
  EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
  EXPECT_TRUE(Eventually(
      [&] { return channel->GetState(false) != GRPC_CHANNEL_READY; }));
  EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
}

TEST_F(ServerLimitsTest, SilentConnectionsAreClosedAndHinderNobody) {
  const CertificateAuthority authority("authority");
  const auto section = WriteIdentity(
      "own", authority.Issue("URI:spiffe://dapd/trainer"), authority.pem());
  for (const bool with_tls : {false, true}) {
    const auto credentials = with_tls ? std::make_shared<const RpcCredentials>(
                                            Security::Load(section, {}).value())
                                      : RpcCredentials::Loopback();
    Start({.credentials = credentials,
           .handshake_timeout = absl::Milliseconds(500)});
    std::vector<std::unique_ptr<RawConnection>> silent;
    for (int i = 0; i < 300; ++i) {
      silent.push_back(std::make_unique<RawConnection>(server_->port()));
    }
    const auto channel =
        OpenChannel(server_->address(), *credentials, {Role::kTrainer}).value();
    EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
    for (const auto& connection : silent) {
      EXPECT_THAT(connection->ReadToEnd(absl::Seconds(20)),
                  testing::Not(HasSubstr("open")));
    }
    EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
  }
}

std::string Frame(char type, char flags, const std::string& payload) {
  return std::string({'\0',
                      '\0',
                      static_cast<char>(payload.size()),
                      type,
                      flags,
                      '\0',
                      '\0',
                      '\0',
                      '\0'}) +
         payload;
}

TEST_F(ServerLimitsTest, WhoFloodsPingsIsSentAway) {
  Start({});
  RawConnection connection(server_->port());
  ASSERT_TRUE(
      connection.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, "")));
  const std::string ping = Frame(6, 0, std::string(8, 'p'));
  for (int i = 0; i < 100 && connection.Send(ping); ++i) {
  }
  const std::string received = connection.ReadToEnd(absl::Seconds(20));
  EXPECT_THAT(received, HasSubstr("too_many_pings"));
  EXPECT_THAT(received, testing::Not(HasSubstr("open")));
  // The bytes are ENHANCE_YOUR_CALM in a GOAWAY frame.
  EXPECT_THAT(received, HasSubstr(std::string("\0\0\0\x0b", 4)));
  EXPECT_TRUE(
      CallByName(OpenPlaintextChannel(server_->address()), kGetStatus).ok());
}

TEST_F(ServerLimitsTest, WhatIsNoHttp2IsClosed) {
  Start({});
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(100, '\0'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") +
            std::string(9, '\xff')}) {
    RawConnection connection(server_->port());
    connection.Send(bytes);
    EXPECT_THAT(connection.ReadToEnd(absl::Seconds(20)),
                testing::Not(HasSubstr("open")));
  }
  EXPECT_TRUE(
      CallByName(OpenPlaintextChannel(server_->address()), kGetStatus).ok());
}

}  // namespace
}  // namespace dapd
