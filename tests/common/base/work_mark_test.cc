#include "common/base/work_mark.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class WorkMarkTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("DAPD_WORK_MARK", path_.c_str(), /*overwrite=*/1);
  }
  void TearDown() override { ::unsetenv("DAPD_WORK_MARK"); }

  const std::string path_ = TempPath("mark");
};

TEST_F(WorkMarkTest, TheVariableIsTheOneThatTheProgramReads) {
  EXPECT_EQ(WorkMarkSetting("/a/b"), "DAPD_WORK_MARK=/a/b");
}

TEST_F(WorkMarkTest, OnlyAStepThatIsNewRaisesIt) {
  EXPECT_EQ(ReadWorkMark(path_), 0) << "nothing is there yet";
  MarkStep(51);
  EXPECT_EQ(ReadWorkMark(path_), 51);
  MarkStep(9);
  EXPECT_EQ(ReadWorkMark(path_), 51);
  MarkStep(1000);
  EXPECT_EQ(ReadWorkMark(path_), 1000);
}

TEST_F(WorkMarkTest, AWorkerRaisesItOnceAStart) {
  ASSERT_TRUE(WriteFileAtomically(path_, "4\n").ok());
  MarkServed();
  MarkServed();
  EXPECT_EQ(ReadWorkMark(path_), 5);
}

TEST_F(WorkMarkTest, WithoutAFileNothingIsWritten) {
  ::unsetenv("DAPD_WORK_MARK");
  MarkStep(3);
  EXPECT_FALSE(FileExists(path_));
}

TEST_F(WorkMarkTest, AFileThatCannotBeIsAWarning) {
  ::setenv("DAPD_WORK_MARK", "/no/such/folder/mark", /*overwrite=*/1);
  testing::internal::CaptureStderr();
  MarkStep(3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("/no/such/folder/mark"));
}

}  // namespace
}  // namespace dapd
