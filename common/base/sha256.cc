#include "common/base/sha256.h"

#include <openssl/evp.h>

#include <string>

#include "absl/strings/escaping.h"

#include "common/base/check.h"

namespace dapd {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  Check(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1,
        "OpenSSL offers SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::Update(absl::string_view bytes) {
  Check(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1,
        "hashing memory cannot fail");
}

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  Check(EVP_DigestFinal_ex(context_->evp, digest, &size) == 1,
        "a digest is finished once");
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<char*>(digest), size));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.HexDigest();
}

}  // namespace dapd
