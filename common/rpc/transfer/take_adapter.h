// LoadAdapter, a method of both kinds of workers: from the stream of its
// messages to its answer.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"

#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/served_weights.h"
#include "common/rpc/transfer/upload_turns.h"

namespace dapd {

// Makes a worker serve an upload. `cancelled` is true once the sender no longer
// waits. Returns NOT_FOUND for an upload that should be served already and is
// not (IsServedAlready).
using LoadUpload = std::function<absl::StatusOr<LoadResult>(
    AdapterUpload upload, const std::function<bool()>& cancelled)>;

// Thread-safe.
class AdapterTaker {
 public:
  // `load` changes `served`, which must outlive this.
  AdapterTaker(WorkerDescription description,
               const ServedWeights& served,
               LoadUpload load);

  // Reads the upload, loads it and fills in the response. Of several uploads
  // with the same key one is read; for the others its content is only probed.
  // Returns the errors of AdapterReceiver and of `load`.
  grpc::Status Take(grpc::ServerContext* context,
                    grpc::ServerReader<grpc::ByteBuffer>* reader,
                    v1::LoadAdapterResponse* response);

 private:
  absl::StatusOr<LoadResult> ReadAndLoad(
      const std::function<bool(grpc::ByteBuffer*)>& read,
      const std::function<bool()>& cancelled);

  const WorkerDescription description_;
  const ServedWeights& served_;
  const LoadUpload load_;
  UploadTurns turns_;
};

}  // namespace dapd
