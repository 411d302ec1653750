#include "common/rpc/server/worker_program.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

// Ranks share all workers, and each rank keeps its streams open.
TEST(WorkerProgramTest, AWorkerTakesTheCallsOfEveryTrainerRank) {
  Config config;
  const int of_one = MaxCalls(config);
  config.trainer.ranks = 256;
  EXPECT_GE(MaxCalls(config), of_one + 255);
  config.teacher.connections = 4;
  EXPECT_GE(MaxCalls(config), 256 * 5);
}

}  // namespace
}  // namespace dapd
