#include "services/teacher/teacher_service.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/rpc/server/server.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_scorer.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/worker_servers.h"

namespace dapd {
namespace {

// Runs the service behind a real server on a free port with the base loaded.
class TeacherServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = StartOrFail(
        "127.0.0.1:0", &service_, v1::TeacherService::service_full_name());
    stub_ =
        v1::TeacherService::NewStub(OpenPlaintextChannel(server_->address()));
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  }
  void TearDown() override {
    control_.hold = false;
    server_->Shutdown(absl::ZeroDuration());
    if (worker_ != nullptr) worker_->Shutdown(absl::ZeroDuration());
  }

  void Attach() {
    worker_ = std::make_unique<TeacherWorker>(
        std::make_unique<FakeScorer>(&control_), TeacherObserver{});
    AdapterUpload base;
    base.set = WeightSet::kSnapshot;
    base.is_base = true;
    base.probe_ids = {1, 2};
    ASSERT_TRUE(worker_->Load(std::move(base), [] { return false; }).ok());
    WorkerDescription description;
    description.service = "teacher";
    description.vocab_size = 100;
    description.max_positions = 32;
    description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
    service_.Attach(worker_.get(), description);
  }

  static v1::ScoreRequest MakeRequest(uint64_t id) {
    v1::ScoreRequest request;
    request.set_request_id(id);
    request.set_weights(v1::TEACHER_WEIGHTS_BASE);
    request.set_payload(v1::PAYLOAD_HIDDEN_STATES);
    v1::ScoreView& view = *request.add_views();
    view.set_name("none_rollout");
    for (int token = 1; token <= 4; ++token) view.add_input_ids(token);
    view.set_scored_from(1);
    view.set_scored_count(3);
    return request;
  }

  FakeScorerControl control_;
  TeacherService service_;
  std::unique_ptr<TeacherWorker> worker_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::TeacherService::Stub> stub_;
  grpc::ClientContext context_;
};

TEST_F(TeacherServiceTest, UntilTheModelIsReadEveryCallIsUnavailable) {
  v1::DescribeResponse response;
  EXPECT_EQ(stub_->Describe(&context_, {}, &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TeacherServiceTest, EverySetThatWasLoadedIsDescribed) {
  Attach();
  AdapterUpload mean;
  mean.set = WeightSet::kEma;
  mean.version = 3;
  mean.adapter.digest = "mean";
  mean.probe_ids = {1, 2};
  ASSERT_TRUE(worker_->Load(std::move(mean), [] { return false; }).ok());
  v1::DescribeResponse response;
  ASSERT_TRUE(stub_->Describe(&context_, {}, &response).ok());
  EXPECT_EQ(response.adapter().weights(), v1::TEACHER_WEIGHTS_SNAPSHOT);
  ASSERT_EQ(response.weight_sets_size(), 2);
  EXPECT_EQ(response.weight_sets(1).weights(), v1::TEACHER_WEIGHTS_EMA);
  EXPECT_EQ(response.weight_sets(1).policy_version(), 3);
  EXPECT_EQ(response.weight_sets(1).digest(), "mean");
}

TEST_F(TeacherServiceTest, AStreamAnswersAllRequestsThenEnds) {
  Attach();
  auto stream = stub_->Score(&context_);
  constexpr uint64_t kRequests = 8;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    v1::ScoreRequest request = MakeRequest(id);
    if (id == kRequests) request.clear_views();
    ASSERT_TRUE(stream->Write(request));
  }
  stream->WritesDone();
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t tensor_of = 0;
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    if (response.has_tensor()) tensor_of = response.request_id();
    if (response.has_chunk()) {
      EXPECT_EQ(response.request_id(), tensor_of);
    }
    if (response.has_done()) {
      EXPECT_EQ(response.request_id(), ++done);
    }
    if (response.has_failed()) {
      ++failed;
      EXPECT_EQ(response.request_id(), kRequests);
      EXPECT_EQ(response.failed().code(),
                static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(done, kRequests - 1);
  EXPECT_EQ(failed, 1U);
}

// Scores that the client has not read yet are a view that is computed, the
// outbox, a view that is written, and the bytes between the sockets.
TEST_F(TeacherServiceTest, ASlowClientHoldsTheScorerBack) {
  constexpr int kRequests = 60;
  constexpr int64_t kViewBytes = 4 << 20;
  constexpr int kMostAhead = 16;  // 64 of 240 MiB
  control_.hidden_size = kViewBytes / 3 / 4;
  Attach();
  auto stream = stub_->Score(&context_);
  std::jthread writer([&] {
    for (uint64_t id = 1; id <= kRequests; ++id) stream->Write(MakeRequest(id));
    stream->WritesDone();
  });
  int done = 0;
  int most_ahead = 0;
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
    if (!response.has_done()) continue;
    // If nothing held the scorer back, it would start more requests here.
    const int before = control_.started;
    for (int i = 0; i < 20 && control_.started == before; ++i) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    most_ahead = std::max(most_ahead, control_.started - ++done);
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(done, kRequests);
  EXPECT_LE(most_ahead, kMostAhead);
  std::cout << "requests scored ahead of the reader: at most " << most_ahead
            << "\n";
}

TEST_F(TeacherServiceTest, AClientThatGoesAwayIsNotComputedFor) {
  Attach();
  control_.hold = true;
  auto stream = stub_->Score(&context_);
  for (uint64_t id = 1; id <= 10; ++id) {
    ASSERT_TRUE(stream->Write(MakeRequest(id)));
  }
  EXPECT_TRUE(Eventually([&] { return control_.started != 0; }));
  context_.TryCancel();
  v1::ScoreResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  // The server notices the client's end at its next write, or within half a
  // second.
  server_->Shutdown(absl::Seconds(20));
  control_.hold = false;
  worker_->Shutdown(absl::Seconds(20));
  EXPECT_EQ(control_.started, 1);
}

}  // namespace
}  // namespace dapd
