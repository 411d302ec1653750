// SideStream: a device's work beside the stream that computes, and the order
// between the two. On the CPU there is none: what is asked for is done when the
// call returns.
//
//   const auto ready = side.Mark();         behind what was computed so far
//   const auto scope = side.Enter();        this thread's work goes aside
//   ready->HoldStream();                    which begins behind `ready`
//   side.Copy(tensor, buffer);
//   const auto copied = side.Mark();        ... copied->Wait() before reading
//
// An interface, so that a test simulates the device on the host and counts
// (tests/fakes/simulated_stream.h).
#pragma once

#include <cstdint>
#include <memory>

#include "common/tensor/aten.h"

namespace dapd {

// A place in the order of a stream's work.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  // What the calling thread's stream is given from now on begins once the point
  // is reached. Does not block.
  virtual void HoldStream() = 0;
  // Blocks the calling thread until the point is reached.
  virtual void Wait() = 0;
};

// One stream for the object's life: LibTorch's allocator uses a block again on
// the stream that it was taken on, and on no other. Thread-safe.
class SideStream {
 public:
  virtual ~SideStream() = default;

  // Until the result is gone, the calling thread's work and the memory that it
  // takes are the side stream's.
  [[nodiscard]] virtual std::shared_ptr<void> Enter() = 0;
  // Behind all work that the calling thread's stream was given so far.
  virtual std::unique_ptr<StreamPoint> Mark() = 0;

  // uint8 [bytes] of page-locked host memory, of which copies need no help of
  // the processor. What is let go is kept for the next one of its size.
  virtual at::Tensor HostBuffer(int64_t bytes) = 0;
  // Starts a copy between tensors of one dtype and size on the calling thread's
  // stream. Both must stay as they are until a point behind it is reached.
  virtual void Copy(const at::Tensor& from, const at::Tensor& to) = 0;
};

// Of a CUDA device; null on the CPU.
std::unique_ptr<SideStream> MakeSideStream(at::Device device);

}  // namespace dapd
