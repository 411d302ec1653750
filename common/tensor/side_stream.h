// SideStream runs work of a device beside the stream that computes, and orders
// the two. On the CPU there is no such stream (MakeSideStream).
//
//   const auto ready = side.Mark();     marks the work so far
//   const auto scope = side.Enter();    this thread's work goes to the side
//   ready->HoldStream();                and begins behind `ready`
//   side.Copy(tensor, buffer);
//   const auto copied = side.Mark();    ... copied->Wait() before reading
//
// It is an interface so that a test can simulate the device on the host and
// count (tests/fakes/simulated_stream.h).
#pragma once

#include <cstdint>
#include <memory>

#include "common/tensor/aten.h"

namespace dapd {

// Represents a point in the order of a stream's work.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  // Later work of the calling thread's stream begins after the point is
  // reached. Does not block.
  virtual void HoldStream() = 0;
  // Blocks the calling thread until the point is reached.
  virtual void Wait() = 0;
};

// The object has one stream for its life: LibTorch's allocator reuses a block
// only on the stream on which it was allocated. Thread-safe.
class SideStream {
 public:
  virtual ~SideStream() = default;

  // Until the result is destroyed, the calling thread's work runs on the side
  // stream, and its memory belongs to it.
  [[nodiscard]] virtual std::shared_ptr<void> Enter() = 0;
  // Returns a point behind all work that the calling thread's stream has been
  // given.
  virtual std::unique_ptr<StreamPoint> Mark() = 0;

  // Returns uint8 [bytes] of page-locked host memory, from which the device
  // copies without the processor's help. Released buffers are kept for the next
  // request of the same size.
  virtual at::Tensor HostBuffer(int64_t bytes) = 0;
  // Starts a copy between tensors of one dtype and size on the calling thread's
  // stream. Both tensors must stay unchanged until a point behind the copy is
  // reached.
  virtual void Copy(const at::Tensor& from, const at::Tensor& to) = 0;
};

// Returns the side stream of a CUDA device; null on the CPU.
std::unique_ptr<SideStream> MakeSideStream(at::Device device);

}  // namespace dapd
