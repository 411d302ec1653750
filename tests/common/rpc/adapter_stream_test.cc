#include "common/rpc/adapter_stream.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/sha256.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class AdapterStreamTest : public ::testing::Test {
 protected:
  AdapterStreamTest() {
    update_.version = 12;
    update_.adapter.tensors = std::string(2 * kChunkBytes + 5, 'w');
    update_.adapter.config_json = "{\"r\": 4}";
    update_.adapter.digest =
        Sha256Hex(update_.adapter.tensors + update_.adapter.config_json);
    update_.probe_ids = {1, 2, 3};
    limits_ = {
        .max_bytes = 4 * kChunkBytes, .max_probe_ids = 16, .vocab_size = 10};
  }

  std::vector<v1::LoadAdapterRequest> Messages() const {
    std::vector<v1::LoadAdapterRequest> messages;
    SendAdapter(update_, [&](const v1::LoadAdapterRequest& message) {
      messages.push_back(message);
      return true;
    });
    return messages;
  }

  // What the worker makes of `messages`.
  absl::StatusOr<AdapterUpload> Receive(
      const std::vector<v1::LoadAdapterRequest>& messages) const {
    AdapterReceiver receiver(limits_);
    for (const auto& message : messages) {
      if (absl::Status status = receiver.Add(message); !status.ok()) {
        return status;
      }
    }
    return receiver.Finish();
  }

  PolicyUpdate update_;
  AdapterLimits limits_;
};

TEST_F(AdapterStreamTest, AnAdapterSurvivesTheRoundTrip) {
  const auto messages = Messages();
  EXPECT_EQ(messages.size(), 4U);
  const auto upload = Receive(messages);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->version, 12);
  EXPECT_FALSE(upload->is_base);
  EXPECT_EQ(upload->adapter.tensors, update_.adapter.tensors);
  EXPECT_EQ(upload->adapter.config_json, update_.adapter.config_json);
  EXPECT_EQ(upload->adapter.digest, update_.adapter.digest);
  EXPECT_EQ(upload->probe_ids, update_.probe_ids);
}

TEST_F(AdapterStreamTest, TheBaseIsAHeaderAlone) {
  update_.is_base = true;
  update_.adapter = {};
  const auto messages = Messages();
  EXPECT_EQ(messages.size(), 1U);
  const auto upload = Receive(messages);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_TRUE(upload->is_base);
}

TEST_F(AdapterStreamTest, AWrongDigestIsDataLoss) {
  update_.adapter.config_json = "{\"r\": 8}";
  const auto upload = Receive(Messages());
  EXPECT_EQ(upload.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(upload.status().message()), HasSubstr("SHA-256"));
}

TEST_F(AdapterStreamTest, AMissingEndIsDataLoss) {
  auto messages = Messages();
  messages.pop_back();
  EXPECT_EQ(Receive(messages).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Receive({}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(AdapterStreamTest, AnAdapterPastTheLimitIsRefusedByItsHeader) {
  limits_.max_bytes = update_.adapter.tensors.size() - 1;
  AdapterReceiver receiver(limits_);
  const absl::Status status = receiver.Add(Messages().front());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lora.rank"));
}

TEST_F(AdapterStreamTest, MessagesInTheWrongOrderAreRefused) {
  auto messages = Messages();
  EXPECT_EQ(Receive({messages[1]}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Receive({messages[0], messages[0]}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Receive({messages[0], messages[2]}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Receive({v1::LoadAdapterRequest()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AdapterStreamTest, AProbeThatCannotBeScoredIsRefused) {
  for (const std::vector<int32_t>& probe : {std::vector<int32_t>{},
                                            {1},
                                            std::vector<int32_t>(17, 1),
                                            {1, 10},
                                            {-1, 1}}) {
    update_.probe_ids = probe;
    EXPECT_EQ(Receive(Messages()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace dapd
