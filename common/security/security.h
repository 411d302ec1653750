// Security: what the section `security` of the configuration means, read and
// checked once: certificates, tokens, and how an address may be served.
//
// Rules:
//   * A certificate means mutual TLS for every gRPC connection, loopback too.
//   * Without one, only loopback is served or dialled, unless security.insecure
//     accepts plaintext.
//   * A peer's roles are those of its certificate and of its token. Without a
//     certificate and without security.tokens, every peer on loopback is admin,
//     and on another address (security.insecure) trainer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/config/config.h"
#include "common/security/certificate.h"
#include "common/security/role.h"
#include "common/security/token.h"

namespace dapd {

enum class Protection {
  kLoopback,  // plaintext that does not leave the machine
  kTls,       // mutual TLS
  kInsecure,  // plaintext for everybody, as an explicit flag asks
};

// Thread-safe.
class Security {
 public:
  // `needed`: roles that the certificate must name if there is one, and which
  // say what it has to be good for: to listen, to connect to others, or both.
  // Peers would refuse this process otherwise. None: it only connects. Every
  // error has the exit code kConfig.
  static absl::StatusOr<std::shared_ptr<Security>> Load(
      const SecuritySection& section, RoleSet needed);

  // For tests and programs without a configuration: loopback only.
  static std::shared_ptr<Security> Loopback();

  bool has_certificate() const { return !identity_.certificate.empty(); }
  const IdentityPaths& identity() const { return identity_; }
  // Of the certificate's file as it is now; none: the infinite future.
  absl::Time CertificateExpiry() const;

  // How `address` ("host:port") may be served or dialled by gRPC, and served by
  // HTTP. Where it may not be, an error with exit code kConfig that says what
  // to do.
  absl::StatusOr<Protection> ForRpc(const std::string& address) const;
  absl::StatusOr<Protection> ForHttp(const std::string& address) const;

  bool accepts_tokens() const { return !tokens_->empty(); }
  RoleSet RolesOfToken(absl::string_view token) const {
    return tokens_->Find(token);
  }
  // What this process shows its peers; empty: none.
  std::string OwnToken() const;
  // An error with exit code kConfig where workers with these settings would
  // refuse a trainer with the same: without a certificate, only tokens count.
  absl::Status AdmitsItself() const;

 private:
  Security() = default;

  IdentityPaths identity_;
  bool insecure_ = false;
  bool insecure_metrics_ = false;
  std::unique_ptr<TokenTable> tokens_;
  std::unique_ptr<PresentedToken> own_token_;
};

}  // namespace dapd
