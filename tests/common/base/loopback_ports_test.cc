#include "common/base/loopback_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(LoopbackPortsTest, EachPortIsHandedOutOnce) {
  LoopbackPorts ports;
  std::set<int> taken;
  for (int i = 0; i < 100; ++i) taken.insert(ports.Take(0).value());
  EXPECT_EQ(taken.size(), 100u);
}

// Two services may prefer the same port, and neither listens yet.
TEST(LoopbackPortsTest, APreferenceIsHandedOutOnceToo) {
  LoopbackPorts ports;
  const int port = LoopbackPorts().Take(0).value();
  EXPECT_EQ(ports.Take(port).value(), port);
  EXPECT_NE(ports.Take(port).value(), port);
}

// Two runs may start together, before any of their services listens.
TEST(LoopbackPortsTest, WhatAnotherHasHandedOutIsTakenWhileItLives) {
  LoopbackPorts ports;
  int port = 0;
  {
    LoopbackPorts others;
    port = others.Take(0).value();
    EXPECT_NE(ports.Take(port).value(), port);
  }
  EXPECT_EQ(ports.Take(port).value(), port);
}

TEST(LoopbackPortsTest, PortsLieBelowTheKernelsOwn) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  if (!(range >> first)) GTEST_SKIP() << "the kernel does not tell its range";
  if (first < 30000) GTEST_SKIP() << "the kernel's range starts at " << first;
  LoopbackPorts ports;
  for (int i = 0; i < 100; ++i) EXPECT_LT(ports.Take(0).value(), first);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Listens with SO_REUSEADDR, as the services do.
int Listen(int port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const sockaddr_in address = Loopback(port);
  EXPECT_EQ(::bind(listener,
                   reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
            0);
  EXPECT_EQ(::listen(listener, 1), 0);
  return listener;
}

TEST(LoopbackPortsTest, AFreePreferenceIsKeptAndATakenOneIsNot) {
  const int port = LoopbackPorts().Take(0).value();
  EXPECT_EQ(LoopbackPorts().Take(port).value(), port);

  const int listener = Listen(port);
  const absl::Cleanup close_socket = [listener] { ::close(listener); };
  EXPECT_NE(LoopbackPorts().Take(port).value(), port);
}

// If the first worker has one of the last ports, the second worker's preference
// is beyond them.
TEST(LoopbackPortsTest, APreferenceBeyondTheLastPortIsNoPort) {
  const int port = LoopbackPorts().Take(0).value();
  EXPECT_LE(LoopbackPorts().Take((1 << 16) + port).value(), 65535);
}

// A run that is restarted at once keeps its ports, which Prometheus knows.
TEST(LoopbackPortsTest, APortWhoseServerHasJustClosedItsConnectionsIsFree) {
  const int port = LoopbackPorts().Take(0).value();
  const int listener = Listen(port);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  ASSERT_EQ(
      ::connect(
          client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
      0);
  const int accepted = ::accept(listener, nullptr, nullptr);
  // The server closes first, so its side of the connection lingers.
  ::close(accepted);
  char byte = 0;
  EXPECT_EQ(::recv(client, &byte, 1, 0), 0);
  ::close(client);
  ::close(listener);
  EXPECT_EQ(LoopbackPorts().Take(port).value(), port);
}

}  // namespace
}  // namespace dapd
