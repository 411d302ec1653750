// One launch on the host. Its blocks run one after another, in random order;
// the threads of a block are fibers, and which of them goes on next is drawn
// anew whenever one waits. A block that comes to rest while some of its threads
// still wait has a barrier or a shuffle that not all reach: on a GPU it hangs,
// or gives what nobody promised.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/cuda/checked_memory.h"
#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/fiber.h"

namespace dapd::fake {

struct KernelCall {
  const char* kernel;
  dim3 grid;
  dim3 block;
  void (*call)(const void*);
  const void* arguments;
};

// What a lane brings to a meeting of its warp.
struct LaneMeeting {
  WarpOperation operation = WarpOperation::kSync;
  unsigned mask = 0;
  uint64_t bits = 0;
  int source = 0;
  Site site;
};

class GridRun {
 public:
  // Within what every GPU takes, and not empty.
  static bool IsValid(dim3 grid, dim3 block);

  // `call` and `global` have to outlive it.
  GridRun(const KernelCall& call, CheckedMemory& global, uint32_t seed);

  // Empty, or the first thing that went wrong: the launch has ended there.
  std::string Run();

  // What follows is for the thread that runs.
  bool IsInThread() const { return current_ != nullptr; }
  dim3 thread_index() const { return current_->index; }
  dim3 block_index() const { return block_index_; }
  dim3 block_size() const { return call_.block; }
  dim3 grid_size() const { return call_.grid; }
  int lane() const { return current_->number % kWarpSize; }
  void Touch(const void* address, size_t bytes, Access access);
  void Fence();
  // An atomicInc at `place`.
  void CountBlock(const void* place);
  int MeetBlock(bool predicate, Site site);
  uint64_t MeetLanes(const LaneMeeting& meeting);
  void* SharedMemory(const char* name,
                     const void* declaration,
                     size_t bytes,
                     size_t alignment);
  [[noreturn]] void Fail(const std::string& reason);

 private:
  enum class State { kReady, kAtBarrier, kAtLanes, kEnded };
  struct Thread {
    GridRun* grid = nullptr;
    int number = 0;  // in the block
    dim3 index;
    Fiber* fiber = nullptr;
    State state = State::kReady;
    bool predicate = false;
    Site site;            // of the barrier
    LaneMeeting meeting;  // with its warp
    uint64_t result = 0;
  };

  static void RunThread(void* thread);
  void RunBlock();
  void RunReadyThreads();
  // Lets a block go on all of whose threads stand at one barrier; false: it is
  // done or stuck.
  bool PassBarrier();
  // Lets the lanes go on that meet, if all of them are there.
  void FinishMeeting(const LaneMeeting& meeting);
  void Wait(State state);
  std::string WhyStuck() const;
  std::string Describe(const Thread& thread) const;
  std::string Named(const std::string& reason, const Thread* thread) const;

  const KernelCall call_;
  CheckedMemory& global_;
  CheckedMemory& shared_;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  std::vector<int> ready_;
  std::vector<uint16_t> warp_phases_;
  std::map<const void*, void*> shared_variables_;  // by declaration
  dim3 block_index_;
  Toucher toucher_;
  // What blocks that had fenced did before they counted, by place; what this
  // block has counted behind, and of that what it may look at.
  std::map<const void*, std::vector<EpochRange>> published_;
  std::vector<EpochRange> behind_;
  std::vector<EpochRange> before_;
  bool has_fenced_ = false;  // the block
  Thread* current_ = nullptr;
  std::string failure_;
};

}  // namespace dapd::fake
