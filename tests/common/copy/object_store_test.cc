// Tests the store's supervisor with programs that misbehave, and with the real
// helper and a folder; tests/robustness/test_copy.py has an S3 server.
#include "common/copy/object_store.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/sha256.h"
#include "tests/fakes/machine_clock.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

// Returns a shell program that reports that it is ready, then runs `each` for
// every line.
ObjectStoreOptions Shell(const std::string& each) {
  return {.url = "s3://bucket/run",
          .command = {"sh",
                      "-c",
                      "echo '{\"ready\": \"0\"}'; while read -r line; do " +
                          each + "; done"},
          .progress_timeout = absl::Seconds(30)};
}

TEST(ObjectStoreTest, OneThatDiesIsStartedAgainForTheNextQuestion) {
  ObjectStore store(Shell(
      "case \"$line\" in *poison*) exit 7;; esac; echo '{\"done\": true}'"));
  const absl::Status lost = store.Remove({"poison"});
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("exit code 7"), HasSubstr("s3://bucket/run")));
  EXPECT_TRUE(store.Remove({"x"}).ok());
}

TEST(ObjectStoreTest, OneThatIsKilledBeforeItIsReadyMayBeTriedAgain) {
  ObjectStore store({.url = "s3://bucket/run",
                     .command = {"sh", "-c", "kill -9 $$"},
                     .progress_timeout = absl::Seconds(30)});
  const absl::Status killed = store.Remove({"x"});
  EXPECT_TRUE(absl::IsUnavailable(killed)) << killed;
  EXPECT_THAT(std::string(killed.message()), HasSubstr("signal 9"));
}

TEST(ObjectStoreTest, OneThatIsSilentIsGivenUpAndOneThatMovesIsNot) {
  ObjectStoreOptions options = Shell(
      "for i in 1 2 3 4 5 6; do sleep 0.2; echo '{\"moved\": 3}'; done; "
      "case \"$line\" in *hangs*) sleep 1000;; esac; "
      "echo '{\"done\": true}'");
  options.progress_timeout = absl::Seconds(1);
  int64_t sent = 0;
  options.on_sent = [&](int64_t bytes) { sent += bytes; };
  ObjectStore store(options);
  EXPECT_TRUE(store.Remove({"slow"}).ok());
  EXPECT_EQ(sent, 18);
  const absl::Status late = store.Remove({"hangs"});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("no sign of progress for 1s"));
}

TEST(ObjectStoreTest, WhatIsUnderWayCanBeCancelled) {
  ObjectStoreOptions options = Shell("sleep 1000");
  options.is_cancelled = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(ObjectStore(options).Remove({"x"})));
}

TEST(ObjectStoreTest, AClockThatIsSetTimesNothingOut) {
  MachineClock clock;
  ObjectStoreOptions options = Shell("echo '{\"done\": true}'");
  // The store calls is_cancelled while it waits for a line.
  options.is_cancelled = [&clock, was_set = false]() mutable {
    if (!std::exchange(was_set, true)) clock.Set(absl::Hours(1));
    return false;
  };
  const absl::Status removed = ObjectStore(options).Remove({"x"});
  EXPECT_TRUE(removed.ok()) << removed;
}

TEST(ObjectStoreTest, AStoreThatDeniesSaysWhereCredentialsComeFrom) {
  ObjectStore store(
      Shell("echo '{\"error\": \"AccessDenied\", \"kind\": \"denied\"}'"));
  const absl::Status denied = store.Write("x", "y");
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr("AWS_PROFILE"));
}

TEST(ObjectStoreTest, AFolderThatDeniesAsksForNoCredentials) {
  ObjectStoreOptions options =
      Shell("echo '{\"error\": \"Permission denied\", \"kind\": \"denied\"}'");
  options.url = "/mnt/runs";
  const absl::Status denied = ObjectStore(options).Write("x", "y");
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_THAT(std::string(denied.message()),
              AllOf(HasSubstr("user "), Not(HasSubstr("AWS_PROFILE"))));
}

// A client reads its file of credentials only once.
TEST(ObjectStoreTest, CredentialsThatWereRenewedAreUsed) {
  const std::string renewed = TempPath("renewed");
  ObjectStore store(
      {.url = "s3://bucket/run",
       .command = {"sh",
                   "-c",
                   absl::StrCat(
                       "answer='{\"error\": \"expired\", \"kind\": "
                       "\"denied\"}'; [ -e ",
                       renewed,
                       " ] && answer='{\"done\": true}'; echo '{\"ready\": "
                       "\"0\"}'; while read -r line; do echo \"$answer\"; "
                       "done")},
       .progress_timeout = absl::Seconds(30)});
  EXPECT_TRUE(absl::IsPermissionDenied(store.Remove({"x"})));
  ASSERT_TRUE(WriteFileAtomically(renewed, "").ok());
  const absl::Status removed = store.Remove({"x"});
  EXPECT_TRUE(removed.ok()) << removed;
}

TEST(ObjectStoreTest, CredentialsThatCannotBeReadAreNoMatterOfPackages) {
  ObjectStore store({.url = "gs://bucket/run",
                     .command = {"sh",
                                 "-c",
                                 "echo '{\"error\": \"no such key\", "
                                 "\"kind\": \"denied\"}'"},
                     .progress_timeout = absl::Seconds(30)});
  const absl::Status denied = store.Write("x", "y");
  EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
  EXPECT_THAT(std::string(denied.message()),
              AllOf(HasSubstr("gs://bucket/run"),
                    HasSubstr("no such key"),
                    HasSubstr("GOOGLE_APPLICATION_CREDENTIALS"),
                    Not(HasSubstr("requirements-copy"))));
}

TEST(ObjectStoreTest, ABucketThatIsMissingIsNoMissingObject) {
  ObjectStore store(Shell(
      "echo '{\"error\": \"there is no bucket\", \"kind\": \"unusable\"}'"));
  const absl::Status missing = store.List("").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
}

TEST(ObjectStoreTest, ADiskWithoutRoomIsNoStoreThatIsAway) {
  ObjectStore store(Shell(
      "echo '{\"error\": \"No space left on device\", \"kind\": \"full\"}'"));
  const absl::Status full = store.Remove({"x"});
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
}

TEST(ObjectStoreTest, NonsenseIsAnError) {
  ObjectStore store(Shell("echo '[1]'"));
  EXPECT_TRUE(absl::IsUnavailable(store.Remove({"x"})));
}

TEST(ObjectStoreTest, AProtocolThatPythonCannotSpeakIsRefused) {
  ObjectStore store(
      {.url = "nosuch://x", .command = ObjectStoreCommand("", "nosuch://x")});
  const absl::Status refused = store.List("").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("Protocol not known"),
                    HasSubstr("deploy/requirements-copy.txt")));
}

TEST(ObjectStoreTest, AFolderHoldsObjects) {
  const std::string folder = TempPath("store");
  ObjectStore store({.url = folder, .command = ObjectStoreCommand("", folder)});
  const std::string source = TempPath("source");
  ASSERT_TRUE(WriteFileAtomically(source, "headbody").ok());
  const Content body{.bytes = 4, .sha256 = Sha256Hex("body")};
  ASSERT_TRUE(store.List("").ok());
  EXPECT_TRUE(store.List("")->empty());
  EXPECT_TRUE(absl::IsNotFound(store.Read("a/text", 10).status()));
  ASSERT_TRUE(store.Write("a/text", "hello").ok());
  EXPECT_EQ(*store.Read("a/text", 10), "hello");
  EXPECT_TRUE(absl::IsDataLoss(store.Read("a/text", 4).status()));
  const absl::Status put = store.Put("b/part", body, source, 4);
  ASSERT_TRUE(put.ok()) << put;
  EXPECT_TRUE(absl::IsDataLoss(store.Put("b/wrong", body, source, 3)));
  EXPECT_TRUE(absl::IsDataLoss(store.Put("b/wrong", body, source, 6)));
  EXPECT_THAT(*store.List(""), ElementsAre(Key("a/text"), Key("b/part")));
  EXPECT_THAT(*store.List("b"), ElementsAre(Key("b/part")));
  EXPECT_TRUE(*store.Check("b/part", body));
  EXPECT_FALSE(*store.Check("b/part", {4, Sha256Hex("BODY")}));
  EXPECT_FALSE(*store.Check("b/part", {5, body.sha256}));
  EXPECT_FALSE(*store.Check("b/none", body));
  const std::string target = TempPath("target");
  ASSERT_TRUE(WriteFileAtomically(target, "HEAD").ok());
  ASSERT_TRUE(store.Get("b/part", body, target, 4).ok());
  EXPECT_EQ(*ReadFile(target, 100), "HEADbody");
  EXPECT_TRUE(
      absl::IsDataLoss(store.Get("b/part", {4, Sha256Hex("BODY")}, target, 0)));
  ASSERT_TRUE(store.Remove({"b/part", "b/none"}).ok());
  EXPECT_THAT(*store.List(""), ElementsAre(Key("a/text")));
}

TEST(ObjectStoreTest, WhatStandsInAPartsPlaceIsNotWrittenInto) {
  const std::string folder = TempPath("store");
  const std::string other = TempPath("other");
  ASSERT_TRUE(WriteFileAtomically(other, "kept").ok());
  std::vector<std::string> command = ObjectStoreCommand("", folder);
  // Somebody else has made a link with the name that the helper will use.
  command[2].insert(0,
                    absl::StrCat("import os\nos.makedirs('",
                                 folder,
                                 "/a')\nos.symlink('",
                                 other,
                                 "', f'",
                                 folder,
                                 "/a/text.{os.getpid()}.part')\n"));
  ObjectStore store({.url = folder, .command = command});
  ASSERT_TRUE(store.Write("a/text", "hello").ok());
  EXPECT_EQ(*store.Read("a/text", 10), "hello");
  EXPECT_EQ(*ReadFile(other, 100), "kept");
}

}  // namespace
}  // namespace dapd
