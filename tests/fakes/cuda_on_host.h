// Counts what the host that simulates a CUDA device (cuda_on_host.cc) was asked
// to do.
#pragma once

#include <cstdint>
#include <functional>

namespace dapd {

struct CudaHostWork {
  int64_t launches = 0;        // kernels and products outside of graphs
  int64_t graph_launches = 0;  // whole steps
  int64_t captures = 0;
  int64_t graph_nodes = 0;  // nodes of the graph that was captured last
  int64_t copies = 0;
  int64_t waits = 0;             // waits of the host for streams and events
  int64_t library_products = 0;  // products that cuBLASLt was asked for
  int64_t bulk_products = 0;     // products that bulk_product.h was asked for
  // Tokens for which the last attention was launched, and rows of that step.
  int64_t attended_tokens = 0;
  int64_t attended_rows = 0;
};

// Each thread has its own device.
CudaHostWork& WorkOfCudaHost();

// Runs a call as a launch of the calling thread's device: at once, or, while a
// graph is being captured, each time that this graph is launched.
void LaunchOnCudaHost(std::function<void()> call);

// Returns whether a graph of the calling thread's device is being captured.
bool CudaHostIsCapturing();

// Returns whether a kernel of the calling thread's device waits for something
// that never comes. Work behind it is not done, and events behind it are not
// reached; a wait without a time limit ends the process with a message.
bool& CudaHostIsStuck();

// Returns the number of graphs of the calling thread that were instantiated and
// not destroyed.
int64_t& GraphsOfCudaHost();

// This many of the calling thread's next graphs find no memory when they are
// instantiated.
int64_t& GraphsWithoutMemory();
// This many graphs find no memory when they are uploaded to the device.
int64_t& GraphUploadsWithoutMemory();

// This many of the calling thread's next graph launches succeed, and the
// following one fails for lack of memory. If negative, all succeed.
int64_t& LaunchesBeforeNoMemory();

// This many of the calling thread's next requests for page-locked memory
// succeed, and the following ones fail. If negative, all succeed.
int64_t& PagesOfHostMemory();

// This many of the calling thread's next embeddings, each of which begins a
// step, find no memory to load their kernel.
int64_t& EmbeddingsWithoutMemory();

// This many of the next streams find no memory.
int64_t& StreamsWithoutMemory();

}  // namespace dapd
