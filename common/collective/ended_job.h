// What rank 0 of several leaves at the rendezvous while it stays behind the end
// of its run (trainer.when_done: serve).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

class RpcCredentials;

// Until its destruction each rank that joins is told that the run is over: one
// whose machine or pod was started again since (JoinRankLeader).
class EndedJob {
 public:
  // Errors as RpcServer::Start.
  static absl::StatusOr<std::unique_ptr<EndedJob>> Serve(
      const std::string& rendezvous,
      std::shared_ptr<const RpcCredentials> credentials);
  virtual ~EndedJob() = default;
};

}  // namespace dapd
