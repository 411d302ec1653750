// SHA-256 (FIPS 180-4) over OpenSSL, for the digests of adapters and files.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(absl::string_view bytes);
  // Returns 64 lower-case hex digits. The object cannot be used afterwards.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Hex(absl::string_view bytes);

}  // namespace dapd
