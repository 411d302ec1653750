#include "common/rpc/transfer/chunk_stream.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/encoded_messages.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

HostTensor MakeTensor(std::vector<int64_t> shape) {
  HostTensor tensor = *HostTensor::Allocate(DType::kInt32, std::move(shape));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto value = static_cast<int32_t>(i * 2654435761U);
    std::memcpy(tensor.data.get() + i * sizeof(value), &value, sizeof(value));
  }
  return tensor;
}

TEST(ChunkStreamTest, TensorsOfEverySizeSurviveTheRoundTrip) {
  const int64_t chunk = kChunkBytes / 4;
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, chunk - 1, chunk, chunk + 1, 3 * chunk}) {
    const HostTensor sent = MakeTensor({size});
    auto receiver =
        TensorAssembler::Start(MakeTensorHeader("hidden", sent), 4 * size);
    ASSERT_TRUE(receiver.ok()) << receiver.status();
    const auto chunks = ChunksOf({sent.data, sent.bytes()});
    EXPECT_EQ(chunks.size(), static_cast<size_t>((size + chunk - 1) / chunk));
    for (const auto& part : chunks) {
      EXPECT_FALSE(receiver->complete());
      ASSERT_TRUE(receiver->Add(part).ok());
    }
    ASSERT_TRUE(receiver->complete());
    EXPECT_EQ(receiver->name(), "hidden");
    EXPECT_EQ(receiver->tensor().shape, sent.shape);
    EXPECT_EQ(receiver->tensor().dtype, sent.dtype);
    EXPECT_EQ(receiver->tensor().bytes(), sent.bytes());
  }
}

TEST(ChunkStreamTest, EveryTypeHasItsWireType) {
  for (const DType dtype : {DType::kFloat32,
                            DType::kBFloat16,
                            DType::kFloat16,
                            DType::kInt32,
                            DType::kInt64,
                            DType::kUInt8}) {
    EXPECT_EQ(*FromWireType(ToWireType(dtype)), dtype);
  }
  EXPECT_FALSE(FromWireType(v1::DATA_TYPE_UNSPECIFIED).ok());
}

TEST(ChunkStreamTest, SendingStopsWhenTheStreamBreaks) {
  int sent = 0;
  EXPECT_FALSE(SendChunks({v1::LoadAdapterRequest::kChunkFieldNumber},
                          std::string(3 * kChunkBytes, 'x'),
                          [&](const grpc::ByteBuffer&) { return ++sent < 2; }));
  EXPECT_EQ(sent, 2);
}

TEST(ChunkStreamTest, ATensorPastTheLimitIsRefusedByItsHeader) {
  v1::TensorHeader header;
  header.set_name("logits");
  header.set_dtype(v1::DATA_TYPE_FLOAT32);
  header.add_shape(1 << 20);
  header.add_shape(1 << 20);
  const auto receiver = TensorAssembler::Start(header, 1 << 30);
  EXPECT_EQ(receiver.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(receiver.status().message()), HasSubstr("logits"));
}

TEST(ChunkStreamTest, ImpossibleHeadersAreRefused) {
  struct Case {
    const char* name;
    std::vector<int64_t> shape;
    v1::DataType dtype;
  };
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const Case& c :
       {Case{"negative", {-1}, v1::DATA_TYPE_INT32},
        Case{"overflow", {huge, huge}, v1::DATA_TYPE_UINT8},
        Case{"no type", {1}, v1::DATA_TYPE_UNSPECIFIED},
        Case{"rank 9", std::vector<int64_t>(9, 1), v1::DATA_TYPE_INT32}}) {
    v1::TensorHeader header;
    header.set_dtype(c.dtype);
    for (const int64_t extent : c.shape) header.add_shape(extent);
    EXPECT_EQ(TensorAssembler::Start(header, 1 << 30).status().code(),
              absl::StatusCode::kInvalidArgument)
        << c.name;
  }
}

// Has a sound stream of three chunks; each test spoils one chunk.
class ChunkAssemblerTest : public ::testing::Test {
 protected:
  std::string bytes_ = std::string(2 * kChunkBytes + 100, 'x');
  std::vector<v1::TensorChunk> chunks_ = ChunksOf(bytes_);
  std::string target_ = std::string(bytes_.size(), '\0');
  ChunkAssembler assembler_{target_.data(), target_.size(), "adapter"};
};

TEST_F(ChunkAssemblerTest, AFlippedBitIsDataLoss) {
  (*chunks_[1].mutable_data())[77] ^= 1;
  ASSERT_TRUE(assembler_.Add(chunks_[0]).ok());
  const absl::Status status = assembler_.Add(chunks_[1]);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("offset 1048576"));
}

TEST_F(ChunkAssemblerTest, ChunksOutOfOrderAreRefused) {
  EXPECT_EQ(assembler_.Add(chunks_[1]).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(assembler_.Add(chunks_[0]).ok());
  EXPECT_EQ(assembler_.Add(chunks_[0]).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ChunkAssemblerTest, NothingGoesPastTheEnd) {
  for (const auto& chunk : chunks_) ASSERT_TRUE(assembler_.Add(chunk).ok());
  ASSERT_TRUE(assembler_.complete());
  v1::TensorChunk extra;
  extra.set_offset(bytes_.size());
  extra.set_data("x");
  EXPECT_EQ(assembler_.Add(extra).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ChunkAssemblerTest, EmptyAndOversizeChunksAreRefused) {
  v1::TensorChunk chunk;
  EXPECT_EQ(assembler_.Add(chunk).code(), absl::StatusCode::kInvalidArgument);
  chunk.set_data(std::string(kChunkBytes + 1, 'x'));
  EXPECT_EQ(assembler_.Add(chunk).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace dapd
