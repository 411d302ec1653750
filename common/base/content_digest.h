// ContentDigest: a digest of one of the kinds that identify an adapter.
// docs/security.md says which of them serves where, and why.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"

#include "common/base/sha256.h"

namespace dapd {

// XXH3 with 128 bits (https://xxhash.com, doc/xxhash_spec.md) over libxxhash,
// which takes the processor's widest vectors: a pass as fast as memory is read,
// where one of SHA-256 takes ten times as long.
//
// It finds every accident, and no attack: whoever wants to can make two
// contents with one digest. Where that matters there is sha256.h.
// Not thread-safe.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void Update(absl::string_view bytes);
  // 32 lower-case hex digits, in the order that xxhsum prints.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Xxh3Hex(absl::string_view bytes);

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
