#include "common/base/list_folder.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class ListFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(MakeDirectories(folder_ + "/b").ok()); }
  void Write(const std::string& name) const {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(folder_, name), "text").ok());
  }

  const std::string folder_ = TempPath("folder");
};

TEST_F(ListFolderTest, NamesAreInOrder) {
  Write("c");
  Write("a");
  Write("b/d");
  EXPECT_THAT(ListFolder(folder_).value(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(ListFilesBelow(folder_).value(), ElementsAre("a", "b/d", "c"));
}

TEST_F(ListFolderTest, AnEmptyFolderIsNoError) {
  EXPECT_THAT(ListFolder(folder_ + "/b").value(), IsEmpty());
  EXPECT_THAT(ListFilesBelow(folder_).value(), IsEmpty());
}

TEST_F(ListFolderTest, OneThatIsMissingIsNotFound) {
  const std::string missing = folder_ + "/x";
  EXPECT_TRUE(absl::IsNotFound(ListFolder(missing).status()));
  EXPECT_TRUE(absl::IsNotFound(ListFilesBelow(missing).status()));
}

TEST_F(ListFolderTest, AFileIsNoFolder) {
  Write("a");
  for (const absl::Status& status : {ListFolder(folder_ + "/a").status(),
                                     ListFilesBelow(folder_ + "/a").status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/a"));
  }
}

TEST_F(ListFolderTest, OfLinksOnlyThoseToFilesAreFiles) {
  Write("b/d");
  fs::create_symlink("b/d", folder_ + "/file");
  fs::create_symlink("b", folder_ + "/directory");
  fs::create_symlink("nowhere", folder_ + "/dangling");
  EXPECT_THAT(ListFilesBelow(folder_).value(), ElementsAre("b/d", "file"));
}

TEST_F(ListFolderTest, AFolderBelowThatMayNotBeEnteredIsAnError) {
  Write("a");
  Write("b/d");
  const ClosedPath closed(folder_ + "/b");
  const absl::Status status = ListFilesBelow(folder_).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

}  // namespace
}  // namespace dapd
