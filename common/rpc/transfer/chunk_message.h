// Messages that carry a v1::TensorChunk, written and read without a copy of its
// data. protobuf's classes hold `bytes` in their own string, which costs two
// passes over every payload at each end.
//
//   writing  the fields before the data, encoded by hand, then a slice of the
//            tensor's own memory, kept alive until it is sent
//   reading  the place of the data in the pieces that gRPC read from the socket
//
// On the wire these are ordinary protobuf messages. Only the plain form is read
// here. A message with unknown, repeated or further fields is left to its
// class, so that every message has protobuf's meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/base/shared_bytes.h"

namespace dapd {

// The message that carries a stream's chunks.
struct ChunkEnvelope {
  int chunk_field = 0;  // number of its TensorChunk field
  // The value of field 1, a uint64; 0: there is no such field.
  uint64_t request_id = 0;
};

// Returns the message for `data`, the bytes at `offset` of a tensor, with its
// CRC-32C.
grpc::ByteBuffer EncodeChunk(const ChunkEnvelope& envelope,
                             uint64_t offset,
                             const SharedBytes& data,
                             uint32_t crc32c);

struct ReceivedChunk {
  uint64_t request_id = 0;
  uint64_t offset = 0;
  uint32_t crc32c = 0;
  // The pieces of the data in order, in the memory of their message.
  std::vector<absl::string_view> pieces;
  uint64_t num_bytes = 0;  // of all pieces
};

// Returns the chunk in field `chunk_field` of `message`; nothing if `message`
// carries something else, or a chunk that is not in the plain form.
std::optional<ReceivedChunk> FindChunk(grpc::ByteBuffer& message,
                                       int chunk_field);

// Encodes any message through its class.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);
// Returns false if `bytes` do not encode such a message.
bool DecodeMessage(grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message);

}  // namespace dapd
