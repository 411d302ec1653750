// What the host that simulates a CUDA device (cuda_on_host.cc) was asked to do.
#pragma once

#include <cstdint>
#include <functional>

namespace dapd {

struct CudaHostWork {
  int64_t launches = 0;        // of kernels and products, outside of graphs
  int64_t graph_launches = 0;  // of whole steps
  int64_t captures = 0;
  int64_t graph_nodes = 0;  // of the graph captured last
  int64_t copies = 0;
  int64_t waits = 0;             // of the host, for streams and events
  int64_t library_products = 0;  // that were asked of cuBLASLt
  // For which the last attention was launched, and rows of that step.
  int64_t attended_tokens = 0;
  int64_t attended_rows = 0;
};

// Each thread has a device of its own.
CudaHostWork& WorkOfCudaHost();

// Runs a call as a launch of the calling thread's device: now, or each time
// that the graph is launched which is captured now.
void LaunchOnCudaHost(std::function<void()> call);

// Whether the calling thread's device waits in a kernel for what never comes.
// Nothing behind that is done, and no event behind it is reached; a wait that
// has no end of its own ends the process with a line.
bool& CudaHostIsStuck();

// Graphs of the calling thread that were instantiated and not destroyed.
int64_t& GraphsOfCudaHost();

// So many of the calling thread's next graphs find no memory when they are
// instantiated.
int64_t& GraphsWithoutMemory();
// So many find none when the device is given its part.
int64_t& GraphUploadsWithoutMemory();

// So many of the calling thread's next launches of a graph are taken, and then
// one is not, for want of memory. Negative: all are.
int64_t& LaunchesBeforeNoMemory();

// So many of the next streams find no memory.
int64_t& StreamsWithoutMemory();

}  // namespace dapd
