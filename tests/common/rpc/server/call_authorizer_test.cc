#include "common/rpc/server/call_authorizer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/machine_clock.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGenerate[] = "/dapd.v1.RolloutService/Generate";
constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const std::string kViewerToken(40, 'v');
const std::string kTrainerToken(40, 't');

class CallAuthorizerTest : public testing::Test {
 protected:
  std::unique_ptr<CallAuthorizer> Make(Protection protection,
                                       bool with_tokens) {
    SecuritySection section;
    if (with_tokens) {
      section.tokens.viewer = TempPath("viewer");
      section.tokens.trainer = TempPath("trainer");
      WriteSecret(section.tokens.viewer, kViewerToken);
      WriteSecret(section.tokens.trainer, kTrainerToken);
    }
    return std::make_unique<CallAuthorizer>(
        Security::Load(section, {}).value(),
        protection,
        [this](const std::string& reason) { refused_.push_back(reason); });
  }

  static absl::StatusCode Ask(CallAuthorizer& authorizer,
                              const char* method,
                              const std::string& token = "",
                              const std::string& uri = "") {
    const std::string header = absl::StrCat("Bearer ", token);
    CallFacts facts{.method = method};
    if (!token.empty()) facts.authorization.push_back(header);
    if (!uri.empty()) facts.certificate_uris.push_back(uri);
    return authorizer.Authorize(facts).code();
  }

  std::vector<std::string> refused_;
};

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

TEST_F(CallAuthorizerTest, OnLoopbackWithoutTokensEverythingKnownIsAllowed) {
  const auto authorizer = Make(Protection::kLoopback, false);
  for (const char* method : {kGetStatus, kGenerate, kReflection}) {
    EXPECT_EQ(Ask(*authorizer, method), kOk) << method;
  }
  EXPECT_EQ(Ask(*authorizer, "/dapd.v1.TrainerService/Stop"), kUnimplemented);
  EXPECT_THAT(refused_, ElementsAre("unknown_method"));
}

TEST_F(CallAuthorizerTest, RefusalsAreLoggedAsSeldomWhereTheClockIsSet) {
  const auto authorizer = Make(Protection::kLoopback, false);
  MachineClock clock;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Ask(*authorizer, "/first"), kUnimplemented);
  clock.Set(absl::Hours(1));
  EXPECT_EQ(Ask(*authorizer, "/second"), kUnimplemented);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, HasSubstr("refused a call"));
  EXPECT_EQ(logged.find("refused a call"), logged.rfind("refused a call"));
}

TEST_F(CallAuthorizerTest, WithoutProtectionARunWorksAndReflectionDoesNot) {
  const auto authorizer = Make(Protection::kInsecure, false);
  for (const char* method : {kGetStatus, kGenerate}) {
    EXPECT_EQ(Ask(*authorizer, method), kOk) << method;
  }
  EXPECT_EQ(Ask(*authorizer, kReflection), kDenied);
}

TEST_F(CallAuthorizerTest, TokensOnceConfiguredAreNeededOnLoopbackToo) {
  const auto authorizer = Make(Protection::kLoopback, true);
  EXPECT_EQ(Ask(*authorizer, kGetStatus), kUnauthenticated);
  EXPECT_EQ(Ask(*authorizer, kGetStatus, std::string(40, 'x')),
            kUnauthenticated);
  EXPECT_EQ(Ask(*authorizer, kGetStatus, kViewerToken), kOk);
  EXPECT_EQ(Ask(*authorizer, kGenerate, kViewerToken), kDenied);
  EXPECT_EQ(Ask(*authorizer, kGenerate, kTrainerToken), kOk);
  EXPECT_EQ(Ask(*authorizer, kReflection, kTrainerToken), kDenied);
  EXPECT_EQ(Ask(*authorizer, "/x/Y", kTrainerToken), kUnimplemented);
  // A caller without a role does not learn which methods there are.
  EXPECT_EQ(Ask(*authorizer, "/x/Y"), kUnauthenticated);
  EXPECT_THAT(refused_,
              ElementsAre("unauthenticated",
                          "unauthenticated",
                          "forbidden",
                          "forbidden",
                          "unknown_method",
                          "unauthenticated"));
  // Without a handshake that verified it, a certificate's names mean nothing.
  EXPECT_EQ(Ask(*authorizer, kGetStatus, "", "spiffe://dapd/admin"),
            kUnauthenticated);
}

TEST_F(CallAuthorizerTest, ACertificateGrantsItsRole) {
  const auto authorizer = Make(Protection::kTls, false);
  EXPECT_EQ(Ask(*authorizer, kGenerate, "", "spiffe://dapd/trainer"), kOk);
  EXPECT_EQ(Ask(*authorizer, kGenerate, "", "spiffe://dapd/viewer"), kDenied);
  EXPECT_EQ(Ask(*authorizer, kGenerate, "", "spiffe://dapd/rollout"), kDenied);
  EXPECT_EQ(Ask(*authorizer, kGenerate, "", "spiffe://other/trainer"),
            kUnauthenticated);
  EXPECT_EQ(Ask(*authorizer, kGenerate), kUnauthenticated);
  EXPECT_EQ(Ask(*authorizer, kReflection, "", "spiffe://dapd/admin"), kOk);
}

TEST_F(CallAuthorizerTest,
       ATokenAddsToACertificateAndAWrongOneIsNoHarmlessOne) {
  const auto authorizer = Make(Protection::kTls, true);
  const std::string viewer = "spiffe://dapd/viewer";
  EXPECT_EQ(Ask(*authorizer, kGenerate, kTrainerToken, viewer), kOk);
  EXPECT_EQ(Ask(*authorizer, kGetStatus, "", viewer), kOk);
  EXPECT_EQ(Ask(*authorizer, kGetStatus, std::string(40, 'x'), viewer),
            kUnauthenticated);
  EXPECT_EQ(Ask(*authorizer, kGetStatus, kViewerToken), kOk);
}

TEST_F(CallAuthorizerTest, OnlyOneWellFormedAuthorizationIsTaken) {
  const auto authorizer = Make(Protection::kLoopback, true);
  const std::string good = absl::StrCat("Bearer ", kViewerToken);
  EXPECT_TRUE(authorizer->Authorize({kGetStatus, {good}}).ok());
  for (const std::vector<absl::string_view>& headers :
       std::vector<std::vector<absl::string_view>>{
           {good, good}, {kViewerToken}, {""}, {"Bearer "}, {"Basic abc"}}) {
    EXPECT_EQ(authorizer->Authorize({kGetStatus, headers}).code(),
              kUnauthenticated);
  }
}

TEST_F(CallAuthorizerTest, NeitherAnswerNorLogRepeatsWhatTheCallerSent) {
  const auto authorizer = Make(Protection::kLoopback, true);
  const std::string canary = "canary-0123456789abcdef0123456789abcdef";
  testing::internal::CaptureStderr();
  const std::string header = absl::StrCat("Bearer ", canary);
  std::string said(authorizer->Authorize({kGetStatus, {header}}).message());
  absl::StrAppend(
      &said, std::string(authorizer->Authorize({canary, {header}}).message()));
  absl::StrAppend(&said, testing::internal::GetCapturedStderr());
  EXPECT_THAT(said, HasSubstr("refused a call"));
  EXPECT_THAT(said, Not(HasSubstr("canary")));
}

TEST_F(CallAuthorizerTest, RefusalsDoNotFloodTheLog) {
  const auto authorizer = Make(Protection::kLoopback, true);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) Ask(*authorizer, kGetStatus);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::count(logged.begin(), logged.end(), '\n'), 20) << logged;
  EXPECT_EQ(refused_.size(), 1000u);
}

}  // namespace
}  // namespace dapd
