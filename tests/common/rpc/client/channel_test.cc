#include "common/rpc/client/channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "tests/fakes/generic_call.h"
#include "tests/fakes/loopback_socket.h"

namespace dapd {
namespace {

// Accepts one connection and begins HTTP/2 on it `delay` later.
class SlowServer {
 public:
  explicit SlowServer(absl::Duration delay)
      : listener_(ListenOnLoopback(/*backlog=*/1, &port_)) {
    thread_ = std::jthread([this, delay] {
      const int connection = ::accept(listener_, nullptr, nullptr);
      absl::SleepFor(delay);
      const std::string settings("\0\0\0\x04\0\0\0\0\0", 9);  // an empty frame
      ::send(connection, settings.data(), settings.size(), MSG_NOSIGNAL);
      char block[4096];
      while (::recv(connection, block, sizeof(block), 0) > 0) {
      }
      ::close(connection);
    });
  }
  ~SlowServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;  // before the listener, whose initializer sets it
  const int listener_;
  std::jthread thread_;
};

// A handshake may take more than a second on a loaded machine; if a probe
// failed then, a healthy service would be killed.
TEST(ChannelTest, APeerThatTakesLongForItsHandshakeIsWaitedFor) {
  const SlowServer server(absl::Milliseconds(1500));
  const auto channel = OpenPlaintextChannel(server.address());
  grpc_connectivity_state state = channel->GetState(true);
  while (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) {
    ASSERT_TRUE(channel->WaitForStateChange(
        state, absl::ToChronoTime(absl::Now() + absl::Seconds(20))));
    state = channel->GetState(false);
  }
  EXPECT_EQ(state, GRPC_CHANNEL_READY);
}

}  // namespace
}  // namespace dapd
