// Converts the messages of chunk and adapter streams to protobuf's classes, for
// tests that inspect them, damage them, or call a generated service.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/sync_stream.h"

#include "common/base/check.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/chunk_message.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "dapd/v1/rollout.grpc.pb.h"

namespace dapd {

template <typename Message>
Message Decoded(const grpc::ByteBuffer& encoded) {
  grpc::ByteBuffer bytes = encoded;
  Message message;
  Check(DecodeMessage(bytes, &message), "protobuf reads what was encoded");
  return message;
}

inline std::vector<v1::LoadAdapterRequest> AdapterMessages(
    const PolicyUpdate& update) {
  std::vector<v1::LoadAdapterRequest> messages;
  const absl::Status sent = SendAdapter(
      WeightSet::kLive, update, [&](const grpc::ByteBuffer& message) {
        messages.push_back(Decoded<v1::LoadAdapterRequest>(message));
        return true;
      });
  Check(sent.ok(), "the update is complete");
  return messages;
}

inline std::vector<v1::TensorChunk> ChunksOf(const SharedBytes& bytes) {
  std::vector<v1::TensorChunk> chunks;
  SendChunks(
      {v1::LoadAdapterRequest::kChunkFieldNumber},
      bytes,
      [&](const grpc::ByteBuffer& message) {
        chunks.push_back(Decoded<v1::LoadAdapterRequest>(message).chunk());
        return true;
      });
  return chunks;
}

// Receives an upload as a worker with the generated service does.
inline absl::StatusOr<AdapterUpload> ReceiveAdapter(
    const WorkerDescription& description,
    grpc::ServerReader<v1::LoadAdapterRequest>* reader) {
  AdapterReceiver receiver(LimitsOf(description));
  return ReceiveAdapter(receiver, [&](grpc::ByteBuffer* bytes) {
    v1::LoadAdapterRequest message;
    if (!reader->Read(&message)) return false;
    *bytes = EncodeMessage(message);
    return true;
  });
}

}  // namespace dapd
