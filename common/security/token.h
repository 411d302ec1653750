// Handles bearer tokens: the token that a process presents, and the tokens that
// a server accepts.
//
// A token is 32 to 512 characters of A-Z a-z 0-9 - . _ ~ + / = (RFC 6750);
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

// Returns the token in the value of an "authorization" header, "Bearer
// <token>"; empty for any other value. The case of "Bearer" does not matter.
absl::string_view ParseBearer(absl::string_view header);

// Holds the tokens of a file, one per line, at least one. While a newer version
// of the file is not valid, for example still empty, the tokens of the previous
// version stay in effect, which is logged once. Not thread-safe.
class TokenFile {
 public:
  // Returns ReadSecretFile's errors, and an error for a file without tokens or
  // with a malformed one. `key` is the configuration key, for messages.
  static absl::StatusOr<TokenFile> Open(const std::string& key,
                                        const std::string& path);

  struct Token {
    std::string text;
    std::string digest;  // SHA-256, so that all have the same length
  };
  const std::vector<Token>& Get();

 private:
  TokenFile(std::string key, std::unique_ptr<SecretFile> secret)
      : key_(std::move(key)), secret_(std::move(secret)) {}
  absl::Status ReadIfChanged();

  std::string key_;
  std::unique_ptr<SecretFile> secret_;
  SecretFile::Bytes read_;  // bytes of tokens_, or a malformed newer version
  std::vector<Token> tokens_;
};

// Maps a presented token to its roles. Thread-safe.
class TokenTable {
 public:
  struct Entry {
    Role role;
    std::string key;   // configuration key, for messages
    std::string path;  // file whose tokens are all accepted
  };

  // Returns TokenFile::Open's errors.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Load(
      const std::vector<Entry>& entries);

  bool empty() const { return files_.empty(); }

  // Compares the token with every accepted token, each in a time that does not
  // depend on the characters that they share. Returns no role if the token is
  // not accepted.
  RoleSet Find(absl::string_view token);

 private:
  struct File {
    Role role;
    TokenFile tokens;
  };

  TokenTable() = default;

  Mutex mutex_;              // guards the tokens of files_
  std::vector<File> files_;  // no file is added after Load
};

// Holds the token that a process presents: the first in its file. Thread-safe.
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
