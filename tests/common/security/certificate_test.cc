#include "common/security/certificate.h"

#include <openssl/rsa.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/certificate_authority.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class CertificateTest : public testing::Test {
 protected:
  std::string Check(const SecuritySection& section,
                    TlsEnd end = TlsEnd::kServer) {
    return std::string(
        CheckIdentity({section.certificate, section.private_key, section.ca},
                      end,
                      absl::Now())
            .message());
  }
  const CertificateAuthority authority_{"authority"};
};

TEST_F(CertificateTest, RolesAndTimesAreRead) {
  const auto issued = authority_.Issue(
      "DNS:rollout,URI:spiffe://dapd/rollout,IP:127.0.0.1", absl::Hours(2));
  const auto read = ParseCertificate(issued.certificate).value();
  EXPECT_EQ(read.roles, RoleSet{Role::kRollout});
  EXPECT_LT(absl::AbsDuration(read.not_after - absl::Now() - absl::Hours(2)),
            absl::Minutes(1));
  EXPECT_LT(read.not_before, absl::Now());
  EXPECT_EQ(ParseCertificate(authority_.pem())->roles, RoleSet());
}

TEST_F(CertificateTest, TheFirstOfAChainIsTheProcesssOwn) {
  const auto issued = authority_.Issue("URI:spiffe://dapd/viewer");
  EXPECT_EQ(ParseCertificate(issued.certificate + authority_.pem())->roles,
            RoleSet{Role::kViewer});
}

TEST_F(CertificateTest, TextWithoutACertificateIsRefused) {
  for (const std::string& text :
       {std::string(),
        std::string("text"),
        std::string("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE"),
        authority_.Issue("DNS:a").private_key}) {
    EXPECT_FALSE(ParseCertificate(text).ok());
  }
}

TEST_F(CertificateTest, AMatchingIdentityPasses) {
  EXPECT_EQ(Check(WriteIdentity("good",
                                authority_.Issue("URI:spiffe://dapd/admin"),
                                authority_.pem())),
            "");
  // Key and certificate in one file can be replaced in one step.
  const auto issued = authority_.Issue("URI:spiffe://dapd/admin");
  auto both = WriteIdentity("both", issued, authority_.pem());
  WriteSecret(both.private_key, issued.private_key + issued.certificate);
  both.certificate = both.private_key;
  EXPECT_EQ(Check(both), "");
}

TEST_F(CertificateTest, EachMismatchIsNamed) {
  auto issued = authority_.Issue("URI:spiffe://dapd/admin");
  EXPECT_THAT(
      Check(WriteIdentity("ca", issued, CertificateAuthority("other").pem())),
      HasSubstr("do not vouch"));
  EXPECT_THAT(Check(WriteIdentity("expired",
                                  authority_.Issue("DNS:a", -absl::Hours(1)),
                                  authority_.pem())),
              HasSubstr("expired"));
  const auto other = authority_.Issue("URI:spiffe://dapd/admin");
  EXPECT_THAT(
      Check(WriteIdentity(
          "key", {issued.certificate, other.private_key}, authority_.pem())),
      HasSubstr("is not the key"));
  EXPECT_THAT(Check(WriteIdentity(
                  "none", {issued.certificate, "text"}, authority_.pem())),
              HasSubstr("no private key"));
  EXPECT_THAT(Check(WriteIdentity("no-ca", issued, "text")),
              HasSubstr("no certificate"));
  auto missing = WriteIdentity("missing", issued, authority_.pem());
  missing.certificate += ".gone";
  EXPECT_THAT(Check(missing), HasSubstr("missing.crt.gone"));
}

TEST_F(CertificateTest, AKeyThatTlsTakesForTooWeakIsFoundOut) {
  const auto identity = [&](unsigned bits) {
    return WriteIdentity("rsa",
                         authority_.Issue("URI:spiffe://dapd/admin",
                                          absl::Hours(1),
                                          "",
                                          KeyPointer(EVP_RSA_gen(bits))),
                         authority_.pem());
  };
  EXPECT_EQ(Check(identity(2048)), "");
  EXPECT_THAT(Check(identity(1024)), HasSubstr("key too weak"));
}

TEST_F(CertificateTest, AKeyByWhichTlsDoesNotSignIsNamed) {
  const auto check = [&](KeyPointer key) {
    return Check(WriteIdentity(
        "kind",
        authority_.Issue(
            "URI:spiffe://dapd/admin", absl::Hours(1), "", std::move(key)),
        authority_.pem()));
  };
  for (const char* curve : {"P-256", "P-384", "P-521"}) {
    EXPECT_EQ(check(KeyPointer(EVP_EC_gen(curve))), "") << curve;
  }
  EXPECT_EQ(check(KeyPointer(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))),
            "");
  for (const std::string curve :
       {"secp256k1", "brainpoolP256r1", "secp224r1", "prime239v1"}) {
    EXPECT_THAT(
        check(KeyPointer(EVP_EC_gen(curve.c_str()))),
        HasSubstr(absl::StrCat("kind.crt is EC ", curve, ", with which")));
  }
}

TEST_F(CertificateTest, EachEndNeedsItsExtendedKeyUsage) {
  const auto identity = [&](const std::string& usages) {
    return WriteIdentity(
        "usage",
        authority_.Issue("URI:spiffe://dapd/admin", absl::Hours(1), usages),
        authority_.pem());
  };
  EXPECT_EQ(Check(identity("serverAuth"), TlsEnd::kServer), "");
  EXPECT_THAT(Check(identity("serverAuth"), TlsEnd::kClient),
              HasSubstr("clientAuth"));
  EXPECT_EQ(Check(identity("clientAuth"), TlsEnd::kClient), "");
  EXPECT_THAT(Check(identity("clientAuth"), TlsEnd::kServer),
              HasSubstr("serverAuth"));
  for (const char* usages : {"", "serverAuth,clientAuth"}) {
    EXPECT_EQ(Check(identity(usages), TlsEnd::kServer), "") << usages;
    EXPECT_EQ(Check(identity(usages), TlsEnd::kClient), "") << usages;
  }
}

}  // namespace
}  // namespace dapd
