#include "common/rpc/transfer/take_adapter.h"

#include <utility>

#include "common/rpc/status_conversion.h"

namespace dapd {

grpc::Status TakeAdapterUpload(const WorkerDescription& description,
                               grpc::ServerContext* context,
                               grpc::ServerReader<grpc::ByteBuffer>* reader,
                               const LoadUpload& load,
                               v1::LoadAdapterResponse* response) {
  absl::StatusOr<AdapterUpload> upload = ReceiveAdapter(
      description,
      [&](grpc::ByteBuffer* message) { return reader->Read(message); });
  if (!upload.ok()) return ToGrpcStatus(upload.status());
  const auto loaded =
      load(*std::move(upload), [context] { return context->IsCancelled(); });
  if (!loaded.ok()) return ToGrpcStatus(loaded.status());
  *response = MakeLoadAdapterResponse(*loaded);
  return grpc::Status::OK;
}

}  // namespace dapd
