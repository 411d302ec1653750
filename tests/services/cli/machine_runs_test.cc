#include "services/cli/machine_runs.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/config/config_text.h"
#include "tests/fakes/loaded_config.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

class MachineRunsTest : public testing::Test {
 protected:
  void Write(const fs::path& path, const std::string& text) const {
    fs::create_directories(path.parent_path());
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  // Adds a process with this name that holds the lock of `run`.
  void AddProcess(const std::string& number,
                  const std::string& name,
                  const std::string& run) const {
    const fs::path process = proc_ / number;
    Write(process / "comm", name + "\n");
    fs::create_directories(process / "fd");
    fs::create_symlink("/dev/null", process / "fd/0");
    fs::create_symlink(runs_ / run / ".lock", process / "fd/7");
  }
  void AddRun(const std::string& name, const std::string& listen) const {
    const auto loaded =
        Load(kGood, {"trainer.listen=" + listen, "security.insecure=true"});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    Write(runs_ / name / "config.yaml", DumpConfig(*loaded));
  }

  const fs::path proc_ = TempPath("proc");
  const fs::path runs_ = TempPath("runs");
};

TEST_F(MachineRunsTest, ATrainersLockLeadsToItsRunAndAddress) {
  AddRun("b", "0.0.0.0:7013");
  AddRun("a", "127.0.0.1:7003");
  AddProcess("12", "dapd-trainer", "b");
  AddProcess("9", "dapd-trainer", "a");
  AddProcess("10", "dapd-rollout", "c");
  const std::vector<MachineRun> runs = RunsOfThisMachine(proc_);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].folder, runs_ / "a");
  EXPECT_EQ(runs[0].address, "127.0.0.1:7003");
  EXPECT_EQ(runs[1].address, "127.0.0.1:7013");
}

TEST_F(MachineRunsTest, ARunWhosePortTheSystemChoseIsListedWithoutAddress) {
  AddRun("a", "127.0.0.1:0");
  AddProcess("9", "dapd-trainer", "a");
  AddProcess("8", "dapd-trainer", "not-written-yet");
  const std::vector<MachineRun> runs = RunsOfThisMachine(proc_);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].address, "");
  EXPECT_EQ(runs[1].address, "");
}

TEST_F(MachineRunsTest, WithoutProcessesThereIsNone) {
  EXPECT_TRUE(RunsOfThisMachine(proc_).empty());
}

}  // namespace
}  // namespace dapd
