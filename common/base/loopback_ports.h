// TCP ports for the processes of one machine.
#pragma once

#include <set>

#include "absl/status/statusor.h"

namespace dapd {

// Hands out ports of 127.0.0.1 that nothing listens on when they are handed
// out, each of them once. Those that nobody asked for lie in 20000 to 29999,
// below the range from which Linux by default gives ports to outgoing
// connections: there, a client that dials a worker before it listens can be
// given the worker's own port and connect to itself, and the worker then finds
// its port in use. Not thread-safe.
class LoopbackPorts {
 public:
  // Starts at a place that the process id decides, so that two runs that start
  // together do not meet.
  LoopbackPorts();

  // `preferred` if it is free and not handed out yet (0: no preference), else
  // the next such port. UNAVAILABLE if there is none.
  absl::StatusOr<int> Take(int preferred);

 private:
  bool TakeIfFree(int port);

  int next_;
  std::set<int> taken_;
};

}  // namespace dapd
