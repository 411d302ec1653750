#include "common/base/exit_code.h"

#include <cerrno>

#include "gtest/gtest.h"

#include "common/base/files.h"

namespace dapd {
namespace {

TEST(ExitCodeTest, AnAttachedCodeWinsOverTheStatusCode) {
  EXPECT_EQ(ExitCodeOf(ConfigError("x")), ExitCode::kConfig);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), ExitCode::kData);
}

TEST(ExitCodeTest, TheInnermostCodeStays) {
  EXPECT_EQ(ExitCodeOf(WithExitCode(DataError("x"), ExitCode::kConfig)),
            ExitCode::kData);
}

TEST(ExitCodeTest, OkStaysOk) {
  EXPECT_TRUE(WithExitCode(absl::OkStatus(), ExitCode::kData).ok());
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
}

TEST(ExitCodeTest, UnreachablePeersAndLostRunsHaveTheirOwnCodes) {
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")),
            ExitCode::kPeerUnavailable);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("x")), ExitCode::kRunLost);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("x")), ExitCode::kInterrupted);
}

TEST(ExitCodeTest, AMissingRightHasToBeMendedAndAFullDiskWillHaveRoom) {
  for (const int denied : {EACCES, EPERM, EROFS}) {
    EXPECT_EQ(ExitCodeOf(FileError("create", "runs/a/ledger.jsonl", denied)),
              ExitCode::kConfig)
        << denied;
  }
  for (const int full : {ENOSPC, EDQUOT}) {
    EXPECT_EQ(ExitCodeOf(FileError("write", "runs/a/ledger.jsonl", full)),
              ExitCode::kInternal)
        << full;
  }
}

}  // namespace
}  // namespace dapd
