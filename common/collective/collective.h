// Collective: what the ranks of a trainer tell each other, or those of a
// rollout worker that share a model (rollout.tensor_parallel). Every rank calls
// the same operations in the same order; each blocks until this rank's part of
// it is done.
//
//   one process           MakeSingleRank()
//   CPU, several ranks    rank_leader.h, rank_follower.h: a star over gRPC,
//                         sums in the order of the ranks, so that the same
//                         ranks always give the same bits
//   CUDA, several ranks   the same star for all but gradients and layers, which
//                         NCCL takes from device to device: device_group.h
//
// Why gRPC and not MPI or Gloo: it is here already with its TLS, deadlines and
// keepalive, ranks find each other by name as everything else does, and a rank
// that dies or hangs ends the call instead of the machine. Unless the base is
// split over the ranks, only LoRA gradients travel, a few hundred megabytes a
// step at most.
//
// Errors, after which nothing more can be done with it:
//   ABORTED     a rank is lost or hangs; what becomes of the job then:
//               RankOptions::when_lost
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

  // `values` becomes the sum over all ranks, float32, added in rank order. Same
  // length everywhere.
  virtual absl::Status Sum(absl::Span<float> values) = 0;
  // `bytes` of rank 0 becomes everybody's.
  virtual absl::Status Broadcast(std::string* bytes) = 0;
  // At rank 0 the bytes of all ranks, by rank; elsewhere nothing.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      std::string bytes) = 0;

  // Returns at rank 0 once all ranks have called it, elsewhere at once. Unlike
  // within the others, which have an end (RankOptions::operation_timeout), rank
  // 0 waits as long as the connections answer pings: for what takes ranks
  // different times, such as answers, whose tasks end by deadlines of their
  // own.
  virtual absl::Status AwaitAll() = 0;

  // From any thread, without a wait: whether a rank is known to be gone, so
  // that no operation can succeed. For who waits for ranks in other ways: NCCL
  // does not know of a process that has ended.
  virtual bool HasLostRank() const = 0;

  // From any thread: ends the running operation and every later one.
  virtual void Cancel() = 0;
};

// Told of an error between the ranks, after which whatever they compute
// together is of no use.
using OnRanksLost = std::function<void(const absl::Status& status)>;

// The only rank: nothing to exchange.
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
// `groups`, in order, as even as can be.
struct RankSlice {
  size_t begin = 0;
  size_t end = 0;
};
RankSlice SliceOf(size_t rank, size_t size, size_t groups);

}  // namespace dapd
