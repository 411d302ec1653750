#include "common/rpc/rpc_credentials.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/server/authorization.h"
#include "common/rpc/server/server.h"
#include "dapd/v1/rank.grpc.pb.h"
#include "dapd/v1/rollout.grpc.pb.h"
#include "dapd/v1/teacher.grpc.pb.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "tests/fakes/certificate_authority.h"
#include "tests/fakes/generic_call.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

std::string Uri(Role role) {
  return absl::StrCat("URI:spiffe://dapd/", RoleName(role));
}

std::shared_ptr<const RpcCredentials> Credentials(
    const SecuritySection& section) {
  auto security = Security::Load(section, {});
  EXPECT_TRUE(security.ok()) << security.status();
  return std::make_shared<const RpcCredentials>(*std::move(security));
}

class AuthorizedTrainer : public v1::TrainerService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest*,
                         v1::GetStatusResponse*) override {
    saw_authorization = context->client_metadata().count("authorization") > 0;
    return grpc::Status::OK;
  }
  std::atomic<bool> saw_authorization = false;
};

// Starts a server with every service of the contract.
class CredentialsTest : public testing::Test {
 protected:
  void Start(const SecuritySection& section,
             absl::Duration max_connection_age = absl::Hours(1)) {
    auto started =
        RpcServer::Start({.listen = "127.0.0.1:0",
                          .credentials = Credentials(section),
                          .max_connection_age = max_connection_age},
                         {{&trainer_, v1::TrainerService::service_full_name()},
                          {&rollout_, v1::RolloutService::service_full_name()},
                          {&teacher_, v1::TeacherService::service_full_name()},
                          {&rank_, v1::RankService::service_full_name()}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  SecuritySection Identity(const std::string& file,
                           const std::string& names,
                           absl::Duration lifetime = absl::Hours(1)) {
    return WriteIdentity(
        file, authority_.Issue(names, lifetime), authority_.pem());
  }

  std::shared_ptr<grpc::Channel> Dial(const SecuritySection& section,
                                      RoleSet peers = {Role::kTrainer}) {
    return OpenChannel(server_->address(), *Credentials(section), peers)
        .value();
  }

  // Returns whether the handshake fails, so that the call is not looked at.
  static bool IsRefused(const std::shared_ptr<grpc::Channel>& channel) {
    return CallByName(channel, kGetStatus, "", nullptr, absl::Seconds(2))
               .error_code() == grpc::StatusCode::UNAVAILABLE;
  }

  const CertificateAuthority authority_{"authority"};
  AuthorizedTrainer trainer_;
  v1::RolloutService::Service rollout_;  // every method is UNIMPLEMENTED
  v1::TeacherService::Service teacher_;
  v1::RankService::Service rank_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(CredentialsTest, OnlyTheRightCertificatesMeet) {
  Start(Identity("server", Uri(Role::kTrainer)));
  const grpc::Status good =
      CallByName(Dial(Identity("good", Uri(Role::kViewer))), kGetStatus);
  EXPECT_TRUE(good.ok()) << good.error_message();
  EXPECT_TRUE(IsRefused(OpenPlaintextChannel(server_->address())))
      << "plaintext";
  grpc::SslCredentialsOptions anonymous;
  anonymous.pem_root_certs = authority_.pem();
  EXPECT_TRUE(IsRefused(
      OpenChannel(server_->address(), grpc::SslCredentials(anonymous))))
      << "TLS without a certificate";
}

TEST_F(CredentialsTest, AuthoritiesAreCheckedOnBothSides) {
  Start(Identity("server", Uri(Role::kTrainer)));
  const CertificateAuthority other("other");
  const auto stranger = other.Issue(Uri(Role::kViewer));
  EXPECT_TRUE(IsRefused(Dial(
      WriteIdentity("stranger", stranger, other.pem() + authority_.pem()))))
      << "the server does not know the client's authority";
  EXPECT_TRUE(IsRefused(Dial(WriteIdentity("doubter", stranger, other.pem()))))
      << "nor does the client know the server's";
}

TEST_F(CredentialsTest, AnExpiredCertificateIsRefusedOnBothSides) {
  const auto valid = Identity("valid", Uri(Role::kTrainer));
  // The certificate expires after the start has accepted it, as in a run.
  const auto aging = Identity("aging", Uri(Role::kTrainer));
  const std::shared_ptr<Security> security = Security::Load(aging, {}).value();
  Identity("aging", Uri(Role::kTrainer), -absl::Seconds(2));
  const auto expired = std::make_shared<const RpcCredentials>(security);
  Start(valid);
  EXPECT_TRUE(IsRefused(
      OpenChannel(server_->address(), *expired, {Role::kTrainer}).value()));
  EXPECT_TRUE(CallByName(Dial(valid), kGetStatus).ok());
  server_ =
      RpcServer::Start({.listen = "127.0.0.1:0", .credentials = expired},
                       {{&trainer_, v1::TrainerService::service_full_name()}})
          .value();
  EXPECT_TRUE(IsRefused(Dial(valid)));
}

TEST_F(CredentialsTest, AServerOfAnotherRoleIsNotBelieved) {
  Start(Identity("server", Uri(Role::kViewer)));
  const auto client = Identity("client", Uri(Role::kTrainer));
  EXPECT_TRUE(IsRefused(Dial(client, {Role::kTrainer})));
  EXPECT_TRUE(CallByName(Dial(client, {Role::kViewer}), kGetStatus).ok());
}

TEST_F(CredentialsTest, ACertificateWithoutARoleGetsNothing) {
  Start(Identity("server", Uri(Role::kTrainer)));
  for (const char* names : {"DNS:trainer",
                            "URI:spiffe://dapd/root",
                            "URI:spiffe://other/admin",
                            "email:a@b.c"}) {
    const auto channel = Dial(Identity("odd", names));
    for (const MethodRule& rule : AuthorizationTable()) {
      EXPECT_EQ(CallByName(channel, rule.method).error_code(),
                grpc::StatusCode::UNAUTHENTICATED)
          << names << " " << rule.method;
    }
  }
}

// Tests the whole table at a server: a call gives PERMISSION_DENIED exactly
// where the table denies it. A handler's answer to an empty request does not
// matter.
TEST_F(CredentialsTest, EveryRoleMayCallWhatTheTableSaysAndNothingElse) {
  Start(Identity("server", Uri(Role::kTrainer)));
  int allowed = 0;
  for (int i = 0; i < kNumRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const auto channel = Dial(Identity(RoleName(role), Uri(role)));
    for (const MethodRule& rule : AuthorizationTable()) {
      const grpc::Status status = CallByName(
          channel, rule.method, "", nullptr, absl::Milliseconds(500));
      EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
      EXPECT_EQ(status.error_code() != grpc::StatusCode::PERMISSION_DENIED,
                rule.roles.Contains(role))
          << RoleName(role) << " " << rule.method << ": "
          << status.error_message();
      allowed += status.error_code() != grpc::StatusCode::PERMISSION_DENIED;
    }
    EXPECT_EQ(CallByName(channel, "/dapd.v1.TrainerService/Stop").error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(allowed, 30);
}

TEST_F(CredentialsTest, ATokenIsSentOnLoopbackAndHandlersNeverSeeIt) {
  SecuritySection server;
  server.tokens.viewer = TempPath("token");
  WriteSecret(server.tokens.viewer, std::string(40, 'v'));
  Start(server);
  SecuritySection client;
  client.token = server.tokens.viewer;
  const grpc::Status status = CallByName(Dial(client), kGetStatus);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_FALSE(trainer_.saw_authorization);
  EXPECT_EQ(CallByName(Dial({}), kGetStatus).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(
      CallByName(Dial(client), "/dapd.v1.TeacherService/Score").error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(CredentialsTest, ATokenTravelsWithinTls) {
  SecuritySection server = Identity("server", Uri(Role::kTrainer));
  server.tokens.admin = TempPath("token");
  WriteSecret(server.tokens.admin, std::string(40, 'a'));
  Start(server);
  SecuritySection client = Identity("client", Uri(Role::kViewer));
  constexpr char kScore[] = "/dapd.v1.TeacherService/Score";
  EXPECT_EQ(CallByName(Dial(client), kScore).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  client.token = server.tokens.admin;
  EXPECT_EQ(CallByName(Dial(client), kScore).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_FALSE(trainer_.saw_authorization);
}

TEST_F(CredentialsTest, PlaintextOffLoopbackIsNeitherServedNorDialled) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const auto refused = RpcServer::Start({.listen = address}, {});
    EXPECT_EQ(ExitCodeOf(refused.status()), ExitCode::kConfig) << address;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(address));
  }
  EXPECT_EQ(ExitCodeOf(OpenChannel("10.0.0.1:7001",
                                   *RpcCredentials::Loopback(),
                                   {Role::kRollout})
                           .status()),
            ExitCode::kConfig);
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const auto open = RpcServer::Start(
        {.listen = address, .credentials = Credentials({.insecure = true})},
        {{&trainer_, v1::TrainerService::service_full_name()}});
    ASSERT_TRUE(open.ok()) << open.status();
    const auto channel =
        OpenPlaintextChannel(absl::StrCat("127.0.0.1:", (*open)->port()));
    EXPECT_TRUE(CallByName(channel, kGetStatus).ok());
  }
}

// Each channel is the only channel for a moment; the next is made as it goes.
TEST_F(CredentialsTest, ChannelsThatComeAsOthersGoHaveTheirCertificates) {
  Start(Identity("server", Uri(Role::kTrainer)));
  const auto credentials = Credentials(Identity("client", Uri(Role::kViewer)));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        const auto channel =
            OpenChannel(server_->address(), *credentials, {Role::kTrainer})
                .value();
        const grpc::Status status = CallByName(channel, kGetStatus);
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
    });
  }
}

// Every certificate is replaced, in the end by a certificate of another
// authority, while calls run and connections are made all the time.
TEST_F(CredentialsTest, CertificatesAreReplacedUnderLoadWithoutAFailedCall) {
  const CertificateAuthority next("next");
  const std::string both = authority_.pem() + next.pem();
  const auto issue = [&](const CertificateAuthority& from,
                         const std::string& authorities) {
    // Key and certificate are in one file, so they are replaced together.
    for (const auto& [file, role] : {std::pair{"server", Role::kTrainer},
                                     std::pair{"client", Role::kViewer}}) {
      const auto issued = from.Issue(Uri(role));
      WriteSecret(TempPath(absl::StrCat(file, ".pem")),
                  issued.private_key + issued.certificate);
      WriteSecret(TempPath(absl::StrCat(file, ".ca")), authorities);
    }
  };
  const auto section = [](const std::string& file) {
    SecuritySection result;
    result.certificate = TempPath(file + ".pem");
    result.private_key = result.certificate;
    result.ca = TempPath(file + ".ca");
    return result;
  };
  issue(authority_, authority_.pem());
  Start(section("server"), /*max_connection_age=*/absl::Milliseconds(200));
  const auto credentials = Credentials(section("client"));
  std::atomic<int> calls = 0;
  std::atomic<int> failures = 0;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> load;
  for (int i = 0; i < 2; ++i) {
    load.emplace_back([&] {
      while (!stop) {
        const auto channel =
            OpenChannel(server_->address(), *credentials, {Role::kTrainer})
                .value();
        for (int j = 0; j < 20 && !stop; ++j) {
          const grpc::Status status = CallByName(channel, kGetStatus);
          ++calls;
          if (status.ok()) continue;
          ++failures;
          ADD_FAILURE() << status.error_message();
        }
      }
    });
  }
  const auto serve_some = [&] {
    const int before = calls;
    const absl::Time until = absl::Now() + absl::Milliseconds(2500);
    while (calls < before + 50 || absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(10));
    }
  };
  serve_some();
  issue(authority_, both);  // new certificates; the next authority is known
  serve_some();
  issue(next, both);
  serve_some();
  issue(next, next.pem());
  serve_some();
  stop = true;
  load.clear();
  EXPECT_EQ(failures, 0);
  RecordProperty("calls", calls);
  // Certificates of the old authority are no longer accepted.
  EXPECT_TRUE(IsRefused(Dial(Identity("old", Uri(Role::kViewer)))));
}

}  // namespace
}  // namespace dapd
