#include "services/rollout/rollout_service.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/sha256.h"
#include "common/rpc/server/server.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "tests/fakes/encoded_messages.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/worker_servers.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkerDescription Limits() {
  WorkerDescription limits;
  limits.service = "rollout";
  limits.layout_digest = "layout";
  limits.precision = "float32";
  limits.vocab_size = 100;
  limits.hidden_size = 8;
  limits.max_positions = 32;
  limits.max_in_flight = 4;
  limits.max_adapter_bytes = 1000;
  return limits;
}

v1::GenerateRequest MakeRequest(uint64_t id, uint32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_request_id(id);
  request.add_prompt_ids(1);
  request.add_prompt_ids(2);
  request.mutable_sampling()->set_temperature(1.1);
  request.mutable_sampling()->set_top_p(0.95);
  request.mutable_sampling()->set_max_new_tokens(max_new_tokens);
  return request;
}

TEST(ParseGenerateRequestTest, AllFieldsArrive) {
  v1::GenerateRequest message = MakeRequest(9, 5);
  message.mutable_sampling()->set_top_k(20);
  message.mutable_key()->set_seed(1);
  message.mutable_key()->set_step(2);
  message.mutable_key()->set_example(3);
  message.mutable_key()->set_sample(4);
  const auto request = ParseGenerateRequest(message, Limits());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->prompt_ids, ElementsAre(1, 2));
  EXPECT_EQ(request->sampling.temperature, 1.1);
  EXPECT_EQ(request->sampling.top_k, 20);
  EXPECT_EQ(request->sampling.top_p, 0.95);
  EXPECT_EQ(request->sampling.max_new_tokens, 5);
  EXPECT_EQ(request->key.seed, 1U);
  EXPECT_EQ(request->key.step, 2U);
  EXPECT_EQ(request->key.example, 3U);
  EXPECT_EQ(request->key.sample, 4U);
}

TEST(ParseGenerateRequestTest, WhatIsOutOfRangeIsRefusedByName) {
  struct Case {
    const char* named;
    std::function<void(v1::GenerateRequest&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {"prompt is empty", [](auto& r) { r.clear_prompt_ids(); }},
      {"prompt_ids[2] is 100", [](auto& r) { r.add_prompt_ids(100); }},
      {"prompt_ids[2] is -1", [](auto& r) { r.add_prompt_ids(-1); }},
      {"32 positions",
       [](auto& r) { r.mutable_sampling()->set_max_new_tokens(31); }},
      {"max_new_tokens is 0",
       [](auto& r) { r.mutable_sampling()->set_max_new_tokens(0); }},
      {"temperature is -1",
       [](auto& r) { r.mutable_sampling()->set_temperature(-1); }},
      {"temperature is nan",
       [nan](auto& r) { r.mutable_sampling()->set_temperature(nan); }},
      {"top_p is 0", [](auto& r) { r.mutable_sampling()->set_top_p(0); }},
      {"top_p is 1.5", [](auto& r) { r.mutable_sampling()->set_top_p(1.5); }},
      {"top_p is nan",
       [nan](auto& r) { r.mutable_sampling()->set_top_p(nan); }}};
  for (const Case& c : cases) {
    v1::GenerateRequest message = MakeRequest(9, 5);
    c.spoil(message);
    const auto request = ParseGenerateRequest(message, Limits());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(c.named));
  }
}

TEST(ParseGenerateRequestTest, WhatIsJustWithinRangeIsTaken) {
  EXPECT_TRUE(ParseGenerateRequest(MakeRequest(9, 30), Limits()).ok());
  v1::GenerateRequest message = MakeRequest(9, 1);
  message.add_prompt_ids(0);
  message.add_prompt_ids(99);
  message.mutable_sampling()->set_temperature(0);
  message.mutable_sampling()->set_top_p(1);
  EXPECT_TRUE(ParseGenerateRequest(message, Limits()).ok());
}

// Runs the service behind a real server on a free port.
class RolloutServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(
        "127.0.0.1:0", &service_, v1::RolloutService::service_full_name());
    stub_ =
        v1::RolloutService::NewStub(OpenPlaintextChannel(server_->address()));
  }
  void TearDown() override {
    if (worker_ != nullptr) worker_->Shutdown(absl::ZeroDuration());
    server_->Shutdown(absl::ZeroDuration());
  }

  void Attach() {
    worker_ = std::make_unique<RolloutWorker>(
        std::make_unique<FakeSampler>(&control_), RolloutWorker::Options{});
    service_.Attach(worker_.get(), Limits());
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  }

  grpc::Status Load(int64_t version, const std::string& tensors) {
    PolicyUpdate update;
    update.version = version;
    update.adapter.tensors = tensors;
    update.adapter.config_json = "{}";
    update.adapter.digest = Sha256Hex(tensors + "{}");
    update.probe_ids = {1, 2};
    digest_ = update.adapter.digest;
    grpc::ClientContext context;
    SetDeadline(context);
    auto writer = stub_->LoadAdapter(&context, &loaded_);
    bool sound = true;
    for (const v1::LoadAdapterRequest& message : AdapterMessages(update)) {
      sound = sound && writer->Write(message);
    }
    if (sound) writer->WritesDone();
    return writer->Finish();
  }

  // Serves the policy and opens a stream of requests to it.
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::GenerateRequest, v1::GenerateResponse>>
  StreamOfPolicy3(grpc::ClientContext* context) {
    Attach();
    EXPECT_TRUE(Load(3, "weights").ok());
    SetDeadline(*context);
    return stub_->Generate(context);
  }
  v1::GenerateRequest RequestOfPolicy3(uint64_t id,
                                       uint32_t max_new_tokens) const {
    v1::GenerateRequest request = MakeRequest(id, max_new_tokens);
    request.set_policy_version(3);
    request.set_adapter_digest(digest_);
    return request;
  }

  FakeSamplerControl control_;
  RolloutService service_;
  std::unique_ptr<RolloutWorker> worker_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::RolloutService::Stub> stub_;
  v1::LoadAdapterResponse loaded_;
  std::string digest_;
};

TEST_F(RolloutServiceTest, UntilTheModelIsReadEveryCallIsUnavailable) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::DescribeResponse response;
  EXPECT_EQ(stub_->Describe(&context, {}, &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Load(1, "weights").error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context_of_stream;
  SetDeadline(context_of_stream);
  EXPECT_EQ(stub_->Generate(&context_of_stream)->Finish().error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RolloutServiceTest, DescribeSaysWhatItIsAndServes) {
  Attach();
  ASSERT_TRUE(Load(3, "weights").ok());
  EXPECT_EQ(loaded_.modules_applied(), 7);
  EXPECT_THAT(loaded_.probe_logprobs(), ElementsAre(-1.5F));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::DescribeResponse response;
  ASSERT_TRUE(stub_->Describe(&context, {}, &response).ok());
  EXPECT_EQ(response.service(), "rollout");
  EXPECT_FALSE(response.version().empty());
  EXPECT_EQ(response.layout_digest(), "layout");
  EXPECT_EQ(response.max_in_flight(), 4U);
  EXPECT_TRUE(response.adapter().loaded());
  EXPECT_EQ(response.adapter().policy_version(), 3);
  EXPECT_EQ(response.adapter().digest(), digest_);
}

TEST_F(RolloutServiceTest, AnAdapterPastTheLimitIsRefused) {
  Attach();
  EXPECT_EQ(Load(1, std::string(1001, 'w')).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RolloutServiceTest, AStreamAnswersAllRequestsThenEnds) {
  control_.eos_after = 4;
  grpc::ClientContext context;
  const auto stream = StreamOfPolicy3(&context);
  for (uint64_t id = 1; id <= 6; ++id) {
    v1::GenerateRequest request =
        RequestOfPolicy3(id, static_cast<uint32_t>(id));
    if (id == 6) request.clear_prompt_ids();
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  std::map<uint64_t, std::vector<int32_t>> ids;
  int finished = 0;
  int failed = 0;
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
    std::vector<int32_t>& own = ids[response.request_id()];
    if (response.has_tokens()) {
      EXPECT_EQ(response.tokens().first_index(), own.size());
      own.insert(own.end(),
                 response.tokens().ids().begin(),
                 response.tokens().ids().end());
    } else if (response.has_finished()) {
      ++finished;
      EXPECT_EQ(response.finished().num_tokens(), own.size());
      EXPECT_EQ(response.finished().reason(),
                own.size() < 4 ? v1::GenerationFinished::REASON_LENGTH
                               : v1::GenerationFinished::REASON_EOS);
      const v1::SampleTimes& times = response.finished().times();
      EXPECT_LE(times.arrived(), times.started());
      EXPECT_LE(times.started(), times.first_token());
      EXPECT_LE(times.first_token(), times.ended());
      EXPECT_EQ(response.finished().policy_version(), 3);
      EXPECT_EQ(response.finished().adapter_digest(), digest_);
    } else {
      ++failed;
      EXPECT_EQ(response.request_id(), 6U);
      EXPECT_EQ(response.failed().code(),
                static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(finished, 5);
  EXPECT_EQ(failed, 1);
  for (uint64_t id = 1; id <= 5; ++id) {
    EXPECT_EQ(ids[id].size(), std::min<uint64_t>(id, 4));
  }
}

TEST_F(RolloutServiceTest, AClientThatGoesAwayFreesItsSlots) {
  control_.hold = true;
  grpc::ClientContext context;
  const auto stream = StreamOfPolicy3(&context);
  const v1::GenerateRequest request = RequestOfPolicy3(1, 5);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(Eventually([&] { return control_.running == 1; }));
  context.TryCancel();
  ASSERT_TRUE(Eventually([&] { return control_.running == 0; }));
  EXPECT_EQ(control_.cancelled, 1);
}

// The worker no longer reads from the client, so it learns of the end only when
// it sends answers.
TEST_F(RolloutServiceTest, AClientThatHasAskedForAllFreesItsSlotsToo) {
  control_.hold = true;
  grpc::ClientContext context;
  const auto stream = StreamOfPolicy3(&context);
  ASSERT_TRUE(stream->Write(RequestOfPolicy3(1, 5)));
  ASSERT_TRUE(stream->WritesDone());
  ASSERT_TRUE(Eventually([&] { return control_.running == 1; }));
  absl::SleepFor(absl::Milliseconds(20));
  context.TryCancel();
  ASSERT_TRUE(Eventually([&] { return control_.running == 0; }));
}

TEST_F(RolloutServiceTest, AnIdThatIsStillOpenEndsTheStream) {
  control_.hold = true;
  grpc::ClientContext context;
  const auto stream = StreamOfPolicy3(&context);
  const v1::GenerateRequest request = RequestOfPolicy3(1, 5);
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Write(request));
  v1::GenerateResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace dapd
