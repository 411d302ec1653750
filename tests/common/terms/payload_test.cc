#include "common/terms/payload.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(PayloadTest, NamesAreThoseOfTheConfiguration) {
  EXPECT_EQ(ParsePayload("hidden_states").value(), Payload::kHiddenStates);
  EXPECT_EQ(ParsePayload("logits").value(), Payload::kLogits);
  EXPECT_EQ(ParsePayload("top_k").value(), Payload::kTopK);
  EXPECT_FALSE(ParsePayload("topk").ok());
}

}  // namespace
}  // namespace dapd
