// LoadAdapter, the method that both kinds of workers have, from the stream of
// its messages to its answer.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

#include "common/rpc/transfer/adapter_stream.h"

namespace dapd {

// Makes a worker serve an upload. `cancelled` is true once its sender waits no
// longer.
using LoadUpload = std::function<absl::StatusOr<LoadResult>(
    AdapterUpload upload, const std::function<bool()>& cancelled)>;

// Reads the whole upload, loads it and fills in the response. Errors as
// AdapterReceiver and `load` have them.
grpc::Status TakeAdapterUpload(const WorkerDescription& description,
                               grpc::ServerContext* context,
                               grpc::ServerReader<grpc::ByteBuffer>* reader,
                               const LoadUpload& load,
                               v1::LoadAdapterResponse* response);

}  // namespace dapd
