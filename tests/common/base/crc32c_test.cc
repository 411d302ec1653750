#include "common/base/crc32c.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(Crc32cTest, AgreesWithThePublishedExamples) {
  // The values come from RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

TEST(Crc32cTest, TheInstructionAgreesWithTheTable) {
  std::mt19937_64 random(7);
  std::string bytes(100'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  // The lengths cover every tail, and one and several rounds of three lanes.
  for (const size_t base : {0U, 4096U, 3U * 4096U, 6U * 4096U, 90'000U}) {
    for (size_t more = 0; more < 20; ++more) {
      for (const size_t start : {0U, 1U, 7U}) {
        const auto part = absl::string_view(bytes).substr(start, base + more);
        ASSERT_EQ(ExtendCrc32c(5, part), ExtendCrc32cByTable(5, part))
            << base + more << " bytes from " << start;
      }
    }
  }
}

TEST(Crc32cTest, PiecesMakeTheWhole) {
  const std::string bytes = "the first piece, and then the second one";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(bytes.substr(0, cut)), bytes.substr(cut)),
              Crc32c(bytes));
  }
}

}  // namespace
}  // namespace dapd
