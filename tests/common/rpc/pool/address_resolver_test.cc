#include "common/rpc/pool/address_resolver.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
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

TEST(AddressResolverTest, AnAbandonableLookUpGivesWhatTheResolverGives) {
  const AddressResolver resolver = Abandonable(
      [](const std::string& address)
          -> absl::StatusOr<std::vector<std::string>> {
        if (address == "bad:1") return absl::UnavailableError("no such host");
        return std::vector<std::string>{address + "0"};
      },
      [] { return false; });
  const auto found = resolver("good:1");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, ElementsAre("good:10"));
  EXPECT_EQ(resolver("bad:1").status(), absl::UnavailableError("no such host"));
}

TEST(AddressResolverTest, ALookUpThatHangsIsLeftBehindOnceItIsUnwanted) {
  const auto answers = std::make_shared<std::atomic<bool>>(false);
  const auto asked = std::make_shared<std::atomic<int>>(0);
  const AddressResolver resolver = Abandonable(
      [answers,
       asked](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
        ++*asked;
        while (!*answers) absl::SleepFor(absl::Milliseconds(1));
        return std::vector<std::string>{};
      },
      [asked] { return *asked > 0; });
  EXPECT_EQ(resolver("workers:1").status().code(),
            absl::StatusCode::kCancelled);
  // The next name is not looked up either.
  EXPECT_EQ(resolver("others:1").status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(*asked, 1);
  *answers = true;
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
