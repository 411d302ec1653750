// Tests which rollout workers and which of their answers a client refuses.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/trainer/workers/rollout_client_fixture.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class RolloutAnswersTest : public RolloutClientFixture {};

TEST_F(RolloutAnswersTest, AProbeMismatchNamesBothNumbers) {
  control_.probe = -9.25F;
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("-9.25"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("-1.5"));
  EXPECT_EQ(control_.running, 0);
}

TEST_F(RolloutAnswersTest, AWorkerWithAnotherModelIsRefused) {
  options_.expected.layout_digest = "another";
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("layout_digest"));
}

TEST_F(RolloutAnswersTest, APromptThatDoesNotFitFailsWithTheReason) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  client_->Submit(MakeTask(1, 1000));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 positions"));
}

TEST_F(RolloutAnswersTest, AWorkerOfAnotherVersionIsWarnedOfAndWorks) {
  ScriptedServer server([](ScriptedServer::Stream* stream) {
    v1::GenerateRequest request;
    while (stream->Read(&request)) AnswerWithOneToken(request, stream);
  });
  server.SetVersion("0.0.9-old");
  testing::internal::CaptureStderr();
  Start({server.address()});
  client_->Submit(MakeTask(1));
  const bool is_answered = client_->Next().ok();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(is_answered);
  EXPECT_THAT(log,
              testing::AllOf(HasSubstr(server.address()),
                             HasSubstr("has version 0.0.9-old")));
}

// One warning is enough, because the client may reconnect for days.
TEST_F(RolloutAnswersTest, AWorkerOfAnotherVersionIsWarnedOfOnce) {
  std::atomic<int> streams = 0;
  ScriptedServer server([&](ScriptedServer::Stream*) { ++streams; });
  server.SetVersion("0.0.9-old");
  testing::internal::CaptureStderr();
  Start({server.address()});
  const bool is_lost_again = Eventually([&] { return streams >= 3; });
  client_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(is_lost_again);
  const std::vector<std::string> parts =
      absl::StrSplit(log, "has version 0.0.9-old");
  EXPECT_EQ(parts.size(), 2U) << log;
}

// Each script answers every task wrongly; the worker is lost with this error.
TEST_F(RolloutAnswersTest, AnswersThatBreakTheProtocolAreNotTaken) {
  struct Case {
    const char* error;
    std::function<void(const v1::GenerateRequest&, v1::GenerateResponse*)> fill;
  };
  const auto finish = [](const v1::GenerateRequest& request,
                         v1::GenerateResponse* response) {
    response->mutable_finished()->set_reason(
        v1::GenerationFinished::REASON_EOS);
    response->mutable_finished()->set_policy_version(request.policy_version());
    response->mutable_finished()->set_adapter_digest(request.adapter_digest());
  };
  const std::vector<Case> cases = {
      {"of which 0 arrived",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_num_tokens(2);
       }},
      {"sampled by version 7",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_policy_version(7);
       }},
      {"(other), but the request was for version 1 (",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_adapter_digest("other");
       }},
      {"unknown reason: 3",
       [&](const auto& request, auto* response) {
         finish(request, response);
         response->mutable_finished()->set_reason(
             static_cast<v1::GenerationFinished::Reason>(3));
       }},
      {"from index 1",
       [](const auto&, auto* response) {
         response->mutable_tokens()->set_first_index(1);
       }},
      {"sampled token 100",
       [](const auto&, auto* response) {
         response->mutable_tokens()->add_ids(100);
         response->mutable_tokens()->add_logprobs(-1);
       }},
      {"with 0 log-probabilities",
       [](const auto&, auto* response) {
         response->mutable_tokens()->add_ids(1);
       }},
      {"sampled token 1 with log-probability 0.5",
       [](const auto&, auto* response) {
         response->mutable_tokens()->add_ids(1);
         response->mutable_tokens()->add_logprobs(0.5F);
       }},
      {"of at most 3", [](const auto&, auto* response) {
         for (int i = 0; i < 4; ++i) {
           response->mutable_tokens()->add_ids(1);
           response->mutable_tokens()->add_logprobs(-1);
         }
       }}};
  for (const Case& c : cases) {
    ScriptedServer server([&](ScriptedServer::Stream* stream) {
      v1::GenerateRequest request;
      while (stream->Read(&request)) {
        v1::GenerateResponse response;
        response.set_request_id(request.request_id());
        c.fill(request, &response);
        stream->Write(response);
      }
    });
    Start({server.address()});
    client_->Submit(MakeTask(1));
    WaitForError(c.error);
    EXPECT_EQ(Count(TaskOutcome::kAccepted), 0) << c.error;
    client_.reset();
  }
}

TEST_F(RolloutAnswersTest, AnAnswerThatCannotHaveEndedThereIsNotTaken) {
  struct Case {
    v1::GenerationFinished::Reason reason;
    std::vector<int64_t> end_ids;
    const char* error;  // empty if the answer is sound
  };
  // Every answer is token 1, of 3 tokens at most.
  for (const Case& c :
       {Case{v1::GenerationFinished::REASON_LENGTH, {}, "cut off after 1 of 3"},
        Case{v1::GenerationFinished::REASON_EOS, {2, 3}, "ends with 2, 3"},
        Case{v1::GenerationFinished::REASON_EOS, {1, 2}, ""},
        Case{v1::GenerationFinished::REASON_EOS, {}, ""}}) {
    ScriptedServer server([&](ScriptedServer::Stream* stream) {
      v1::GenerateRequest request;
      while (stream->Read(&request)) {
        AnswerWithOneToken(request, stream, [&](auto* finished) {
          finished->set_reason(c.reason);
        });
      }
    });
    options_.expected.end_ids = c.end_ids;
    Start({server.address()});
    client_->Submit(MakeTask(1));
    if (std::string(c.error).empty()) {
      const auto result = client_->Next();
      EXPECT_TRUE(result.ok()) << result.status();
    } else {
      WaitForError(c.error);
    }
    client_.reset();
  }
}

// The trainer is still writing the update, so there is no digest yet to compare
// the acknowledgement with.
TEST_F(RolloutAnswersTest, AnAcknowledgementOfHalfAnAdapterIsNotTaken) {
  class HastyServer final : public v1::RolloutService::Service {
   public:
    grpc::Status Describe(grpc::ServerContext*,
                          const v1::DescribeRequest*,
                          v1::DescribeResponse* response) override {
      *response = MakeDescribeResponse(Description(), {});
      return grpc::Status::OK;
    }
    grpc::Status LoadAdapter(grpc::ServerContext*,
                             grpc::ServerReader<v1::LoadAdapterRequest>* reader,
                             v1::LoadAdapterResponse* response) override {
      v1::LoadAdapterRequest header;
      reader->Read(&header);
      *response = MakeLoadAdapterResponse(
          {WeightSet::kLive, {true, 1, ""}, {7, {-1.5F}}});
      return grpc::Status::OK;
    }
  } service;
  const auto server = StartOrFail(
      "127.0.0.1:0", &service, v1::RolloutService::service_full_name());
  Start({server->address()});
  auto progress = std::make_shared<UpdateProgress>();
  auto update = std::make_shared<PolicyUpdate>(*MakeUpdate(1));
  update->adapter.tensors = std::string(8 << 20, 'x');
  update->adapter.digest.clear();
  update->progress = progress;
  progress->Advance(8 << 20);
  client_->SetPolicy(update);
  WaitForError("accepts no more of the adapter");
  progress->Abandon();
  client_.reset();
}

}  // namespace
}  // namespace dapd
