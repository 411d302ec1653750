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
  // host:port at which rank 0 listens and the others find it.
  std::string rendezvous;
  // None: loopback only.
  std::shared_ptr<const RpcCredentials> credentials;
  // What all ranks must have alike, in one word: a trainer's has the SHA-256 of
  // what the result depends on, a rollout worker's a secret.
  std::string identity;
  // How long a rank waits at the start for the others.
  absl::Duration join_timeout = absl::Minutes(5);
  // Asked while it waits: true ends that with CANCELLED. May be empty.
  std::function<bool()> gives_up = {};
  // How long rank 0 waits for the others inside one operation. The others wait
  // for rank 0 as long as its connection answers pings: it may be evaluating,
  // or waiting for a disk.
  absl::Duration operation_timeout = absl::Minutes(10);
  // For messages: what a rank is called, and what becomes of the job without
  // one.
  std::string called = "trainer rank";
  std::string when_lost =
      "the job resumes from its newest checkpoint once every rank is started "
      "again";
};

}  // namespace dapd
