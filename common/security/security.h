// Security reads and checks the configuration's section `security` once:
// certificates, tokens, and how an address may be served.
//
// The rules are:
// * With a certificate every gRPC connection uses mutual TLS, also on loopback.
// * Without a certificate only loopback addresses are served or called, unless
//   security.insecure accepts plaintext.
// * A peer has the roles of its certificate and of its token. Without a
//   certificate and without security.tokens, every peer on loopback is admin,
//   and every peer on another address (security.insecure) is trainer.
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
  kInsecure,  // plaintext for everybody, as an explicit flag requests
};

// Thread-safe.
class Security {
 public:
  // `needed` are the roles that the certificate, if any, must name. They also
  // decide whether it must be valid for accepting connections, for connecting
  // to others, or both; without roles the process only connects. Peers would
  // refuse this process otherwise. Every error has exit code kConfig.
  static absl::StatusOr<std::shared_ptr<Security>> Load(
      const SecuritySection& section, RoleSet needed);

  // Makes a Security for tests and programs without a configuration; allows
  // loopback only.
  static std::shared_ptr<Security> Loopback();

  bool has_certificate() const { return !identity_.certificate.empty(); }
  const IdentityPaths& identity() const { return identity_; }
  // Returns when the certificate in its file expires; the infinite future
  // without a certificate.
  absl::Time CertificateExpiry() const;

  // Return how gRPC may serve or call `address` ("host:port"), and how HTTP may
  // serve it. If it must not, the error has exit code kConfig and says what to
  // do.
  absl::StatusOr<Protection> ForRpc(const std::string& address) const;
  absl::StatusOr<Protection> ForHttp(const std::string& address) const;

  bool accepts_tokens() const { return !tokens_->empty(); }
  RoleSet RolesOfToken(absl::string_view token) const {
    return tokens_->Find(token);
  }
  // Returns the token that this process presents to its peers; empty if it has
  // none.
  std::string OwnToken() const;
  // Returns an error with exit code kConfig if workers with these settings
  // would refuse a trainer with the same settings: without a certificate, only
  // tokens count.
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
