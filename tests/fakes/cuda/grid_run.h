// One launch on the host. Its clusters, each of one block unless the launch
// says more, run one after another, in random order. The threads of a cluster
// are fibers; whenever one of them waits, a random one continues. If no thread
// of a cluster can continue while some still wait, not all threads reach a
// barrier or a shuffle: a GPU would hang, or give undefined results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/cuda/checked_memory.h"
#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/device.h"
#include "tests/fakes/cuda/fiber.h"

namespace dapd::fake {

// Returns "FILE:LINE".
std::string ToString(Site site);

struct KernelCall {
  const char* kernel;
  LaunchShape shape;
  void (*call)(const void*);
  const void* arguments;
};

// The values that a lane brings to a meeting of its warp.
struct LaneMeeting {
  WarpOperation operation = WarpOperation::kSync;
  unsigned mask = 0;
  uint64_t bits = 0;
  int source = 0;
  Site site;
};

class GridRun {
 public:
  // Returns whether the shape is within the limits of every GPU and not empty.
  static bool IsValid(const LaunchShape& shape);

  // `call` and `global` must outlive it.
  GridRun(const KernelCall& call, CheckedMemory& global, uint32_t seed);

  // Returns an empty string, or the first error, at which the launch has ended.
  std::string Run();

  // Returns the traffic of the device's memory.
  const Traffic& traffic() const { return traffic_; }

  // The running thread calls the following functions.
  bool IsInThread() const { return current_ != nullptr; }
  dim3 thread_index() const { return current_->index; }
  dim3 block_index() const { return current_->block->index; }
  dim3 block_size() const { return call_.shape.block; }
  dim3 grid_size() const { return call_.shape.grid; }
  unsigned cluster_rank() const;
  unsigned cluster_size() const { return call_.shape.cluster; }
  int lane() const { return current_->number % kWarpSize; }
  void Touch(const void* address, size_t bytes, Access access);
  void Fence();
  // Runs an atomicInc at `place`.
  void CountBlock(const void* place);
  int MeetBlock(bool predicate, Site site);
  uint64_t MeetLanes(const LaneMeeting& meeting);
  void* SharedMemory(const char* name,
                     const void* declaration,
                     size_t bytes,
                     size_t alignment);
  void* DynamicSharedMemory(size_t alignment);
  void* MapShared(const void* address, unsigned rank);
  void ArriveAtCluster(Site site);
  void WaitForCluster(Site site);
  void InitCount(void* count);
  void ExpectBytes(void* count, int bytes);
  void SendBytes(
      int rank, void* to, const void* from, size_t bytes, void* count);
  void WaitForBytes(void* count, int parity);
  void WaitForLaunchBefore() { current_->has_waited = true; }
  void LetNextLaunchBegin();
  void CopyLater(void* to, const void* from, size_t bytes, Site site);
  void CommitCopies();
  void WaitForCopies(size_t but_for);
  [[noreturn]] void Fail(const std::string& reason);

 private:
  enum class State {
    kReady,
    kAtBarrier,
    kAtLanes,
    kAtCluster,
    kAtBytes,
    kEnded
  };
  struct SharedVariable {
    std::string name;
    void* memory;
    size_t bytes;
    size_t alignment;
  };
  struct Block {
    dim3 index;
    uint32_t number = 0;  // in the launch
    uint32_t epoch = 0;
    size_t shared_bytes = 0;
    std::vector<uint16_t> warp_phases;
    uint32_t fenced = 0;  // the epoch of its last fence
    // The pasts that were published where it counted last. A fence copies them
    // to `before`, the pasts that it may rely on.
    std::vector<BlockPast> behind;
    std::vector<BlockPast> before;
    std::vector<BlockPast> learned;  // `before` from its next barrier on
    std::map<const void*, SharedVariable> variables;  // by declaration
  };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    size_t batch;
  };
  struct Message {
    void* to;
    void* count;
    std::vector<std::byte> bytes;
    std::vector<BlockPast> before;
  };
  struct Arrived {
    void* to;
    size_t bytes;
  };
  // Counts the bytes that messages bring.
  struct Count {
    Block* block;
    int64_t missing = 0;  // below 0: some arrived before they were expected
    bool is_expected = false;
    int phase = 0;
    std::vector<Arrived> under_way;  // of this phase
    std::vector<Arrived> there;      // of earlier phases, not waited for yet
    std::vector<BlockPast> before;
  };
  struct Thread {
    GridRun* grid = nullptr;
    Block* block = nullptr;
    size_t place = 0;  // in the cluster
    int number = 0;    // in the block
    dim3 index;
    Fiber* fiber = nullptr;
    State state = State::kReady;
    bool predicate = false;
    bool has_arrived = false;     // at the cluster's barrier
    bool has_waited = false;      // for the launch before it
    Site site;                    // of the barrier
    const void* count = nullptr;  // whose bytes it waits for
    LaneMeeting meeting;          // with its warp
    uint64_t result = 0;
    std::vector<Copy> copies;  // under way, in order
    size_t batch = 0;          // of copies that is not committed yet
  };

  static void RunThread(void* thread);
  // Runs the blocks of a cluster, from the launch's block `first` on.
  void RunCluster(uint64_t first);
  void RunReadyThreads();
  // Does what Touch does, without counting the traffic.
  void CheckTouch(const void* address, size_t bytes, Access access);
  // Lets the threads continue that all stand at one barrier, of a block or of
  // the cluster. Returns false if the cluster is done or stuck.
  bool PassBarriers();
  bool PassBlockBarrier(size_t block);
  bool PassClusterBarrier();
  Count& CountAt(const void* count);
  void DeliverMessage();  // delivers a random message
  void EndPhaseIfOver(const void* place, Count& count);
  static void TakeLearned(Block& block);
  uint32_t TakeEpoch(const Block& block);
  std::vector<Thread>::iterator ThreadsOf(size_t block);
  SharedVariable& VariableOf(Block& block,
                             const void* declaration,
                             const SharedVariable& made_as);
  // Lets the lanes of a meeting continue if all of them are there.
  void FinishMeeting(const LaneMeeting& meeting);
  void Wait(State state);
  std::string WhyStuck() const;
  std::string Describe(const Thread& thread) const;
  std::string Named(const std::string& reason, const Thread* thread) const;

  const KernelCall call_;
  CheckedMemory& global_;
  CheckedMemory& shared_;
  std::mt19937 random_;
  size_t block_threads_;
  std::vector<Thread> threads_;  // of the cluster, block after block
  std::vector<int> ready_;
  std::vector<Block> blocks_;               // of the cluster
  std::vector<uint32_t> blocks_of_epochs_;  // from the launch's first on
  std::vector<Message> messages_;           // of the cluster, not delivered yet
  std::map<const void*, Count> counts_;
  Traffic traffic_;
  Toucher toucher_;
  // By place: the pasts of the blocks that have fenced and counted there.
  std::map<const void*, std::vector<BlockPast>> published_;
  Thread* current_ = nullptr;
  std::string failure_;
};

}  // namespace dapd::fake
