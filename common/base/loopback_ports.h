// TCP ports for the processes of one machine.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// Hands out ports of 127.0.0.1 on which nothing listens at that time. While
// this object lives, no other such object on the machine hands out the same
// port, although nothing may listen on it yet. Ports without a preference lie
// in 20000 to 29999, below the range that Linux by default gives to outgoing
// connections: a client that dials a worker before the worker listens could
// otherwise be given the worker's own port and connect to itself, and the
// worker would then find its port in use. Not thread-safe.
class LoopbackPorts {
 public:
  // Starts at a number that depends on the process id, so that two runs that
  // start at the same time seldom collide.
  LoopbackPorts();
  ~LoopbackPorts();
  LoopbackPorts(const LoopbackPorts&) = delete;
  LoopbackPorts& operator=(const LoopbackPorts&) = delete;

  // Returns `preferred` if it is free and was not handed out (0: no
  // preference), otherwise the next such port. Returns UNAVAILABLE if there is
  // none.
  absl::StatusOr<int> Take(int preferred);

 private:
  bool TakeIfFree(int port);

  int next_;
  std::vector<int> claims_;  // descriptors, one per port handed out
};

}  // namespace dapd
