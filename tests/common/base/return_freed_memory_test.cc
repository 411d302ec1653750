#include "common/base/return_freed_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr size_t kBlock = 64 * 1024;  // small enough for the heap
constexpr int64_t kBlocks = 1024;

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(ReturnFreedMemoryTest, TheSystemGetsWhatWasFreedBelowWhatIsKept) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have an allocator of their own";
#endif
  std::vector<std::unique_ptr<char[]>> blocks(kBlocks);
  for (auto& block : blocks) {
    block.reset(new char[kBlock]);
    std::memset(block.get(), 1, kBlock);
  }
  const auto kept = std::make_unique<char[]>(kBlock);
  blocks.clear();
  const int64_t before = ResidentBytes();
  ReturnFreedMemory();
  EXPECT_LT(ResidentBytes(), before - kBlocks * int64_t{kBlock} / 2);
}

}  // namespace
}  // namespace dapd
