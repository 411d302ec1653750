// ContentDigest: a digest of one of the kinds that identify an adapter.
// docs/security.md says which of them serves where, and why.
#pragma once

#include <string>
#include <variant>

#include "absl/strings/string_view.h"

#include "common/base/sha256.h"
#include "common/base/xxh3.h"

namespace dapd {

enum class DigestKind {
  kSha256,  // of files, and of what travels in plain text between machines
  kXxh3,    // of what travels where nobody can change it on the way
};

// "SHA-256", "XXH3-128".
const char* DigestKindName(DigestKind kind);

// Not thread-safe.
class ContentDigest {
 public:
  explicit ContentDigest(DigestKind kind);

  void Update(absl::string_view bytes);
  // Lower-case hex digits: 64 of SHA-256, 32 of XXH3. The object is used up.
  std::string HexDigest();

 private:
  std::variant<Sha256, Xxh3> hash_;
};

}  // namespace dapd
