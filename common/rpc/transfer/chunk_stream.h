// Tensors and adapters on the wire: a header with the size, then chunks of at
// most 1 MiB in order, each with its CRC-32C. The receiver compares the
// header's size with the expected size before it allocates memory. Payloads go
// from the sender's tensor to gRPC, and from gRPC into the receiver's tensor,
// without a copy in between (chunk_message.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/base/shared_bytes.h"
#include "common/rpc/transfer/chunk_message.h"
#include "common/tensor/host_tensor.h"
#include "dapd/v1/tensor.pb.h"

namespace dapd {

inline constexpr uint64_t kChunkBytes = 1 << 20;
// Returns the number of chunks of this many bytes.
constexpr uint64_t NumChunks(uint64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

v1::DataType ToWireType(DType dtype);
// Returns INVALID_ARGUMENT for an unspecified or unknown type.
absl::StatusOr<DType> FromWireType(v1::DataType type);

v1::TensorHeader MakeTensorHeader(const std::string& name,
                                  const HostTensor& tensor);

// Calls `send` with the encoded messages that carry `bytes`, in order (no
// message if `bytes` is empty). Returns false as soon as `send` returns false.
// Each message shares the ownership of its part of `bytes`.
bool SendChunks(const ChunkEnvelope& envelope,
                const SharedBytes& bytes,
                const std::function<bool(const grpc::ByteBuffer&)>& send);

// Checks each chunk and copies it behind the previous chunk. Not thread-safe.
class ChunkAssembler {
 public:
  // `target` has room for `total_bytes` and outlives the assembler; `what`
  // names the payload in messages.
  ChunkAssembler(char* target, uint64_t total_bytes, std::string what);

  // Returns INVALID_ARGUMENT for a chunk that is empty, too long, out of order
  // or beyond the end; DATA_LOSS for a wrong checksum.
  absl::Status Add(const ReceivedChunk& chunk);
  absl::Status Add(const v1::TensorChunk& chunk);
  bool complete() const { return received_ == total_bytes_; }
  uint64_t received() const { return received_; }

 private:
  char* const target_;
  const uint64_t total_bytes_;
  const std::string what_;
  uint64_t received_ = 0;
};

// Assembles one tensor. Not thread-safe.
class TensorAssembler {
 public:
  // Returns RESOURCE_EXHAUSTED if the header's tensor exceeds `max_bytes`.
  static absl::StatusOr<TensorAssembler> Start(const v1::TensorHeader& header,
                                               uint64_t max_bytes);

  absl::Status Add(const ReceivedChunk& chunk) { return chunks_.Add(chunk); }
  absl::Status Add(const v1::TensorChunk& chunk) { return chunks_.Add(chunk); }
  bool complete() const { return chunks_.complete(); }
  const std::string& name() const { return name_; }
  // May be called only once the tensor is complete.
  const HostTensor& tensor() const { return tensor_; }

 private:
  TensorAssembler(std::string name, HostTensor tensor);
  std::string name_;
  HostTensor tensor_;
  ChunkAssembler chunks_;
};

}  // namespace dapd
