#include "common/rpc/transfer/adapter_stream.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/sha256.h"
#include "tests/fakes/encoded_messages.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class AdapterStreamTest : public ::testing::Test {
 protected:
  AdapterStreamTest() {
    update_.version = 12;
    update_.adapter.tensors = std::string(2 * kChunkBytes + 5, 'w');
    update_.adapter.config_json = "{\"r\": 4}";
    update_.adapter.digest = Sha256Hex(absl::StrCat(
        update_.adapter.tensors.view(), update_.adapter.config_json));
    update_.probe_ids = {1, 2, 3};
    limits_ = {
        .max_bytes = 4 * kChunkBytes, .max_probe_ids = 16, .vocab_size = 10};
  }

  std::vector<v1::LoadAdapterRequest> Messages() const {
    return AdapterMessages(update_);
  }

  // Returns the upload that the worker makes of `messages`.
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
  EXPECT_EQ(messages.size(), 5U);
  const auto upload = Receive(messages);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->version, 12);
  EXPECT_FALSE(upload->is_base);
  EXPECT_EQ(upload->adapter.tensors, update_.adapter.tensors);
  EXPECT_EQ(upload->adapter.config_json, update_.adapter.config_json);
  EXPECT_EQ(upload->adapter.digest, update_.adapter.digest);
  EXPECT_EQ(upload->probe_ids, update_.probe_ids);
}

TEST_F(AdapterStreamTest, TheHeaderSaysWhichDigestIsMeant) {
  update_.adapter.digest_kind = DigestKind::kXxh3;
  update_.adapter.digest = Xxh3Hex(absl::StrCat(update_.adapter.tensors.view(),
                                                update_.adapter.config_json));
  auto messages = Messages();
  const auto upload = Receive(messages);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->adapter.digest_kind, DigestKind::kXxh3);
  EXPECT_EQ(upload->adapter.digest, update_.adapter.digest);

  messages.back().mutable_end()->set_digest(std::string(32, '0'));
  const absl::Status other = Receive(messages).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(other.message()), HasSubstr("XXH3-128"));
  // A client that knows another kind of digest would send this number.
  messages[0].mutable_header()->set_digest_kind(
      static_cast<v1::DigestKind>(77));
  const absl::Status unknown = Receive(messages).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("77"));
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

TEST_F(AdapterStreamTest, AnUploadIsOfTheSetThatItsHeaderNames) {
  limits_.weight_sets = {WeightSet::kSnapshot, WeightSet::kEma};
  auto messages = Messages();
  messages[0].mutable_header()->set_weights(v1::TEACHER_WEIGHTS_EMA);
  EXPECT_EQ(Receive(messages)->set, WeightSet::kEma);
  // A client that does not know sets of weights sends no set.
  messages[0].mutable_header()->clear_weights();
  EXPECT_EQ(Receive(messages)->set, WeightSet::kSnapshot);
  messages[0].mutable_header()->set_weights(v1::TEACHER_WEIGHTS_LIVE);
  const absl::Status status = Receive(messages).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("as its live"));
}

TEST_F(AdapterStreamTest, TheBaseTakesNoAdapter) {
  limits_.weight_sets = {WeightSet::kBase};
  auto messages = Messages();
  messages[0].mutable_header()->set_weights(v1::TEACHER_WEIGHTS_BASE);
  EXPECT_EQ(Receive(messages).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AdapterStreamTest, AWrongDigestIsDataLoss) {
  update_.adapter.config_json = "{\"r\": 8}";
  const auto upload = Receive(Messages());
  EXPECT_EQ(upload.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(upload.status().message()), HasSubstr("SHA-256"));
}

TEST_F(AdapterStreamTest, AMissingEndIsDataLoss) {
  auto messages = Messages();
  messages.pop_back();  // drops the digest
  EXPECT_EQ(Receive(messages).status().code(), absl::StatusCode::kDataLoss);
  messages[3] = Messages().back();  // in the last chunk's place
  EXPECT_EQ(Receive(messages).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Receive({}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(AdapterStreamTest, ChunksGoOutAsSoonAsTheyAreFinal) {
  auto progress = std::make_shared<UpdateProgress>();
  update_.progress = progress;
  const std::string digest = std::move(update_.adapter.digest);
  int sent = 0;
  std::vector<grpc::ByteBuffer> messages;
  const absl::Status status = SendAdapter(
      WeightSet::kLive, update_, [&](const grpc::ByteBuffer& message) {
        messages.push_back(message);
        // Each chunk becomes final only after the chunk before it was sent.
        if (++sent <= 3) {
          progress->Advance(std::min(static_cast<size_t>(sent) * kChunkBytes,
                                     update_.adapter.tensors.size()));
        } else {
          update_.adapter.digest = digest;
          progress->Finish();
        }
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(messages.size(), 5U);
  AdapterReceiver receiver(limits_);
  for (grpc::ByteBuffer& message : messages) {
    ASSERT_TRUE(receiver.Add(message).ok());
  }
  const auto upload = receiver.Finish();
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->adapter.tensors, update_.adapter.tensors);
}

TEST_F(AdapterStreamTest, AnUpdateThatIsGivenUpEndsItsSending) {
  auto progress = std::make_shared<UpdateProgress>();
  update_.progress = progress;
  progress->Advance(kChunkBytes);
  int sent = 0;
  const absl::Status status =
      SendAdapter(WeightSet::kLive, update_, [&](const grpc::ByteBuffer&) {
        if (++sent == 2) progress->Abandon();
        return true;
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(sent, 2);
}

TEST_F(AdapterStreamTest, AnAdapterPastTheLimitIsRefusedByItsHeader) {
  limits_.max_bytes = update_.adapter.tensors.size() - 1;
  AdapterReceiver receiver(limits_);
  const absl::Status status = receiver.Add(Messages().front());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
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
  EXPECT_EQ(Receive({messages[4]}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Receive({messages[0], messages[4], messages[1]}).status().code(),
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
