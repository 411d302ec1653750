#include "common/base/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(Crc32cTest, AgreesWithThePublishedExamples) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

}  // namespace
}  // namespace dapd
