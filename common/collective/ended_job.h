// EndedJob answers at the rendezvous of rank 0 while rank 0 stays after the end
// of its run (trainer.when_done: serve).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

class RpcCredentials;

// Until it is destroyed, it tells each rank that joins that the run is over.
// Such a rank's machine or pod was restarted after the end (JoinRankLeader).
class EndedJob {
 public:
  // Returns the errors of RpcServer::Start.
  static absl::StatusOr<std::unique_ptr<EndedJob>> Serve(
      const std::string& rendezvous,
      std::shared_ptr<const RpcCredentials> credentials);
  virtual ~EndedJob() = default;
};

}  // namespace dapd
