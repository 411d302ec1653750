// Kernels that are wrong on purpose (faulty_kernels.cu).
#pragma once

namespace dapd::fake {

inline constexpr int kFaultyThreads = 64;

enum class Fault {
  kNone,
  kOrderByWarp,
  kOrderByWarpAcross,
  kBehindTheEnd,
  kBeforeTheBegin,
  kUnwrittenShared,
  kUnwrittenGlobal,
  kHostMemory,
  kMisaligned,
  kIndexOutsideOfAnArray,
  kTwoWriters,
  kTwoBlocks,
  kAtomicAndPlain,
  kEndsBeforeTheBarrier,
  kTwoBarriers,
  kNotInItsMask,
  kLaneThatDoesNotCome,
  kShuffleWithoutItsSource,
  kOverflow,
  kTooMuchSharedMemory,
  // Mistakes of blocks that count.
  kLastBlock,  // no mistake
  kLastBlockWithoutAFence,
  kSecondCountWithoutAFence,
  // Mistakes of clusters.
  kClusterNone,
  kClusterWithoutBarrier,
  kClusterReadAndWritten,
  kClusterBlockThatDoesNotCome,
  kClusterRankOutside,
  // Mistakes of messages between blocks.
  kMessageNone,
  kMessageNotWaitedFor,
  kMessageBeforeItsMemoryIsFree,
  kMessageOfAnotherPhase,
  kMessageThatIsNotExpected,
  kMessageToABlockThatHasEnded,
  // Mistakes of copies that a thread waits for.
  kCopyNone,
  kCopyNotWaitedFor,
  kCopyOfAnotherThread,
  kCopyMisaligned,
  kCopyAtTheEnd,
};

struct FaultyArgs {
  Fault fault = Fault::kNone;
  float* in = nullptr;               // [kFaultyThreads] ones
  float* out = nullptr;              // [kFaultyThreads]
  const float* unwritten = nullptr;  // [kFaultyThreads]
  const float* host = nullptr;
  unsigned* counter = nullptr;
};

int RunFaulty(const FaultyArgs& args, unsigned blocks);
// Runs in clusters of `cluster` blocks.
int RunFaultyClusters(const FaultyArgs& args,
                      unsigned blocks,
                      unsigned cluster);

}  // namespace dapd::fake
