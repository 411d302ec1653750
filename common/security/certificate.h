// X.509 certificates of this system: who they are for, how long they last, and
// whether key, certificate and authority belong together.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/security/role.h"

// OpenSSL's certificate.
struct x509_st;

namespace dapd {

struct Certificate {
  RoleSet roles;  // of its URI names
  absl::Time not_before;
  absl::Time not_after;
};

Certificate DescribeCertificate(x509_st* certificate);

// The first certificate of PEM text: the process's own, before its
// intermediates. INVALID_ARGUMENT if there is none.
absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem);

// The same of the file that security.certificate names.
absl::StatusOr<Certificate> ReadCertificate(const std::string& path);

struct IdentityPaths {
  std::string certificate;  // the process's, then intermediates
  std::string private_key;
  std::string ca;  // the authorities that peers' certificates come from
};

// Which end of a connection a process is.
enum class TlsEnd { kServer, kClient };

// Finds out now what would otherwise be a failed handshake later: INVALID
// ARGUMENT, with the file and the reason, unless the key is the certificate's
// and of a kind that signs in TLS 1.3 (RSA, Ed25519, Ed448, or EC on P-256,
// P-384 or P-521) and, at `now`, one of the authorities vouches for it as that
// of such an end, with keys and digests that TLS on this machine takes for
// strong enough. The key file is checked as ReadSecretFile does.
absl::Status CheckIdentity(const IdentityPaths& paths,
                           TlsEnd end,
                           absl::Time now);

}  // namespace dapd
