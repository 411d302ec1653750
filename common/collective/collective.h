// Collective exchanges bytes and numbers between the ranks of a trainer, or
// between the ranks of a rollout worker that share a model
// (rollout.tensor_parallel). Every rank calls the same operations in the same
// order; each call blocks until this rank's part of the operation is done.
//
//   one process           MakeSingleRank()
//   CPU, several ranks    rank_leader.h, rank_follower.h: a star over gRPC that
//                         sums in the order of the ranks, so that the same
//                         ranks always give the same bits
//   CUDA, several ranks   the same star
//
// Gradients, and the layers and sums of a model that ranks share, go through
// DeviceGroup (device_group.h) on every device: it uses this class on the CPU,
// and NCCL between CUDA devices. proto/dapd/v1/rank.proto lists what a
// trainer's ranks exchange.
//
// Why gRPC and not MPI or Gloo: the program already uses it with TLS, deadlines
// and keepalive; ranks find each other by name as all services do; and a rank
// that dies or hangs ends the call instead of the machine. Unless the base is
// split over the ranks, only LoRA gradients travel, at most a few hundred
// megabytes per step.
//
// After any of these errors the Collective cannot be used any more:
//   ABORTED     a rank is lost or hangs; RankOptions::when_lost says what then
//               becomes of the job
//   DATA_LOSS   the ranks disagree about what they do
//   CANCELLED   Cancel was called
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dapd {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces `values` by the sum over all ranks, float32, added in rank order.
  // The length must be the same on every rank.
  virtual absl::Status Sum(absl::Span<float> values) = 0;
  // Replaces `bytes` of every rank by the bytes of rank 0.
  virtual absl::Status Broadcast(std::string* bytes) = 0;
  // Returns the bytes of all ranks, by rank, at rank 0, and nothing elsewhere.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      std::string bytes) = 0;

  // Returns at rank 0 once all ranks have called it, elsewhere at once. The
  // other operations end after RankOptions::operation_timeout; in this one rank
  // 0 waits as long as the connections answer pings. It is for work that takes
  // the ranks different times, such as answers, whose tasks have deadlines of
  // their own.
  virtual absl::Status AwaitAll() = 0;

  // Returns, without waiting, whether a rank is known to be gone, so that no
  // operation can succeed. Any thread may call it. It is for callers that wait
  // for ranks in other ways: NCCL does not notice that a process has ended.
  virtual bool HasLostRank() const = 0;

  // Ends the running operation and every later one. Any thread may call it.
  virtual void Cancel() = 0;
};

// Returns whether `holds` is true on every rank. All ranks call it at the same
// place.
absl::StatusOr<bool> HoldsOnAllRanks(bool holds, Collective& ranks);

// Called with an error between the ranks, after which the result of their
// common computation is useless.
using OnRanksLost = std::function<void(const absl::Status& status)>;

// A Collective for a single rank, which exchanges nothing.
class SingleRank : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::Status Sum(absl::Span<float> values) override;
  absl::Status Broadcast(std::string* bytes) override;
  absl::StatusOr<std::vector<std::string>> Gather(std::string bytes) override;
  absl::Status AwaitAll() override { return absl::OkStatus(); }
  bool HasLostRank() const override { return false; }
  void Cancel() override {}
};
std::unique_ptr<Collective> MakeSingleRank();

// The groups of a batch that `rank` of `size` works on: [begin, end) of
// `groups`, in order, as evenly divided as possible.
struct RankSlice {
  size_t begin = 0;
  size_t end = 0;
};
RankSlice SliceOf(size_t rank, size_t size, size_t groups);

}  // namespace dapd
