#include "common/rpc/transfer/take_adapter.h"

#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/status_conversion.h"

namespace dapd {

AdapterTaker::AdapterTaker(WorkerDescription description,
                           const ServedWeights& served,
                           LoadUpload load)
    : description_(std::move(description)),
      served_(served),
      load_(std::move(load)) {}

grpc::Status AdapterTaker::Take(grpc::ServerContext* context,
                                grpc::ServerReader<grpc::ByteBuffer>* reader,
                                v1::LoadAdapterResponse* response) {
  const absl::StatusOr<LoadResult> loaded = ReadAndLoad(
      [reader](grpc::ByteBuffer* message) { return reader->Read(message); },
      [context] { return context->IsCancelled(); });
  if (!loaded.ok()) return ToGrpcStatus(loaded.status());
  *response = MakeLoadAdapterResponse(*loaded);
  return grpc::Status::OK;
}

absl::StatusOr<LoadResult> AdapterTaker::ReadAndLoad(
    const std::function<bool(grpc::ByteBuffer*)>& read,
    const std::function<bool()>& cancelled) {
  AdapterReceiver receiver(LimitsOf(description_));
  grpc::ByteBuffer message;
  if (read(&message)) RETURN_IF_ERROR(receiver.Add(message));
  std::optional<UploadTurns::Turn> turn;
  if (!receiver.key().empty()) {
    ASSIGN_OR_RETURN(auto taken,
                     turns_.Take(receiver.set(), receiver.key(), cancelled));
    turn.emplace(std::move(taken));
    if (served_.Of(receiver.set()).key == receiver.key()) {
      auto probed = load_(receiver.AsServed(), cancelled);
      // Other weights are served by now, so this upload has to be read.
      if (!absl::IsNotFound(probed.status())) return probed;
    }
  }
  ASSIGN_OR_RETURN(AdapterUpload upload,
                   ReceiveAdapter(receiver, [&](grpc::ByteBuffer* next) {
                     const bool came = read(next);
                     if (came && turn.has_value()) turn->Advance();
                     return came;
                   }));
  if (turn.has_value()) turn->Complete();
  return load_(std::move(upload), cancelled);
}

}  // namespace dapd
