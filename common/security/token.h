// Bearer tokens: what a process presents, and what a server accepts.
//
// A token is 32 to 512 characters of A-Z a-z 0-9 - . _ ~ + / = (RFC 6750),
// `openssl rand -hex 32` makes one. Files are followed (secret_file.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
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

// The tokens of a file, one a line, at least one. While a newer version of the
// file holds something else, say nothing yet, those of the version before it
// stay in effect, which is logged once. Not thread-safe.
class TokenFile {
 public:
  // Errors as ReadSecretFile, and for a file without or with a malformed token.
  // `key`: of the configuration, for messages.
  static absl::StatusOr<TokenFile> Open(const std::string& key,
                                        const std::string& path);

  struct Token {
    std::string text;
    std::string digest;  // SHA-256, so that all have one length
  };
  const std::vector<Token>& Get();

 private:
  TokenFile(std::string key, std::unique_ptr<SecretFile> secret)
      : key_(std::move(key)), secret_(std::move(secret)) {}
  absl::Status ReadIfChanged();

  std::string key_;
  std::unique_ptr<SecretFile> secret_;
  SecretFile::Bytes read_;  // what tokens_ are of, or a malformed version
  std::vector<Token> tokens_;
};

// Which roles a presented token has. Thread-safe.
class TokenTable {
 public:
  struct Entry {
    Role role;
    std::string key;   // of the configuration, for messages
    std::string path;  // a file whose tokens are all accepted
  };

  // Errors as TokenFile::Open.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Load(
      const std::vector<Entry>& entries);

  bool empty() const { return files_.empty(); }

  // Every accepted token is compared, each in a time that does not depend on
  // what is the same. No role: the token is not accepted.
  RoleSet Find(absl::string_view token);

 private:
  struct File {
    Role role;
    TokenFile tokens;
  };

  TokenTable() = default;

  Mutex mutex_;              // for the tokens of files_
  std::vector<File> files_;  // none is added after Load
};

// The token that a process presents: the first of its file. Thread-safe.
class PresentedToken {
 public:
  static absl::StatusOr<std::unique_ptr<PresentedToken>> Load(
      const std::string& key, const std::string& path);

  std::string Get();

 private:
  explicit PresentedToken(TokenFile file) : file_(std::move(file)) {}
  Mutex mutex_;
  TokenFile file_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
