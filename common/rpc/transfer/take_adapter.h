// LoadAdapter, the method that both kinds of workers have, from the stream of
// its messages to its answer.
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

// Makes a worker serve an upload. `cancelled` is true once its sender waits no
// longer. NOT_FOUND for one that should be served already and is not
// (IsServedAlready).
using LoadUpload = std::function<absl::StatusOr<LoadResult>(
    AdapterUpload upload, const std::function<bool()>& cancelled)>;

// Thread-safe.
class AdapterTaker {
 public:
  // `served`, which must outlive it, is what `load` changes.
  AdapterTaker(WorkerDescription description,
               const ServedWeights& served,
               LoadUpload load);

  // Reads the upload, loads it and fills in the response; of several with the
  // same key one is read, and the others have what it brought probed. Errors as
  // AdapterReceiver and `load` have them.
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
