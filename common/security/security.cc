#include "common/security/security.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"

namespace dapd {
namespace {

constexpr absl::Duration kSoon = absl::Hours(24 * 7);

// Workers accept calls; the trainer accepts calls and calls workers; a process
// that needs no role, such as `dapd status`, only calls.
std::vector<TlsEnd> EndsOf(RoleSet needed) {
  if (needed.empty()) return {TlsEnd::kClient};
  if (!needed.Contains(Role::kTrainer)) return {TlsEnd::kServer};
  return {TlsEnd::kServer, TlsEnd::kClient};
}

absl::Status CheckOwnCertificate(const IdentityPaths& identity,
                                 RoleSet needed) {
  ASSIGN_OR_RETURN(const Certificate own,
                   ReadCertificate(identity.certificate));
  RoleSet all = own.roles;
  all.Add(needed);
  if (!(all == own.roles)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate in ",
                     identity.certificate,
                     " names ",
                     own.roles.ToString(),
                     ", this process needs ",
                     needed.ToString(),
                     ": peers would refuse it. A role is named by a URI "
                     "spiffe://dapd/<role> in the subject's alternative names; "
                     "deploy/make_certificates.sh makes such certificates"));
  }
  const absl::Time now = absl::Now();
  for (const TlsEnd end : EndsOf(needed)) {
    RETURN_IF_ERROR(CheckIdentity(identity, end, now));
  }
  const std::string expiry =
      absl::FormatTime(absl::RFC3339_sec, own.not_after, absl::UTCTimeZone());
  if (own.not_after - now < kSoon) {
    LogWarning(absl::StrCat(
        "the certificate in ",
        identity.certificate,
        " expires at ",
        expiry,
        "; replace the file with a newer one; no restart is needed"));
  } else {
    LogInfo(absl::StrCat("mutual TLS as ",
                         own.roles.ToString(),
                         "; the certificate expires at ",
                         expiry));
  }
  return absl::OkStatus();
}

// Returns false for a text that is not host:port, which is an error elsewhere.
bool IsOnLoopback(const std::string& address) {
  std::string host;
  int port = 0;
  return SplitAddress(address, &host, &port) && IsLoopback(host);
}

absl::Status Unprotected(const std::string& address,
                         const std::string& remedy) {
  return ConfigError(
      absl::StrCat("'",
                   address,
                   "' can be reached from other machines, without encryption "
                   "or authentication; use 127.0.0.1, give "
                   "security.certificate, security.private_key and "
                   "security.ca, or accept plaintext with ",
                   remedy));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Security>> Security::Load(
    const SecuritySection& section, RoleSet needed) {
  auto security = Loopback();
  security->identity_ = {.certificate = section.certificate,
                         .private_key = section.private_key,
                         .ca = section.ca};
  security->insecure_ = section.insecure;
  security->insecure_metrics_ = section.insecure_metrics;
  if (security->has_certificate()) {
    RETURN_IF_ERROR(WithExitCode(
        CheckOwnCertificate(security->identity_, needed), ExitCode::kConfig));
  }
  std::vector<TokenTable::Entry> entries;
  for (const auto& [role, path] :
       {std::pair{Role::kViewer, section.tokens.viewer},
        std::pair{Role::kTrainer, section.tokens.trainer},
        std::pair{Role::kAdmin, section.tokens.admin}}) {
    if (path.empty()) continue;
    entries.push_back(
        {role, absl::StrCat("security.tokens.", RoleName(role)), path});
  }
  ASSIGN_OR_RETURN(security->tokens_, TokenTable::Load(entries));
  if (!section.token.empty()) {
    ASSIGN_OR_RETURN(security->own_token_,
                     PresentedToken::Load("security.token", section.token));
  }
  if (section.insecure) {
    LogWarning(
        "security.insecure: connections with other machines are in plain text, "
        "and anyone who can reach this process can use it");
  }
  if (section.insecure_metrics) {
    LogWarning(
        "security.insecure_metrics: anyone who can reach this process can read "
        "metrics and status");
  }
  return security;
}

std::shared_ptr<Security> Security::Loopback() {
  auto security = std::shared_ptr<Security>(new Security());
  security->tokens_ = TokenTable::Load({}).value();
  return security;
}

absl::Time Security::CertificateExpiry() const {
  if (!has_certificate()) return absl::InfiniteFuture();
  const auto own = ReadCertificate(identity_.certificate);
  // An unreadable certificate counts as expired, so that the alert fires.
  return own.ok() ? own->not_after : absl::UnixEpoch();
}

absl::StatusOr<Protection> Security::ForRpc(const std::string& address) const {
  if (has_certificate()) return Protection::kTls;
  if (IsOnLoopback(address)) return Protection::kLoopback;
  if (insecure_) return Protection::kInsecure;
  return Unprotected(address, "security.insecure: true");
}

absl::StatusOr<Protection> Security::ForHttp(const std::string& address) const {
  if (IsOnLoopback(address)) return Protection::kLoopback;
  if (insecure_metrics_) return Protection::kInsecure;
  if (has_certificate()) return Protection::kTls;
  if (insecure_) return Protection::kInsecure;
  return Unprotected(address, "security.insecure_metrics: true");
}

std::string Security::OwnToken() const {
  return own_token_ == nullptr ? "" : own_token_->Get();
}

absl::Status Security::AdmitsItself() const {
  constexpr RoleSet kDrive = {Role::kTrainer, Role::kAdmin};
  if (has_certificate() || !accepts_tokens() ||
      RolesOfToken(OwnToken()).Intersects(kDrive)) {
    return absl::OkStatus();
  }
  return ConfigError(
      "with security.tokens, workers on this machine accept calls only with a "
      "token of security.tokens.trainer or .admin, and security.token has no "
      "such token: set it to the path of a file with one");
}

}  // namespace dapd
