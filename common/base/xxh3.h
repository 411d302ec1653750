// XXH3 with 128 bits (https://xxhash.com, doc/xxhash_spec.md) over libxxhash,
// which takes the processor's widest vectors: a pass as fast as memory is read,
// where one of SHA-256 takes ten times as long.
//
// It finds every accident, and no attack: whoever wants to can make two
// contents with one digest. Where that matters there is sha256.h.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

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

}  // namespace dapd
