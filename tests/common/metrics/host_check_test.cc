#include "common/metrics/host_check.h"

#include <unistd.h>

#include <cstring>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(HostCheckTest, AddressesAndNamesThatNobodyElseCanHaveAreTrusted) {
  for (const char* host : {"127.0.0.1",
                           "127.0.0.1:9103",
                           "10.1.2.3:80",
                           "[::1]:9103",
                           "[fe80::1]",
                           "localhost:9103",
                           "LOCALHOST",
                           "demo.localhost",
                           "trainer:9103",
                           "dapd-trainer-0.dapd-trainer.dapd.svc:9103",
                           "dapd-trainer.dapd.svc.cluster.local."}) {
    EXPECT_TRUE(IsTrustedHost(host, {})) << host;
  }
}

TEST(HostCheckTest, OtherNamesAreNot) {
  for (const char* host : {"evil.com",
                           "evil.com:9103",
                           "127.0.0.1.evil.com",
                           "localhost.evil.com",
                           "notlocalhost.com",
                           "evilsvc.com",
                           "svc.evil",
                           "1.2.3",
                           "[::1",
                           "::1",
                           "[::1]evil.com",
                           "localhost:80:evil.com",
                           "localhost:evil",
                           "",
                           ":80"}) {
    EXPECT_FALSE(IsTrustedHost(host, {})) << host;
  }
  EXPECT_FALSE(IsTrustedHost(std::string(254, 'a'), {}));
  // A zero byte does not end the name.
  EXPECT_FALSE(IsTrustedHost(std::string("127.0.0.1\0.evil.com", 19), {}));
}

TEST(HostCheckTest, TheMachinesOwnNameAndListedNamesAreTrusted) {
  char own[256] = {};
  ASSERT_EQ(::gethostname(own, sizeof(own) - 1), 0);
  EXPECT_TRUE(IsTrustedHost(own, {}));
  EXPECT_TRUE(IsTrustedHost("DAPD.example.com:443", {"dapd.Example.com"}));
  EXPECT_FALSE(IsTrustedHost("www.dapd.example.com", {"dapd.example.com"}));
}

}  // namespace
}  // namespace dapd
