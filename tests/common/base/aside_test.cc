#include "common/base/aside.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/stop_requests.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

class AsideTest : public testing::Test {
 protected:
  AsideTest() : folder_(TempPath("folder")) { fs::create_directories(folder_); }

  std::string In(const std::string& name) const {
    return JoinPath(folder_, name);
  }

  // Begins a file and a folder with two files, finishes one file in the folder
  // and one beside it, and ends by the signal.
  [[noreturn]] void EndBy(int signal_number) const {
    std::signal(signal_number, SIG_DFL);  // nohup ignores SIGHUP
    RemoveAsidesWhenStopped();
    auto file = AtomicFileWriter::Open(In("file"));
    const std::string aside = AsideOf(In("model"));
    if (!file.ok() || !CreateAsideFolder(aside).ok()) std::_Exit(1);
    const auto within = AtomicFileWriter::Open(JoinPath(aside, "shard"));
    if (!WriteFileAtomically(JoinPath(aside, "card"), "x").ok()) std::_Exit(1);
    if (!WriteFileAtomically(In("whole"), "x").ok()) std::_Exit(1);
    std::raise(signal_number);
    while (true) ::pause();
  }

  const std::string folder_;
};

using AsideDeathTest = AsideTest;

TEST_F(AsideDeathTest, AProcessThatIsStoppedLeavesOnlyWhatIsWhole) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        EndBy(signal_number), testing::KilledBySignal(signal_number), "");
    ASSERT_TRUE(FileExists(In("whole")));
    fs::remove(In("whole"));
    EXPECT_TRUE(fs::is_empty(folder_)) << signal_number;
  }
}

TEST_F(AsideDeathTest, ASignalThatIsIgnoredOrCountedEndsNothing) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        std::signal(SIGTERM, SIG_DFL);
        RemoveAsidesWhenStopped();
        CatchStopRequests();
        auto file = AtomicFileWriter::Open(In("file"));
        std::raise(SIGTERM);
        if (StopRequests() != 1 || !file.ok()) std::_Exit(1);
        std::_Exit(file->Commit().ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "");
  EXPECT_TRUE(FileExists(In("file")));
}

TEST_F(AsideTest, AFolderBecomesItsTargetWithoutWhatAnEarlierProcessLeft) {
  const std::string aside = AsideOf(In("model"));
  ASSERT_TRUE(MakeDirectories(aside).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(aside, "old"), "x").ok());
  ASSERT_TRUE(CreateAsideFolder(aside).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(aside, "new"), "x").ok());
  ASSERT_TRUE(RenameAside(aside, In("model")).ok());
  EXPECT_TRUE(FileExists(In("model/new")));
  EXPECT_FALSE(FileExists(In("model/old")));
  EXPECT_FALSE(FileExists(aside));
}

TEST_F(AsideTest, WhatCannotBeRenamedIsStillThereToBeRemoved) {
  const std::string aside = AsideOf(In("model"));
  ASSERT_TRUE(CreateAsideFolder(aside).ok());
  std::ofstream(In("model")) << "a file";
  EXPECT_FALSE(RenameAside(aside, In("model")).ok());
  EXPECT_TRUE(FileExists(aside));
  RemoveAside(aside);
  EXPECT_FALSE(FileExists(aside));
}

TEST_F(AsideTest, AFolderLeavesItsNameBeforeItIsRemoved) {
  ASSERT_TRUE(MakeDirectories(In("model/part")).ok());
  ASSERT_TRUE(MakeDirectories(AsideOf(In("model")) + "/old").ok());
  const auto aside = MoveAside(In("model"));
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_FALSE(FileExists(In("model")));
  EXPECT_TRUE(FileExists(*aside + "/part"));
  EXPECT_FALSE(FileExists(*aside + "/old"));
  RemoveAside(*aside);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_FALSE(MoveAside(In("missing")).ok());
}

TEST_F(AsideTest, WhatIsDamagedTakesThePlaceOfAnOlderOne) {
  for (const char* name : {"old", "new"}) {
    ASSERT_TRUE(MakeDirectories(JoinPath(In("model"), name)).ok());
    EXPECT_EQ(SetAsideDamaged(In("model")).value(), In("model.damaged"));
  }
  EXPECT_FALSE(FileExists(In("model")));
  EXPECT_TRUE(FileExists(In("model.damaged/new")));
  EXPECT_FALSE(FileExists(In("model.damaged/old")));
}

}  // namespace
}  // namespace dapd
