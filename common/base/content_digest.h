// ContentDigest: a digest, of one of two kinds, that identifies an adapter.
// docs/security.md says which kind is used where, and why.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"

#include "common/base/sha256.h"

namespace dapd {

// XXH3 with 128 bits (https://xxhash.com, doc/xxhash_spec.md) over libxxhash,
// with the widest vectors of the processor. It hashes as fast as memory is
// read; SHA-256 takes ten times as long. It detects every accidental change but
// no attack, since anybody can construct two contents with the same digest; use
// SHA-256 (sha256.h) against attacks. Not thread-safe.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void Update(absl::string_view bytes);
  // Returns 32 lower-case hex digits, in the order that xxhsum prints.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Xxh3Hex(absl::string_view bytes);

enum class DigestKind {
  kSha256,  // of files, and of what travels in plain text between machines
  kXxh3,    // of bytes that nobody can change on their way
};

// Returns "SHA-256" or "XXH3-128".
const char* DigestKindName(DigestKind kind);

// Not thread-safe.
class ContentDigest {
 public:
  explicit ContentDigest(DigestKind kind);

  void Update(absl::string_view bytes);
  // Returns lower-case hex digits: 64 for SHA-256, 32 for XXH3. The object
  // cannot be used afterwards.
  std::string HexDigest();

 private:
  std::variant<Sha256, Xxh3> hash_;
};

}  // namespace dapd
