// Bearer tokens: what a process presents, and what a server accepts.
//
// A token is 32 to 512 characters of A-Z a-z 0-9 - . _ ~ + / = (RFC 6750),
// `openssl rand -hex 32` makes one. Files are followed (secret_file.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/mutex.h"
#include "common/security/role.h"
#include "common/security/secret_file.h"

namespace dapd {

// The token of an "authorization" header's value, "Bearer <token>"; empty if it
// is none. The scheme's case does not matter.
absl::string_view ParseBearer(absl::string_view header);

// Which roles a presented token has. Thread-safe.
class TokenTable {
 public:
  struct Entry {
    Role role;
    std::string key;   // of the configuration, for messages
    std::string path;  // a file with one token a line, all of them accepted
  };

  // Errors as ReadSecretFile, and for a file without or with a malformed token.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Load(
      const std::vector<Entry>& entries);

  bool empty() const { return files_.empty(); }

  // Every accepted token is compared, each in a time that does not depend on
  // what is the same. No role: the token is not accepted.
  RoleSet Find(absl::string_view token);

 private:
  struct Accepted {
    std::string digest;  // SHA-256, so that all have one length
    Role role;
  };
  struct File {
    Role role;
    std::string key;
    std::unique_ptr<SecretFile> secret;
    SecretFile::Bytes parsed;  // what `accepted_` holds of it
  };

  TokenTable() = default;
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::vector<File> files_;
  std::vector<Accepted> accepted_ ABSL_GUARDED_BY(mutex_);
};

// The token that a process presents: the first of its file. Thread-safe.
class PresentedToken {
 public:
  static absl::StatusOr<std::unique_ptr<PresentedToken>> Load(
      const std::string& key, const std::string& path);

  std::string Get();

 private:
  explicit PresentedToken(std::unique_ptr<SecretFile> secret)
      : secret_(std::move(secret)) {}
  const std::unique_ptr<SecretFile> secret_;
};

}  // namespace dapd
