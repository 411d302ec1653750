#include "common/rpc/pool/address_resolver.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AddressResolverTest, ParsesNamesAndBothKindsOfAddresses) {
  struct Case {
    const char* address;
    const char* host;
    int port;
  };
  for (const Case& c : {Case{"rollout:7001", "rollout", 7001},
                        Case{"127.0.0.1:0", "127.0.0.1", 0},
                        Case{"[::1]:65535", "::1", 65535}}) {
    const auto parsed = ParseHostPort(c.address);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, c.host);
    EXPECT_EQ(parsed->port, c.port);
    EXPECT_EQ(JoinHostPort(parsed->host, parsed->port), c.address);
  }
}

TEST(AddressResolverTest, RefusesWhatIsNoHostAndPort) {
  for (const char* address : {"",
                              "rollout",
                              ":7001",
                              "rollout:",
                              "rollout:x",
                              "rollout:-1",
                              "rollout:65536",
                              "::1:7001"}) {
    const auto parsed = ParseHostPort(address);
    ASSERT_FALSE(parsed.ok()) << address;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(address));
  }
}

TEST(AddressResolverTest, ANumericAddressResolvesToItself) {
  EXPECT_THAT(*ResolveAddress("127.0.0.1:7001"), ElementsAre("127.0.0.1:7001"));
  EXPECT_THAT(*ResolveAddress("[::1]:7001"), ElementsAre("[::1]:7001"));
}

TEST(AddressResolverTest, LocalhostResolves) {
  EXPECT_THAT(*ResolveAddress("localhost:7001"), Contains("127.0.0.1:7001"));
}

TEST(AddressResolverTest, AnUnknownNameIsUnavailableAndNamed) {
  const auto result = ResolveAddress("no-such-host.invalid:7001");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace dapd
