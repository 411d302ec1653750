#include "common/base/content_digest.h"

// The functions of libxxhash choose among SSE2, AVX2 and AVX-512 when they run;
// the plain header's are SSE2's.
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "absl/strings/escaping.h"

#include "common/base/check.h"

namespace dapd {

struct Xxh3::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  Check(state_->xxh != nullptr && XXH3_128bits_reset(state_->xxh) == XXH_OK,
        "there is memory for a digest");
}

Xxh3::~Xxh3() = default;

void Xxh3::Update(absl::string_view bytes) {
  Check(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK,
        "hashing memory cannot fail");
}

std::string Xxh3::HexDigest() {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state_->xxh));
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.digest), sizeof(digest.digest)));
}

std::string Xxh3Hex(absl::string_view bytes) {
  Xxh3 hash;
  hash.Update(bytes);
  return hash.HexDigest();
}

const char* DigestKindName(DigestKind kind) {
  switch (kind) {
    case DigestKind::kSha256:
      return "SHA-256";
    case DigestKind::kXxh3:
      return "XXH3-128";
  }
  return "";
}

ContentDigest::ContentDigest(DigestKind kind) {
  if (kind == DigestKind::kXxh3) hash_.emplace<Xxh3>();
}

void ContentDigest::Update(absl::string_view bytes) {
  std::visit([&](auto& hash) { hash.Update(bytes); }, hash_);
}

std::string ContentDigest::HexDigest() {
  return std::visit([](auto& hash) { return hash.HexDigest(); }, hash_);
}

}  // namespace dapd
