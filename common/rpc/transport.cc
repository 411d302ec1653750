#include "common/rpc/transport.h"

#include "grpc/compression.h"
#include "grpc/impl/codegen/grpc_types.h"

namespace dapd {

void SetTransportArguments(
    const std::function<void(const char* name, int value)>& set) {
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  set(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, kWriteBufferBytes);
  // Weights and activations do not compress, and a message that is not
  // compressed cannot grow when it is unpacked.
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
      1 << GRPC_COMPRESS_NONE);
}

}  // namespace dapd
