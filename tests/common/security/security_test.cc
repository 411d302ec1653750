#include "common/security/security.h"

#include <sys/stat.h>

#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/certificate_authority.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

const char* const kOnLoopback[] = {"127.0.0.1:1",
                                   "127.255.255.254:1",
                                   "localhost:1",
                                   "[::1]:1",
                                   "[::ffff:127.0.0.1]:1"};
const char* const kElsewhere[] = {"0.0.0.0:1",
                                  "[::]:1",
                                  "10.0.0.1:1",
                                  "[fe80::1]:1",
                                  "[::ffff:10.0.0.1]:1",
                                  "rollout:1",
                                  "127.0.0.1.example.org:1",
                                  "localhost.example.org:1",
                                  "0:1",
                                  "128.0.0.1:1"};

class SecurityTest : public testing::Test {
 protected:
  SecuritySection Identity(const std::string& names,
                           absl::Duration lifetime = absl::Hours(1)) {
    return WriteIdentity(
        "own", authority_.Issue(names, lifetime), authority_.pem());
  }
  const CertificateAuthority authority_{"authority"};
};

TEST_F(SecurityTest, WithoutAnythingOnlyLoopbackIsServed) {
  const auto security = Security::Load({}, {}).value();
  for (const char* address : kOnLoopback) {
    EXPECT_EQ(security->ForRpc(address).value(), Protection::kLoopback);
    EXPECT_EQ(security->ForHttp(address).value(), Protection::kLoopback);
  }
  for (const char* address : kElsewhere) {
    for (const auto& refused :
         {security->ForRpc(address), security->ForHttp(address)}) {
      EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kConfig) << address;
      EXPECT_THAT(std::string(refused.status().message()), HasSubstr(address));
      EXPECT_THAT(std::string(refused.status().message()),
                  HasSubstr("security.insecure"));
    }
  }
}

TEST_F(SecurityTest, EachFlagOpensWhatItNames) {
  const auto insecure = Security::Load({.insecure = true}, {}).value();
  const auto metrics = Security::Load({.insecure_metrics = true}, {}).value();
  for (const char* address : kElsewhere) {
    EXPECT_EQ(insecure->ForRpc(address).value(), Protection::kInsecure);
    EXPECT_EQ(insecure->ForHttp(address).value(), Protection::kInsecure);
    EXPECT_FALSE(metrics->ForRpc(address).ok());
    EXPECT_EQ(metrics->ForHttp(address).value(), Protection::kInsecure);
  }
}

TEST_F(SecurityTest, ACertificateMeansTlsAlsoOnLoopback) {
  SecuritySection section = Identity("URI:spiffe://dapd/rollout");
  const auto security = Security::Load(section, {Role::kRollout}).value();
  section.insecure_metrics = true;
  const auto open = Security::Load(section, {Role::kRollout}).value();
  for (const char* address : kElsewhere) {
    EXPECT_EQ(security->ForRpc(address).value(), Protection::kTls);
    EXPECT_EQ(security->ForHttp(address).value(), Protection::kTls);
    EXPECT_EQ(open->ForRpc(address).value(), Protection::kTls);
    EXPECT_EQ(open->ForHttp(address).value(), Protection::kInsecure);
  }
  for (const char* address : kOnLoopback) {
    EXPECT_EQ(security->ForRpc(address).value(), Protection::kTls);
    EXPECT_EQ(security->ForHttp(address).value(), Protection::kLoopback);
  }
}

TEST_F(SecurityTest, ACertificateThatPeersWouldRefuseIsFoundAtStart) {
  const auto message = [](const absl::Status& status) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Security::Load(Identity("URI:spiffe://dapd/viewer"),
                                     {Role::kRollout})
                          .status()),
              HasSubstr("names viewer, this process needs rollout"));
  EXPECT_THAT(
      message(
          Security::Load(Identity("DNS:rollout"), {Role::kRollout}).status()),
      HasSubstr("names no role"));
  EXPECT_THAT(message(Security::Load(Identity("URI:spiffe://dapd/rollout",
                                              -absl::Minutes(1)),
                                     {Role::kRollout})
                          .status()),
              HasSubstr("expired"));
  SecuritySection readable = Identity("URI:spiffe://dapd/rollout");
  ASSERT_EQ(::chmod(readable.private_key.c_str(), 0644), 0);
  EXPECT_THAT(message(Security::Load(readable, {Role::kRollout}).status()),
              HasSubstr("others can read"));
  // One process may have several roles, such as `dapd run` with one
  // certificate.
  EXPECT_TRUE(
      Security::Load(
          Identity("URI:spiffe://dapd/rollout,URI:spiffe://dapd/trainer"),
          {Role::kTrainer})
          .ok());
}

// A server's certificate needs serverAuth, a client's needs clientAuth.
TEST_F(SecurityTest, ACertificateOfTheWrongUsageIsFoundAtStart) {
  const std::string all =
      "URI:spiffe://dapd/rollout,URI:spiffe://dapd/teacher,"
      "URI:spiffe://dapd/trainer";
  const RoleSet none;
  struct Case {
    RoleSet needed;
    std::string usages;
    bool passes;
  };
  for (const Case& c : {Case{{Role::kRollout}, "serverAuth", true},
                        Case{{Role::kRollout}, "clientAuth", false},
                        Case{{Role::kTeacher}, "serverAuth", true},
                        Case{{Role::kTeacher}, "clientAuth", false},
                        Case{{Role::kTrainer}, "serverAuth", false},
                        Case{{Role::kTrainer}, "clientAuth", false},
                        Case{{Role::kTrainer}, "serverAuth,clientAuth", true},
                        Case{none, "serverAuth", false},
                        Case{none, "clientAuth", true}}) {
    const SecuritySection section =
        WriteIdentity("usage",
                      authority_.Issue(all, absl::Hours(1), c.usages),
                      authority_.pem());
    const absl::Status status = Security::Load(section, c.needed).status();
    EXPECT_EQ(status.ok(), c.passes)
        << c.needed.ToString() << " with " << c.usages << ": " << status;
    if (c.passes) continue;
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  }
}

TEST_F(SecurityTest, TheExpiryFollowsTheFile) {
  const SecuritySection section =
      Identity("URI:spiffe://dapd/rollout", absl::Hours(1));
  const auto security = Security::Load(section, {}).value();
  EXPECT_LT(security->CertificateExpiry(), absl::Now() + absl::Hours(2));
  Identity("URI:spiffe://dapd/rollout", absl::Hours(9));
  EXPECT_GT(security->CertificateExpiry(), absl::Now() + absl::Hours(8));
  EXPECT_EQ(Security::Loopback()->CertificateExpiry(), absl::InfiniteFuture());
}

TEST_F(SecurityTest, TokensAreReadFromTheirFiles) {
  const std::string path = TempPath("token");
  WriteSecret(path, std::string(40, 't'));
  SecuritySection section;
  section.tokens.trainer = path;
  section.token = path;
  const auto security = Security::Load(section, {}).value();
  EXPECT_TRUE(security->accepts_tokens());
  EXPECT_EQ(security->OwnToken(), std::string(40, 't'));
  EXPECT_EQ(security->RolesOfToken(security->OwnToken()),
            RoleSet{Role::kTrainer});
  EXPECT_FALSE(Security::Loopback()->accepts_tokens());
  EXPECT_EQ(Security::Loopback()->OwnToken(), "");
  EXPECT_TRUE(security->AdmitsItself().ok());
  section.token.clear();
  EXPECT_EQ(ExitCodeOf(Security::Load(section, {}).value()->AdmitsItself()),
            ExitCode::kConfig);
  section.tokens = {.viewer = path};
  section.token = path;
  EXPECT_FALSE(Security::Load(section, {}).value()->AdmitsItself().ok());
  EXPECT_TRUE(Security::Loopback()->AdmitsItself().ok());
  section.tokens.admin = path + ".gone";
  EXPECT_EQ(ExitCodeOf(Security::Load(section, {}).status()),
            ExitCode::kConfig);
}

}  // namespace
}  // namespace dapd
