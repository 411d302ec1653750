// Reads this system's X.509 certificates: which roles they grant, how long they
// are valid, and whether key, certificate and authority belong together.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/security/role.h"

// Declares OpenSSL's certificate.
struct x509_st;

namespace dapd {

struct Certificate {
  RoleSet roles;  // granted by its URI names
  absl::Time not_before;
  absl::Time not_after;
};

Certificate DescribeCertificate(x509_st* certificate);

// Returns the first certificate of PEM text: the process's own, before its
// intermediates. Returns INVALID_ARGUMENT if there is none.
absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem);

// Reads the first certificate of the file that security.certificate names.
absl::StatusOr<Certificate> ReadCertificate(const std::string& path);

// Names the files of an identity in messages: by keys of the configuration, or
// by options of a command.
struct IdentityNames {
  std::string certificate = "security.certificate";
  std::string private_key = "security.private_key";
  std::string ca = "security.ca";
};

struct IdentityPaths {
  std::string certificate;  // the process's certificate, then intermediates
  std::string private_key;
  // The authorities that issue peers' certificates; empty: peers are not asked
  // for one.
  std::string ca;
  IdentityNames names = {};
};

// Names the end of a connection that a process is.
enum class TlsEnd { kServer, kClient };

// Finds errors early that would otherwise make a handshake fail. Returns
// INVALID_ARGUMENT, with the file and the reason, unless all of these hold:
// * The key belongs to the certificate and can sign in TLS 1.3 (RSA, Ed25519,
//   Ed448, or EC on P-256, P-384 or P-521).
// * At `now`, one of the authorities vouches for the certificate at such an
//   end, with keys and digests that TLS on this machine accepts as strong
//   enough. If there are no authorities, the certificate is valid at `now`.
// The key file is checked as by ReadSecretFile.
absl::Status CheckIdentity(const IdentityPaths& paths,
                           TlsEnd end,
                           absl::Time now);

}  // namespace dapd
