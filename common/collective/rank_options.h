// RankOptions: how a rank joins the others of its job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace dapd {

class RpcCredentials;

struct RankOptions {
  int rank = 0;
  int world_size = 1;
  // host:port at which rank 0 listens and the other ranks find it.
  std::string rendezvous;
  // Null permits loopback addresses only.
  std::shared_ptr<const RpcCredentials> credentials;
  // Must be the same on all ranks. A trainer's identity contains the SHA-256 of
  // everything that the result depends on; a rollout worker's identity is a
  // secret.
  std::string identity;
  // Must be the same on all ranks, too, because their results have to agree bit
  // by bit: RankDevice (common/gpus/rank_device.h), empty on a CPU.
  std::string device = {};
  // A rank waits this long for the others at the start.
  absl::Duration join_timeout = absl::Minutes(5);
  // Called while the rank waits: if it returns true, the wait ends with
  // CANCELLED. May be empty.
  std::function<bool()> gives_up = {};
  // Rank 0 waits this long for the others inside one operation. The others wait
  // for rank 0 as long as its connection answers pings, because rank 0 may be
  // evaluating or waiting for a disk.
  absl::Duration operation_timeout = absl::Minutes(10);
  // For messages: the name of a rank, and what happens to the job after it has
  // lost a rank.
  std::string called = "trainer rank";
  std::string when_lost =
      "the job resumes from its newest checkpoint once every rank is started "
      "again";
};

}  // namespace dapd
