#include "common/base/content_digest.h"

namespace dapd {

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
