#include "common/collective/ended_job.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/rpc_credentials.h"
#include "common/rpc/server/server.h"
#include "dapd/v1/rank.grpc.pb.h"

namespace dapd {
namespace {

class ServedEnd final : public EndedJob, public v1::RankService::Service {
 public:
  absl::Status Start(RpcServerOptions options) {
    ASSIGN_OR_RETURN(
        server_,
        RpcServer::Start(options,
                         {{this, v1::RankService::service_full_name()}}));
    server_->SetServing(true);
    return absl::OkStatus();
  }

  grpc::Status Join(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::RankMessage, v1::RankMessage>* /*stream*/)
      override {
    return {grpc::StatusCode::OUT_OF_RANGE, "the run is over"};
  }

 private:
  std::unique_ptr<RpcServer> server_;  // ends before the service
};

}  // namespace

absl::StatusOr<std::unique_ptr<EndedJob>> EndedJob::Serve(
    const std::string& rendezvous,
    std::shared_ptr<const RpcCredentials> credentials) {
  auto job = std::make_unique<ServedEnd>();
  RETURN_IF_ERROR(job->Start(
      {.listen = rendezvous, .credentials = std::move(credentials)}));
  return job;
}

}  // namespace dapd
