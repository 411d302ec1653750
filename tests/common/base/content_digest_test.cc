#include "common/base/content_digest.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

// xxHash 0.8.1 gives these values; its own tests contain the first two.
TEST(Xxh3Test, AgreesWithTheLibrarysOwnValues) {
  EXPECT_EQ(Xxh3Hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Xxh3Hex("abc"), "06b05ab6733a618578af5f94892f3950");
  // The text is long enough for every path through the library's vectors.
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes.push_back(static_cast<char>(i * 7));
  EXPECT_EQ(Xxh3Hex(bytes), "4fb78cd2670dad5801271d2740e5fca3");
}

TEST(ContentDigestTest, EachKindIsItsOwn) {
  for (const DigestKind kind : {DigestKind::kSha256, DigestKind::kXxh3}) {
    ContentDigest digest(kind);
    digest.Update("a");
    digest.Update("bc");
    EXPECT_EQ(digest.HexDigest(),
              kind == DigestKind::kXxh3 ? Xxh3Hex("abc") : Sha256Hex("abc"))
        << DigestKindName(kind);
  }
}

}  // namespace
}  // namespace dapd
