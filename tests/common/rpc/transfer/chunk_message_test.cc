#include "common/rpc/transfer/chunk_message.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "dapd/v1/teacher.pb.h"
#include "tests/fakes/encoded_messages.h"

namespace dapd {
namespace {

constexpr int kField = v1::ScoreResponse::kChunkFieldNumber;

std::string RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// gRPC hands over the bytes that it read in slices of any size.
grpc::ByteBuffer InSlices(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) {
    slices.emplace_back(bytes.substr(at, size));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::ScoreResponse MakeMessage(uint64_t id, uint64_t offset, size_t size) {
  v1::ScoreResponse message;
  message.set_request_id(id);
  message.mutable_chunk()->set_offset(offset);
  message.mutable_chunk()->set_data(RandomBytes(size));
  message.mutable_chunk()->set_crc32c(Crc32c(message.chunk().data()));
  return message;
}

std::string DataOf(const ReceivedChunk& chunk) {
  return absl::StrJoin(chunk.pieces, "");
}

TEST(ChunkMessageTest, ProtobufReadsWhatIsEncodedByHand) {
  for (const uint64_t id : {0UL, 1UL, 300UL, ~0UL}) {
    for (const uint64_t offset : {0UL, 127UL, 1UL << 40, ~0UL}) {
      for (const size_t size : {1UL, 100UL, 1UL << 20}) {
        const v1::ScoreResponse twin = MakeMessage(id, offset, size);
        const auto message = Decoded<v1::ScoreResponse>(EncodeChunk(
            {kField, id}, offset, twin.chunk().data(), twin.chunk().crc32c()));
        EXPECT_EQ(message.SerializeAsString(), twin.SerializeAsString());
      }
    }
  }
}

TEST(ChunkMessageTest, WhatProtobufEncodesIsReadByHandInSlicesOfAnySize) {
  for (const size_t size : {0UL, 1UL, 100UL, 70'000UL}) {
    const v1::ScoreResponse twin = MakeMessage(300, 1 << 20, size);
    const std::string bytes = twin.SerializeAsString();
    for (const size_t slice : {1UL, 3UL, 24UL, 1000UL, 100'000UL}) {
      if (bytes.size() > 1000 * slice) continue;
      grpc::ByteBuffer message = InSlices(bytes, slice);
      const auto chunk = FindChunk(message, kField);
      ASSERT_TRUE(chunk.has_value()) << size << " in slices of " << slice;
      EXPECT_EQ(chunk->request_id, 300U);
      EXPECT_EQ(chunk->offset, 1U << 20);
      EXPECT_EQ(chunk->crc32c, twin.chunk().crc32c());
      EXPECT_EQ(chunk->num_bytes, size);
      EXPECT_EQ(DataOf(*chunk), twin.chunk().data());
    }
  }
}

TEST(ChunkMessageTest, EncodedChunksKeepTheirTensorAliveAndDoNotCopyIt) {
  auto owner = std::make_shared<std::string>(RandomBytes(1 << 16));
  grpc::ByteBuffer message = EncodeChunk({kField}, 0, {owner, *owner}, 7);
  EXPECT_EQ(owner.use_count(), 2);
  const auto chunk = FindChunk(message, kField);
  ASSERT_TRUE(chunk.has_value());
  ASSERT_EQ(chunk->pieces.size(), 1U);
  EXPECT_EQ(chunk->pieces[0].data(), owner->data());
  message.Clear();
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(ChunkMessageTest, OtherMessagesAndFormsAreLeftToProtobuf) {
  const std::string sound = MakeMessage(1, 5, 100).SerializeAsString();
  v1::ScoreResponse done;
  done.mutable_done();
  v1::ScoreResponse unknown = MakeMessage(1, 5, 100);
  v1::ScoreResponse::GetReflection()->MutableUnknownFields(&unknown)->AddVarint(
      99, 1);
  v1::ScoreResponse unknown_inside = MakeMessage(1, 5, 100);
  v1::TensorChunk::GetReflection()
      ->MutableUnknownFields(unknown_inside.mutable_chunk())
      ->AddVarint(99, 1);
  for (const std::string& bytes :
       {std::string(),
        done.SerializeAsString(),
        unknown.SerializeAsString(),
        unknown_inside.SerializeAsString(),
        sound + sound,                      // merged by protobuf
        sound + done.SerializeAsString(),   // the last of a oneof counts
        sound.substr(0, sound.size() - 1),  // cut off
        absl::StrCat(sound, std::string(1, '\0'))}) {  // tag 0
    grpc::ByteBuffer message = InSlices(bytes, 7);
    EXPECT_FALSE(FindChunk(message, kField).has_value());
  }
}

// Messages that are read by hand have the values that protobuf reads.
TEST(ChunkMessageTest, DamagedMessagesAreReadAsProtobufReadsThem) {
  std::mt19937_64 random(3);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = MakeMessage(7, 300, 40).SerializeAsString();
    for (int flips = static_cast<int>(random() % 3); flips >= 0; --flips) {
      bytes[random() % 12] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    grpc::ByteBuffer message = InSlices(bytes, 1 + random() % 30);
    const auto chunk = FindChunk(message, kField);
    if (!chunk.has_value()) continue;
    ++read;
    v1::ScoreResponse twin;
    ASSERT_TRUE(twin.ParseFromString(bytes));
    ASSERT_TRUE(twin.has_chunk());
    EXPECT_EQ(chunk->request_id, twin.request_id());
    EXPECT_EQ(chunk->offset, twin.chunk().offset());
    EXPECT_EQ(chunk->crc32c, twin.chunk().crc32c());
    EXPECT_EQ(DataOf(*chunk), twin.chunk().data());
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace dapd
