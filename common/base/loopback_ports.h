// TCP ports for the processes of one machine.
#pragma once

#include "absl/status/statusor.h"

namespace dapd {

// Hands out ports of 127.0.0.1 that nothing listens on, each once. They lie
// below the range that the kernel gives to outgoing connections: there, a
// client that dials a worker before it listens can be given the worker's own
// port and connect to itself, and the worker then finds its port in use.
// Not thread-safe.
class LoopbackPorts {
 public:
  // Starts at a place that the process id decides, so that two runs that start
  // together do not meet.
  LoopbackPorts();

  // `preferred` if it is free (0: none is), else the next free one.
  // UNAVAILABLE if there is none.
  absl::StatusOr<int> Take(int preferred);

 private:
  int next_;
};

}  // namespace dapd
