#include "services/trainer/record/end_notice.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/config/run_folder.h"
#include "tests/fakes/http_listener.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

bool Never() { return false; }

class EndNoticeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.name = "first";
    run_.output_dir = TempPath("runs");
    ASSERT_TRUE(MakeDirectories(Folder()).ok());
  }
  std::string Folder() const { return JoinPath(run_.output_dir, run_.name); }
  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(Folder(), name), text).ok());
  }
  void WriteRun() const {
    Write("config.yaml", "trainer: {steps: 9}\n");
    Write("metrics.jsonl", "{\"step\": 4, \"adapter_digest\": \"abc\"}\n");
  }
  static nlohmann::json Body(const std::string& request) {
    return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
  }

  RunConfig run_;
};

TEST_F(EndNoticeTest, OneDocumentSaysHowTheRunEnded) {
  HttpListener server([](size_t) { return HttpAnswer(200); });
  run_.notify_url = server.url();
  auto notice = EndNotice::Create(run_, Never);
  ASSERT_TRUE(notice.ok()) << notice.status();
  WriteRun();
  notice->Tell(WithExitCode(absl::UnavailableError("no worker"),
                            ExitCode::kPeerUnavailable));
  notice->Tell(absl::OkStatus());
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(1));
  const nlohmann::json body = Body(requests[0]);
  EXPECT_EQ(body["run"], "first");
  EXPECT_EQ(body["state"], "failed");
  EXPECT_EQ(body["exit_code"], 5);
  EXPECT_EQ(body["message"], "no worker");
  EXPECT_EQ(body["step"], 4);
  EXPECT_EQ(body["steps"], 9);
  EXPECT_EQ(body["adapter_digest"], "abc");
  EXPECT_EQ(body["evaluation"]["before"], nullptr);
  EXPECT_NE(body["host"], "");
}

TEST_F(EndNoticeTest, WhatThisAttemptSaidItselfIsTold) {
  HttpListener server([](size_t) { return HttpAnswer(200); });
  run_.notify_url = server.url();
  auto notice = EndNotice::Create(run_, Never);
  ASSERT_TRUE(notice.ok()) << notice.status();
  const RunOutcome own = OutcomeOf(absl::DataLossError("a gradient"));
  ASSERT_TRUE(WriteOutcome(Folder(), own).ok());
  notice->Tell(absl::InternalError("see above"));
  RunOutcome old = own;
  old.time -= absl::Hours(1);
  ASSERT_TRUE(WriteOutcome(Folder(), old).ok());
  EndNotice::Create(run_, Never)->Tell(absl::InternalError("see above"));
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(Body(requests[0])["message"], "a gradient");
  EXPECT_EQ(Body(requests[1])["message"], "see above");
  EXPECT_EQ(Body(requests[1])["step"], nullptr) << "there is no run yet";
}

TEST_F(EndNoticeTest, NoFailureIsToldOfARunThatAnotherHolds) {
  HttpListener server([](size_t) { return HttpAnswer(200); });
  run_.notify_url = server.url();
  auto notice = EndNotice::Create(run_, Never);
  ASSERT_TRUE(notice.ok()) << notice.status();
  {
    const auto holder = RunFolder::Open(run_);
    ASSERT_TRUE(holder.ok()) << holder.status();
    notice->Tell(absl::UnavailableError("in use by another trainer"));
    notice->Tell(absl::CancelledError("told to stop"));
  }
  EXPECT_THAT(server.requests(), IsEmpty());
  notice->Tell(absl::UnavailableError("no worker"));
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST_F(EndNoticeTest, NobodyIsToldWhereNobodyIsNamed) {
  HttpListener server([](size_t) { return HttpAnswer(200); });
  EndNotice::Create(run_, Never)->Tell(absl::OkStatus());
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST_F(EndNoticeTest, ASecretThatCannotBeReadIsSaidAtTheStart) {
  run_.notify_url = "https://example.org";
  run_.notify_secret_file = JoinPath(Folder(), "missing");
  EXPECT_EQ(ExitCodeOf(EndNotice::Create(run_, Never).status()),
            ExitCode::kConfig);
}

}  // namespace
}  // namespace dapd
