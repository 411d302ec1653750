// Messages that carry a v1::TensorChunk, written and read without a copy of its
// data: protobuf's classes hold `bytes` in a string of their own, which costs
// two passes over every payload at each end.
//
//   writing  the fields in front of the data, encoded by hand, and after them
//            a slice of the tensor's own memory, kept alive until it is sent
//   reading  the place of the data in the pieces that gRPC read from the socket
//
// On the wire both are ordinary protobuf. Only the plain form is read here:
// what has unknown, repeated or further fields is left to the message's class,
// so that every message means what protobuf says it means.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/base/shared_bytes.h"

namespace dapd {

// Which message carries a stream's chunks.
struct ChunkEnvelope {
  int chunk_field = 0;  // number of its TensorChunk field
  // Its field 1, a uint64; 0: none.
  uint64_t request_id = 0;
};

// `data`, which is what stands at `offset` of its tensor, with its CRC-32C.
grpc::ByteBuffer EncodeChunk(const ChunkEnvelope& envelope,
                             uint64_t offset,
                             const SharedBytes& data,
                             uint32_t crc32c);

struct ReceivedChunk {
  uint64_t request_id = 0;
  uint64_t offset = 0;
  uint32_t crc32c = 0;
  // The data's pieces in order, in the memory of the message they came in.
  std::vector<absl::string_view> pieces;
  uint64_t num_bytes = 0;  // of all pieces
};

// The chunk in `message`'s field `chunk_field`, or nothing: then `message` is
// something else, or a chunk in another than the plain form.
std::optional<ReceivedChunk> FindChunk(grpc::ByteBuffer& message,
                                       int chunk_field);

// Any message, through its class.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& message);
// False if `bytes` is no such message.
bool DecodeMessage(grpc::ByteBuffer& bytes,
                   google::protobuf::MessageLite* message);

}  // namespace dapd
