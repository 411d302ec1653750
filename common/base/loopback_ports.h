// TCP ports for the processes of one machine.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// Hands out ports of 127.0.0.1 that nothing listens on when they are handed
// out, each of them once on the whole machine while this object lives: a port
// that another one has handed out is taken, though nobody listens on it yet.
// Those that nobody asked for lie in 20000 to 29999, below the range from which
// Linux by default gives ports to outgoing connections: there, a client that
// dials a worker before it listens can be given the worker's own port and
// connect to itself, and the worker then finds its port in use. Not
// thread-safe.
class LoopbackPorts {
 public:
  // Starts at a place that the process id decides, so that two runs that start
  // together seldom meet.
  LoopbackPorts();
  ~LoopbackPorts();
  LoopbackPorts(const LoopbackPorts&) = delete;
  LoopbackPorts& operator=(const LoopbackPorts&) = delete;

  // `preferred` if it is a port, free and not handed out yet (0: no
  // preference), else the next such port. UNAVAILABLE if there is none.
  absl::StatusOr<int> Take(int preferred);

 private:
  bool TakeIfFree(int port);

  int next_;
  std::vector<int> claims_;  // descriptors, one per port handed out
};

}  // namespace dapd
