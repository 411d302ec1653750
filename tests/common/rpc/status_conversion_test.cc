#include "common/rpc/status_conversion.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/utf8.h"

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

TEST(StatusConversionTest, AMessageIsSentEscapedAndShort) {
  const grpc::Status sent = ToGrpcStatus(
      absl::InvalidArgumentError("id '\xff\n E 2026 forged\x1b[2J'"));
  EXPECT_EQ(sent.error_message(), "id '\\xff\\n E 2026 forged\\x1b[2J'");
  // The message may also be cut inside a character or where escaping lengthens
  // it.
  for (const std::string& text : {"a" + std::string(3 * 4096, '\xff'), [] {
                                    std::string text = "a";
                                    for (int i = 0; i < 4096; ++i)
                                      text += "\xc3\xa9";
                                    return text;
                                  }()}) {
    const std::string message = WireMessage(absl::InvalidArgumentError(text));
    EXPECT_TRUE(IsUtf8(message));
    EXPECT_GT(message.size(), 4000u);
    EXPECT_LT(message.size(), 4096u + 16u);
  }
}

}  // namespace
}  // namespace dapd
