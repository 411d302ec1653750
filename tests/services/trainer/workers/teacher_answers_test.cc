// Tests which answers of a teacher a client refuses.

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "tests/fakes/eventually.h"
#include "tests/services/trainer/workers/teacher_client_fixture.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class TeacherAnswersTest : public TeacherClientFixture {};

// Replaces the first number of a chunk and corrects its checksum.
template <typename Number>
void SetNumber(Number number, v1::ScoreResponse* message) {
  v1::TensorChunk& chunk = *message->mutable_chunk();
  std::memcpy(chunk.mutable_data()->data(), &number, sizeof(number));
  chunk.set_crc32c(Crc32c(chunk.data()));
}

TEST_F(TeacherAnswersTest, IdsOutsideTheVocabularyAreNotTaken) {
  std::atomic<int32_t> id = -1;
  ScriptedServer server([&](const v1::ScoreRequest& request,
                            ScriptedServer::Stream* stream) {
    // The tensors `ids` and `logprobs` copy `hidden`, which has 8 numbers.
    std::vector<v1::ScoreResponse> messages;
    for (v1::ScoreResponse& message : SoundAnswer(request)) {
      messages.push_back(message);
      if (!message.has_chunk()) continue;
      auto header = messages[messages.size() - 2];
      messages.push_back(header);
      messages.push_back(message);
      auto* ids = &messages[messages.size() - 4];
      ids->mutable_tensor()->mutable_header()->set_name("ids");
      ids->mutable_tensor()->mutable_header()->set_dtype(v1::DATA_TYPE_INT32);
      SetNumber(id.load(), &messages[messages.size() - 3]);
      messages[messages.size() - 2]
          .mutable_tensor()
          ->mutable_header()
          ->set_name("logprobs");
    }
    for (const auto& message : messages) stream->Write(message);
  });
  for (const int32_t bad : {-1, 1 << 20}) {
    id = bad;
    Start(server.address());
    ScoreTask task = MakeTask(1);
    task.payload = Payload::kTopK;
    task.top_k = kHidden;
    client_->Submit(std::move(task));
    std::string error;
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (error.empty() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
      const auto workers = client_->Workers();
      if (!workers.empty()) error = workers.front().last_error;
    }
    EXPECT_THAT(error, HasSubstr("'ids'"));
    EXPECT_THAT(error, HasSubstr("holds an id outside the vocabulary"));
    id = (1 << 20) - 1;
    const auto result = client_->Next();
    EXPECT_TRUE(result.ok()) << result.status();
    client_.reset();
  }
}

TEST_F(TeacherAnswersTest, AScoreOfAnOlderVersionOfItsSetIsNotTaken) {
  ScriptedServer server(
      [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
        auto messages = SoundAnswer(request);
        // The task is for the moving average, but the digest belongs to the
        // snapshot.
        messages.back().mutable_done()->set_adapter_digest(
            MakeUpdate(1)->adapter.digest);
        for (const auto& message : messages) stream->Write(message);
      });
  Start(server.address());
  client_->SetWeights({{WeightSet::kSnapshot, MakeUpdate(1)},
                       {WeightSet::kEma, MakeUpdate(2)}});
  ScoreTask task = MakeTask(1);
  task.weights = WeightSet::kEma;
  client_->Submit(task);
  ASSERT_TRUE(Eventually(
      [&] { return outcomes_[static_cast<int>(TaskOutcome::kStale)] != 0; }));
}

TEST_F(TeacherAnswersTest, ABadViewFailsItsTaskWithTheReason) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  ScoreTask task = MakeTask(1);
  task.views[ViewName::kSelfRollout].scored_count = 100;
  client_->Submit(std::move(task));
  const absl::Status status = client_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("view 'self_rollout'"));
}

TEST_F(TeacherAnswersTest, AnswersThatBreakTheProtocolAreNotTaken) {
  using Messages = std::vector<v1::ScoreResponse>;
  struct Case {
    const char* error;  // empty if the answer is sound
    std::function<void(Messages&)> spoil;
  };
  const std::vector<Case> cases = {
      {"", [](Messages&) {}},
      {"a different shape or dtype",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_shape(0, 1 << 30);
       }},
      {"a different shape or dtype",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_dtype(
             v1::DATA_TYPE_BFLOAT16);
       }},
      {"tensor 'logits' of view 'none_rollout' was not asked for",
       [](Messages& m) {
         m[0].mutable_tensor()->mutable_header()->set_name("logits");
       }},
      {"was not asked for", [](Messages& m) { m[2] = m[0]; }},
      {"is corrupted",
       [](Messages& m) { (*m[1].mutable_chunk()->mutable_data())[5] = 1; }},
      {"chunks must come in order",
       [](Messages& m) { m[1].mutable_chunk()->set_offset(8); }},
      {"a chunk before its tensor's header",
       [](Messages& m) { m.erase(m.begin()); }},
      {"ended before its last chunk",
       [](Messages& m) { m.erase(m.begin() + 1); }},
      {"are missing", [](Messages& m) { m.erase(m.begin() + 3); }},
      {"scored by the snapshot adapter of version 9",
       [](Messages& m) { m.back().mutable_done()->set_policy_version(9); }},
      {"), but the request was for the adapter of version 1 (",
       [](Messages& m) { m.back().mutable_done()->set_policy_version(9); }},
      {"tensor 'hidden' of view 'none_rollout' holds a number that is not "
       "finite",
       [](Messages& m) { SetNumber(std::nanf(""), &m[1]); }},
      {"holds a number that is not finite",
       [](Messages& m) {
         SetNumber(std::numeric_limits<float>::infinity(), &m[3]);
       }},
      {"took nan seconds",
       [](Messages& m) {
         m.back().mutable_done()->set_compute_seconds(std::nan(""));
       }},
      {"took inf seconds",
       [](Messages& m) {
         m.back().mutable_done()->set_ahead_seconds(
             std::numeric_limits<double>::infinity());
       }},
      {"without content", [](Messages& m) { m[1].clear_chunk(); }},
      {"which the worker was not given",
       [](Messages& m) { m[0].set_request_id(77); }}};
  for (const Case& c : cases) {
    ScriptedServer server(
        [&](const v1::ScoreRequest& request, ScriptedServer::Stream* stream) {
          Messages messages = SoundAnswer(request);
          c.spoil(messages);
          for (const auto& message : messages) stream->Write(message);
        });
    Start(server.address());
    ScoreTask task = MakeTask(1);
    task.weights = WeightSet::kSnapshot;
    client_->Submit(std::move(task));
    if (std::string(c.error).empty()) {
      const auto result = client_->Next();
      EXPECT_TRUE(result.ok()) << result.status();
      continue;
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    std::string error;
    while (error.find(c.error) == std::string::npos && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
      const auto workers = client_->Workers();
      if (!workers.empty()) error = workers.front().last_error;
    }
    EXPECT_THAT(error, HasSubstr(c.error));
    client_.reset();
  }
}

}  // namespace
}  // namespace dapd
