#include "services/cli/run_room.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using testing::HasSubstr;

constexpr int64_t kAdapterBytes = 4 * (64 + 64) * 2 * 3;

class RunRoomTest : public testing::Test {
 protected:
  RunRoomTest() {
    config_.run.output_dir = TempPath("runs");
    config_.run.name = "mine";
    config_.lora.rank = 2;
    config_.lora.targets = {"q_proj"};
    config_.trainer.steps = 100;
    config_.checkpoint.interval = 10;
    config_.checkpoint.keep = 2;
    model_.num_layers = 3;
    model_.hidden_size = 64;
    model_.num_heads = 4;
    model_.head_dim = 16;
  }
  int64_t Bytes() const { return RoomOfRun(config_, model_).bytes; }

  Config config_;
  ModelConfig model_;
};

TEST_F(RunRoomTest, CheckpointsThatStayAndOneThatIsWrittenCount) {
  EXPECT_EQ(Bytes(), kAdapterBytes * (3 * 4 + 2));
  config_.checkpoint.keep = 0;
  EXPECT_EQ(Bytes(), kAdapterBytes * (12 * 4 + 2)) << "all of them";
  config_.checkpoint.keep = 100;
  EXPECT_EQ(Bytes(), kAdapterBytes * (12 * 4 + 2)) << "no more than there are";
}

TEST_F(RunRoomTest, ARunThatIsThereNeedsRoomForTheNextOne) {
  const std::string folder = config_.run.output_dir + "/mine";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/config.yaml", "").ok());
  EXPECT_EQ(Bytes(), kAdapterBytes * (4 + 1));
}

TEST_F(RunRoomTest, SpaceAndInodesAreAskedForInTheFolderOrAboveIt) {
  const std::string folder = TempPath("none/of/these");
  EXPECT_EQ(WantOfRoom(folder, {.bytes = 1, .files = 1}), "");
  EXPECT_THAT(WantOfRoom(folder, {.bytes = int64_t{1} << 60}),
              HasSubstr("free some space"));
}

}  // namespace
}  // namespace dapd
