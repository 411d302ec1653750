#include "common/rpc/rpc_credentials.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

#include "common/base/status_macros.h"
#include "common/rpc/server/call_authorizer.h"
#include "common/rpc/server/server_credentials.h"

namespace dapd {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 1;

// Runs after the chain was verified against the authorities.
class RoleVerifier final : public tls::ExternalCertificateVerifier {
 public:
  explicit RoleVerifier(RoleSet peers) : peers_(peers) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names()) {
      uris.emplace_back(uri.data(), uri.size());
    }
    const RoleSet roles = RolesOfUris(uris);
    if (!roles.Intersects(peers_)) {
      *status = {grpc::StatusCode::UNAUTHENTICATED,
                 absl::StrCat("the server's certificate names ",
                              roles.ToString(),
                              "; expected ",
                              peers_.ToString())};
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const RoleSet peers_;
};

class TokenPlugin final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenPlugin(std::shared_ptr<const Security> security)
      : security_(std::move(security)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(
      grpc::string_ref,
      grpc::string_ref,
      const grpc::AuthContext&,
      std::multimap<std::string, std::string>* metadata) override {
    metadata->emplace("authorization",
                      absl::StrCat("Bearer ", security_->OwnToken()));
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<const Security> security_;
};

// Follows the files of `identity`. Every server and channel has its own
// provider: gRPC 1.51 may tell a shared provider in the wrong order that its
// last user has left and that a new user has come, and the new user and all
// later users then get no certificates ("Failed to create security
// handshaker").
std::shared_ptr<tls::CertificateProviderInterface> FollowFiles(
    const IdentityPaths& identity) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      identity.private_key, identity.certificate, identity.ca, kRefreshSeconds);
}

void UseAllOf(tls::TlsCredentialsOptions* options) {
  options->watch_root_certs();
  options->watch_identity_key_cert_pairs();
}

}  // namespace

std::shared_ptr<const RpcCredentials> RpcCredentials::Loopback() {
  return std::make_shared<const RpcCredentials>(Security::Loopback());
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>>
RpcCredentials::ForServer(
    const std::string& address,
    std::function<void(const std::string& reason)> on_refused) const {
  ASSIGN_OR_RETURN(const Protection protection, security_->ForRpc(address));
  auto authorizer = std::make_shared<CallAuthorizer>(
      security_, protection, std::move(on_refused));
  if (protection != Protection::kTls) {
    return PlaintextServerCredentials(std::move(authorizer));
  }
  tls::TlsServerCredentialsOptions options(FollowFiles(security_->identity()));
  UseAllOf(&options);
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return TlsServerCredentials(options, std::move(authorizer));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>>
RpcCredentials::ForChannel(const std::string& address, RoleSet peers) const {
  ASSIGN_OR_RETURN(const Protection protection, security_->ForRpc(address));
  const bool has_token = !security_->OwnToken().empty();
  std::shared_ptr<grpc::ChannelCredentials> channel;
  switch (protection) {
    case Protection::kTls: {
      tls::TlsChannelCredentialsOptions options;
      options.set_certificate_provider(FollowFiles(security_->identity()));
      UseAllOf(&options);
      options.set_verify_server_certs(true);
      options.set_certificate_verifier(
          tls::ExternalCertificateVerifier::Create<RoleVerifier>(peers));
      options.set_check_call_host(false);
      channel = tls::TlsCredentials(options);
      break;
    }
    case Protection::kLoopback:
      // gRPC gives tokens only to channels that have credentials; this kind
      // refuses a peer that is not on loopback.
      channel = has_token ? tls::LocalCredentials(LOCAL_TCP)
                          : grpc::InsecureChannelCredentials();
      break;
    case Protection::kInsecure:
      return grpc::InsecureChannelCredentials();
  }
  if (!has_token) return channel;
  return grpc::CompositeChannelCredentials(
      channel,
      tls::MetadataCredentialsFromPlugin(
          std::make_unique<TokenPlugin>(security_),
          protection == Protection::kTls ? GRPC_PRIVACY_AND_INTEGRITY
                                         : GRPC_SECURITY_NONE));
}

}  // namespace dapd
