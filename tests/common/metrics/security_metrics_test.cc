#include "common/metrics/security_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/certificate_authority.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Expose(const SecuritySection& section,
                   const std::string& grpc_listen,
                   const std::string& metrics_listen) {
  MetricsRegistry registry("test");
  AddSecurityMetrics(Security::Load(section, {}).value(),
                     grpc_listen,
                     metrics_listen,
                     &registry);
  return registry.Expose();
}

std::string Insecure(const char* listener, int value) {
  return absl::StrCat("dapd_insecure{listener=\"", listener, "\"} ", value);
}

TEST(SecurityMetricsTest, PlaintextForOtherMachinesIsShown) {
  EXPECT_THAT(Expose({}, "127.0.0.1:1", "[::1]:2"),
              AllOf(HasSubstr(Insecure("grpc", 0)),
                    HasSubstr(Insecure("metrics", 0)),
                    Not(HasSubstr("certificate_expiry"))));
  EXPECT_THAT(
      Expose({.insecure = true}, "0.0.0.0:1", "127.0.0.1:2"),
      AllOf(HasSubstr(Insecure("grpc", 1)), HasSubstr(Insecure("metrics", 0))));
  EXPECT_THAT(
      Expose({.insecure_metrics = true}, "127.0.0.1:1", "[::]:2"),
      AllOf(HasSubstr(Insecure("grpc", 0)), HasSubstr(Insecure("metrics", 1))));
  EXPECT_THAT(Expose({.insecure = true}, "0.0.0.0:1", ""),
              Not(HasSubstr("metrics\"}")));
}

TEST(SecurityMetricsTest, TheCertificatesEndIsShownAsItsFileIsNow) {
  const CertificateAuthority authority("authority");
  const auto write = [&](absl::Duration lifetime) {
    return WriteIdentity("own",
                         authority.Issue("URI:spiffe://dapd/rollout", lifetime),
                         authority.pem());
  };
  const auto security = Security::Load(write(absl::Hours(1)), {}).value();
  MetricsRegistry registry("test");
  AddSecurityMetrics(security, "0.0.0.0:1", "0.0.0.0:2", &registry);
  const auto expiry = [&] {
    const std::string text = registry.Expose();
    const std::string name = "\ndapd_certificate_expiry_timestamp_seconds ";
    const size_t at = text.find(name);
    EXPECT_NE(at, std::string::npos) << text;
    return absl::FromUnixSeconds(
        static_cast<int64_t>(std::stod(text.substr(at + name.size()))));
  };
  EXPECT_THAT(registry.Expose(), HasSubstr(Insecure("grpc", 0)));
  const absl::Time first = expiry();
  EXPECT_EQ(first, security->CertificateExpiry());
  write(absl::Hours(5));
  EXPECT_GT(expiry() - first, absl::Hours(3));
}

}  // namespace
}  // namespace dapd
