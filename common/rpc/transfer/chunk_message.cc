#include "common/rpc/transfer/chunk_message.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"

#include "dapd/v1/tensor.pb.h"

namespace dapd {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// https://protobuf.dev/programming-guides/encoding
constexpr uint32_t kVarint = 0;
constexpr uint32_t kLengthDelimited = 2;
constexpr uint32_t Tag(int field, uint32_t wire_type) {
  return static_cast<uint32_t>(field) << 3 | wire_type;
}

constexpr uint32_t kRequestIdTag = Tag(1, kVarint);
constexpr uint32_t kOffsetTag =
    Tag(v1::TensorChunk::kOffsetFieldNumber, kVarint);
constexpr uint32_t kChecksumTag =
    Tag(v1::TensorChunk::kCrc32CFieldNumber, kVarint);
constexpr uint32_t kDataTag =
    Tag(v1::TensorChunk::kDataFieldNumber, kLengthDelimited);

// Room for four tags and four varints.
using HeadBytes = std::array<uint8_t, 64>;

uint8_t* WriteField(uint32_t tag, uint64_t value, uint8_t* to) {
  to = CodedOutputStream::WriteTagToArray(tag, to);
  return CodedOutputStream::WriteVarint64ToArray(value, to);
}

grpc::Slice SliceOf(const SharedBytes& bytes) {
  using Owner = std::shared_ptr<const void>;
  auto owner = std::make_unique<Owner>(bytes.owner());
  return grpc::Slice(
      // gRPC only reads slices, although its C type is not const.
      const_cast<char*>(bytes.data()),
      bytes.size(),
      [](void* held) { delete static_cast<Owner*>(held); },
      owner.release());
}

bool ReadPieces(CodedInputStream& input, ReceivedChunk* chunk) {
  uint32_t left = 0;
  if (!input.ReadVarint32(&left)) return false;
  chunk->num_bytes = left;
  while (left > 0) {
    const void* piece = nullptr;
    int size = 0;
    if (!input.GetDirectBufferPointer(&piece, &size)) return false;
    size = static_cast<int>(std::min(static_cast<uint32_t>(size), left));
    chunk->pieces.emplace_back(static_cast<const char*>(piece),
                               static_cast<size_t>(size));
    input.Skip(size);
    left -= static_cast<uint32_t>(size);
  }
  return true;
}

// Each field may appear at most once.
bool ReadChunkFields(CodedInputStream& input, ReceivedChunk* chunk) {
  bool has_offset = false;
  bool has_checksum = false;
  bool has_data = false;
  while (const uint32_t tag = input.ReadTag()) {
    bool read = false;
    if (tag == kOffsetTag && !has_offset) {
      has_offset = read = input.ReadVarint64(&chunk->offset);
    } else if (tag == kChecksumTag && !has_checksum) {
      has_checksum = read = input.ReadVarint32(&chunk->crc32c);
    } else if (tag == kDataTag && !has_data) {
      has_data = read = ReadPieces(input, chunk);
    }
    if (!read) return false;
  }
  return input.ConsumedEntireMessage();
}

bool ReadEnvelope(CodedInputStream& input,
                  uint32_t chunk_tag,
                  ReceivedChunk* chunk) {
  bool has_id = false;
  bool has_chunk = false;
  while (const uint32_t tag = input.ReadTag()) {
    if (tag == kRequestIdTag && !has_id) {
      has_id = input.ReadVarint64(&chunk->request_id);
      if (!has_id) return false;
    } else if (tag == chunk_tag && !has_chunk) {
      uint32_t size = 0;
      if (!input.ReadVarint32(&size) ||
          size > static_cast<uint32_t>(std::numeric_limits<int>::max())) {
        return false;
      }
      const auto limit = input.PushLimit(static_cast<int>(size));
      if (!ReadChunkFields(input, chunk) || input.BytesUntilLimit() != 0) {
        return false;
      }
      input.PopLimit(limit);
      has_chunk = true;
    } else {
      return false;
    }
  }
  return has_chunk && input.ConsumedEntireMessage();
}

}  // namespace

grpc::ByteBuffer EncodeChunk(const ChunkEnvelope& envelope,
                             uint64_t offset,
                             const SharedBytes& data,
                             uint32_t crc32c) {
  HeadBytes inner;
  uint8_t* inner_end = WriteField(kOffsetTag, offset, inner.data());
  inner_end = WriteField(kChecksumTag, crc32c, inner_end);
  // The last field, whatever its number, since the data follows it.
  inner_end = WriteField(kDataTag, data.size(), inner_end);
  const auto inner_bytes = static_cast<size_t>(inner_end - inner.data());

  HeadBytes head;
  uint8_t* end = head.data();
  if (envelope.request_id != 0) {
    end = WriteField(kRequestIdTag, envelope.request_id, end);
  }
  end = WriteField(Tag(envelope.chunk_field, kLengthDelimited),
                   inner_bytes + data.size(),
                   end);
  end = std::copy(inner.data(), inner_end, end);
  const std::array<grpc::Slice, 2> slices = {
      grpc::Slice(head.data(), static_cast<size_t>(end - head.data())),
      SliceOf(data)};
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::optional<ReceivedChunk> FindChunk(grpc::ByteBuffer& message,
                                       int chunk_field) {
  if (!message.Valid()) return std::nullopt;
  grpc::ProtoBufferReader reader(&message);
  CodedInputStream input(&reader);
  ReceivedChunk chunk;
  if (!ReadEnvelope(input, Tag(chunk_field, kLengthDelimited), &chunk)) {
    return std::nullopt;
  }
  return chunk;
}

grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool DecodeMessage(grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message) {
  if (!bytes.Valid()) return false;
  grpc::ProtoBufferReader reader(&bytes);
  return message->ParseFromZeroCopyStream(&reader);
}

}  // namespace dapd
