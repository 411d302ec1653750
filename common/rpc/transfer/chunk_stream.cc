#include "common/rpc/transfer/chunk_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kMaxRank = 8;

}  // namespace

v1::DataType ToWireType(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case DType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DType::kInt32:
      return v1::DATA_TYPE_INT32;
    case DType::kInt64:
      return v1::DATA_TYPE_INT64;
    case DType::kUInt8:
      return v1::DATA_TYPE_UINT8;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<DType> FromWireType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DATA_TYPE_BFLOAT16:
      return DType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DATA_TYPE_INT32:
      return DType::kInt32;
    case v1::DATA_TYPE_INT64:
      return DType::kInt64;
    case v1::DATA_TYPE_UINT8:
      return DType::kUInt8;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("data type ", static_cast<int>(type), " is unknown"));
  }
}

v1::TensorHeader MakeTensorHeader(const std::string& name,
                                  const HostTensor& tensor) {
  v1::TensorHeader header;
  header.set_name(name);
  header.set_dtype(ToWireType(tensor.dtype));
  header.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  return header;
}

bool SendChunks(const ChunkEnvelope& envelope,
                const SharedBytes& bytes,
                const std::function<bool(const grpc::ByteBuffer&)>& send) {
  for (uint64_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
    const SharedBytes part = bytes.Part(offset, kChunkBytes);
    if (!send(EncodeChunk(envelope, offset, part, Crc32c(part.view())))) {
      return false;
    }
  }
  return true;
}

ChunkAssembler::ChunkAssembler(char* target,
                               uint64_t total_bytes,
                               std::string what)
    : target_(target), total_bytes_(total_bytes), what_(std::move(what)) {}

absl::Status ChunkAssembler::Add(const v1::TensorChunk& chunk) {
  ReceivedChunk received;
  received.offset = chunk.offset();
  received.crc32c = chunk.crc32c();
  received.pieces = {chunk.data()};
  received.num_bytes = chunk.data().size();
  return Add(received);
}

absl::Status ChunkAssembler::Add(const ReceivedChunk& chunk) {
  if (chunk.offset != received_) {
    return absl::InvalidArgumentError(
        absl::StrCat(what_,
                     ": chunk at offset ",
                     chunk.offset,
                     " where ",
                     received_,
                     " is next: chunks must come in order"));
  }
  if (chunk.num_bytes == 0 || chunk.num_bytes > kChunkBytes ||
      chunk.num_bytes > total_bytes_ - received_) {
    return absl::InvalidArgumentError(
        absl::StrCat(what_,
                     ": chunk of ",
                     chunk.num_bytes,
                     " bytes at offset ",
                     received_,
                     " where 1 to ",
                     std::min(kChunkBytes, total_bytes_ - received_),
                     " are allowed"));
  }
  // Piece by piece, so that each piece is in the cache for the second pass.
  uint32_t crc = 0;
  char* target = target_ + received_;
  for (const absl::string_view piece : chunk.pieces) {
    crc = ExtendCrc32c(crc, piece);
    std::memcpy(target, piece.data(), piece.size());
    target += piece.size();
  }
  if (crc != chunk.crc32c) {
    return absl::DataLossError(absl::StrCat(what_,
                                            ": chunk at offset ",
                                            received_,
                                            " is corrupted: CRC-32C is ",
                                            absl::Hex(crc),
                                            ", the sender computed ",
                                            absl::Hex(chunk.crc32c)));
  }
  received_ += chunk.num_bytes;
  return absl::OkStatus();
}

absl::StatusOr<TensorAssembler> TensorAssembler::Start(
    const v1::TensorHeader& header, uint64_t max_bytes) {
  const std::string what = absl::StrCat("tensor '", header.name(), "'");
  ASSIGN_OR_RETURN(const DType dtype, FromWireType(header.dtype()));
  if (static_cast<size_t>(header.shape_size()) > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " has rank ", header.shape_size(), "; at most ", kMaxRank));
  }
  std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
  ASSIGN_OR_RETURN(const int64_t elements, CheckedNumElements(shape, dtype));
  const uint64_t bytes = static_cast<uint64_t>(elements * DTypeBytes(dtype));
  if (bytes > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, " has ", bytes, " bytes; at most ", max_bytes, " are allowed"));
  }
  ASSIGN_OR_RETURN(HostTensor tensor,
                   HostTensor::Allocate(dtype, std::move(shape)));
  return TensorAssembler(header.name(), std::move(tensor));
}

TensorAssembler::TensorAssembler(std::string name, HostTensor tensor)
    : name_(std::move(name)),
      tensor_(std::move(tensor)),
      chunks_(tensor_.data.get(),
              static_cast<uint64_t>(tensor_.num_bytes()),
              "tensor '" + name_ + "'") {}

}  // namespace dapd
