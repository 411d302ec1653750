#include "common/rpc/client/status_conversion.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(StatusConversionTest, CodesAndMessagesSurviveTheRoundTrip) {
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

TEST(StatusConversionTest, ALongMessageIsCut) {
  const absl::Status status = absl::InternalError(std::string(100'000, 'x'));
  EXPECT_EQ(ToGrpcStatus(status).error_message().size(), 4096U);
}

TEST(StatusConversionTest, ACodeThatIsNoneIsInternal) {
  for (const int code : {0, -1, 17, 1000}) {
    EXPECT_EQ(FromWireError(code, "odd").code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace dapd
