#include "services/teacher/teacher_worker.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_scorer.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class TeacherWorkerTest : public ::testing::Test {
 protected:
  TeacherWorkerTest()
      : worker_(std::make_unique<FakeScorer>(&control_),
                MakeObserver(),
                [this](const absl::Status& why) {
                  EXPECT_EQ(why, absl::AbortedError("lost"));
                  ++losses_;
                }) {}

  TeacherObserver MakeObserver() {
    TeacherObserver observer;
    observer.on_scored = [this](int64_t tokens, double) { tokens_ += tokens; };
    observer.on_payload = [this](uint64_t bytes) { bytes_ += bytes; };
    observer.on_ahead = [this](int64_t tokens, double) { ahead_ += tokens; };
    return observer;
  }

  void Load(int64_t version,
            const std::string& digest,
            WeightSet set = WeightSet::kSnapshot,
            std::atomic<bool>* is_queued = nullptr,
            const std::string& key = "") {
    AdapterUpload upload;
    upload.set = set;
    upload.key = key;
    upload.version = version;
    upload.is_base = digest.empty();
    upload.adapter.digest = digest;
    upload.probe_ids = {1, 2};
    // The worker calls this while the upload waits for its turn.
    const auto loaded = worker_.Load(std::move(upload), [&] {
      if (is_queued != nullptr) *is_queued = true;
      return false;
    });
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->served.version, version);
  }

  // Submits a request for version 1, or for the base.
  void Submit(uint64_t id, WeightSet weights, const std::string& digest) {
    TeacherRequest request;
    request.request_id = id;
    request.policy_version = weights == WeightSet::kBase ? 0 : 1;
    request.adapter_digest = digest;
    request.input.weights = weights;
    request.input.views = {{ViewName::kNoneRollout, {{5, 6, 7}, 1, 2}},
                           {ViewName::kSelfRollout, {{8, 9}, 1, 1}}};
    worker_.Submit(std::move(request), outbox_);
  }

  // Submits a request that the scorer holds until control_.hold is false.
  void SubmitAndHold(uint64_t id,
                     WeightSet weights,
                     const std::string& digest) {
    control_.hold = true;
    Submit(id, weights, digest);
    EXPECT_TRUE(Eventually([&] { return control_.started != 0; }));
  }

  void SubmitPrefix(uint64_t id,
                    const std::string& digest,
                    int64_t first,
                    size_t count) {
    PrefixUpdate update;
    update.request_id = id;
    update.weights = WeightSet::kSnapshot;
    update.policy_version = 1;
    update.adapter_digest = digest;
    update.views = {
        {ViewName::kNoneRollout, first, std::vector<int32_t>(count, 7)}};
    worker_.SubmitPrefix(std::move(update), outbox_);
  }

  // Returns the next event's content, which must be a T.
  template <typename T>
  T Expect() {
    const auto event = outbox_->PopFor(absl::Seconds(20));
    if (!event.has_value() || !std::holds_alternative<T>(event->content)) {
      ADD_FAILURE() << "no event, or one of another kind";
      return T();
    }
    return std::get<T>(event->content);
  }

  // Expects both views of a request, and its end.
  ScoreFinished ExpectScores() {
    Expect<ViewScores>();
    Expect<ViewScores>();
    return Expect<ScoreFinished>();
  }

  FakeScorerControl control_;
  std::atomic<int64_t> tokens_ = 0;
  std::atomic<int64_t> ahead_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<int> losses_ = 0;  // of the device
  std::shared_ptr<TeacherOutbox> outbox_ = std::make_shared<TeacherOutbox>(8);
  TeacherWorker worker_;
};

TEST_F(TeacherWorkerTest, ViewsComeInOrderThenTheEnd) {
  Load(1, "digest");
  Submit(9, WeightSet::kSnapshot, "digest");
  EXPECT_EQ(Expect<ViewScores>().view, ViewName::kNoneRollout);
  EXPECT_EQ(Expect<ViewScores>().view, ViewName::kSelfRollout);
  const auto end = Expect<ScoreFinished>();
  EXPECT_EQ(end.policy.version, 1);
  EXPECT_EQ(end.policy.digest, "digest");
  EXPECT_EQ(tokens_, 3);
  EXPECT_EQ(bytes_, 3U * 8 * sizeof(float));
}

TEST_F(TeacherWorkerTest, TheBaseIsThereWithoutAnUpload) {
  Submit(9, WeightSet::kBase, "");
  EXPECT_EQ(ExpectScores().policy.digest, "");
}

TEST_F(TeacherWorkerTest, EachSetHasItsOwnAdapter) {
  Load(1, "old", WeightSet::kSnapshot);
  Load(1, "mean", WeightSet::kEma);
  Submit(7, WeightSet::kLive, "mean");
  EXPECT_THAT(std::string(Expect<absl::Status>().message()),
              HasSubstr("no live adapter has been loaded"));
  Submit(8, WeightSet::kSnapshot, "mean");
  EXPECT_EQ(Expect<absl::Status>().code(),
            absl::StatusCode::kFailedPrecondition);
  Submit(9, WeightSet::kEma, "mean");
  const ViewScores scores = Expect<ViewScores>();
  // The score is the token before the scored range, 5, plus the moving
  // average's 2000.
  EXPECT_EQ(reinterpret_cast<const float*>(
                scores.tensors.front().second.data.get())[0],
            2005);
  Expect<ViewScores>();
  EXPECT_EQ(Expect<ScoreFinished>().policy.digest, "mean");
}

TEST_F(TeacherWorkerTest, AnUploadOfTheBaseOnlyProbes) {
  Load(1, "old", WeightSet::kSnapshot);
  Load(0, "", WeightSet::kBase);
  EXPECT_EQ(worker_.served().Loaded().size(), 1U);
  Submit(9, WeightSet::kSnapshot, "old");
  Expect<ViewScores>();
}

TEST_F(TeacherWorkerTest, AnotherSnapshotIsRefusedWithBothNames) {
  Load(1, "digest");
  Submit(9, WeightSet::kSnapshot, "other");
  const absl::Status status = Expect<absl::Status>();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1 (other)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 1 (digest)"));
}

TEST_F(TeacherWorkerTest, AFailedForwardFailsItsRequestAlone) {
  Load(1, "digest");
  control_.fail = true;
  Submit(9, WeightSet::kBase, "");
  EXPECT_EQ(Expect<absl::Status>().code(),
            absl::StatusCode::kResourceExhausted);
  control_.fail = false;
  Submit(10, WeightSet::kBase, "");
  EXPECT_EQ(Expect<ViewScores>().view, ViewName::kNoneRollout);
}

TEST_F(TeacherWorkerTest, ALostDeviceIsReportedWhateverMeetsIt) {
  Load(1, "digest");
  control_.lose_device = true;
  Submit(9, WeightSet::kBase, "");
  EXPECT_EQ(Expect<absl::Status>().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(losses_, 1);
  // The first version is served already, the second is not.
  for (const int64_t version : {1, 2}) {
    const AdapterUpload upload = {.set = WeightSet::kSnapshot,
                                  .version = version,
                                  .adapter = {.digest = "digest"},
                                  .probe_ids = {1, 2}};
    EXPECT_EQ(worker_.Load(upload, [] { return false; }).status().code(),
              absl::StatusCode::kAborted);
    EXPECT_EQ(losses_, 1 + version);
  }
  // Computing a chunk ahead of a request fails, too.
  SubmitPrefix(10, "digest", 0, 8);
  ASSERT_TRUE(Eventually([&] { return losses_ >= 4; }));
}

TEST_F(TeacherWorkerTest, RequestsOfADeadStreamAreSkipped) {
  Load(1, "digest");
  control_.hold = true;
  auto dead = std::make_shared<TeacherOutbox>(1);
  std::swap(dead, outbox_);
  Submit(1, WeightSet::kBase, "");
  Submit(2, WeightSet::kBase, "");
  outbox_->Close();
  std::swap(dead, outbox_);
  Submit(3, WeightSet::kBase, "");
  control_.hold = false;
  EXPECT_EQ(Expect<ViewScores>().view, ViewName::kNoneRollout);
  EXPECT_LE(control_.started, 2);
}

TEST_F(TeacherWorkerTest, APrefixIsComputedBeforeTheRequestComes) {
  Load(1, "digest");
  SubmitPrefix(9, "digest", 0, 10);
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 8; }));
  SubmitPrefix(9, "digest", 10, 2);
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 12; }));
  EXPECT_EQ(ahead_, 12);
  Submit(9, WeightSet::kSnapshot, "digest");
  const auto end = ExpectScores();
  EXPECT_GT(end.ahead_seconds, 0);
  ASSERT_FALSE(end.ahead.empty());
  EXPECT_LE(end.ahead.back().end, end.scored.begin);
  EXPECT_GE(absl::ToDoubleSeconds(end.scored.end - end.scored.begin),
            end.compute_seconds - 1e-9);
}

TEST_F(TeacherWorkerTest, RequestsThatWaitAreScoredTogether) {
  Load(1, "digest");
  control_.most_together = 3;
  SubmitAndHold(1, WeightSet::kBase, "");
  Submit(2, WeightSet::kBase, "");
  Submit(3, WeightSet::kSnapshot, "digest");
  Submit(4, WeightSet::kSnapshot, "other");
  Submit(5, WeightSet::kSnapshot, "digest");
  Submit(6, WeightSet::kBase, "");
  control_.hold = false;
  ExpectScores();
  // A full set goes first. The request in its middle fails alone, before the
  // other requests have come.
  EXPECT_EQ(Expect<absl::Status>().code(),
            absl::StatusCode::kFailedPrecondition);
  for (const std::string digest : {"digest", ""}) {
    for (int i = 0; i < 4; ++i) Expect<ViewScores>();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Expect<ScoreFinished>().policy.digest, digest);
    }
  }
  EXPECT_EQ(control_.largest_batch, 2);
}

TEST_F(TeacherWorkerTest, NoRequestIsPassedOverTwice) {
  Load(1, "digest");
  control_.most_together = 2;
  SubmitAndHold(1, WeightSet::kBase, "");
  Submit(2, WeightSet::kSnapshot, "digest");
  for (uint64_t id = 3; id < 8; ++id) Submit(id, WeightSet::kBase, "");
  control_.hold = false;
  std::vector<uint64_t> ended;
  while (ended.size() < 7) {
    const auto event = outbox_->PopFor(absl::Seconds(20));
    ASSERT_TRUE(event.has_value());
    if (std::holds_alternative<ScoreFinished>(event->content)) {
      ended.push_back(event->request_id);
    }
  }
  EXPECT_THAT(ended, testing::ElementsAre(1, 3, 4, 2, 5, 6, 7));
}

TEST_F(TeacherWorkerTest, AnUploadComesBetweenTheRequestsAroundIt) {
  Load(1, "digest");
  control_.most_together = 8;
  SubmitAndHold(1, WeightSet::kSnapshot, "digest");
  Submit(2, WeightSet::kSnapshot, "digest");
  std::atomic<bool> is_queued = false;
  std::jthread loader(
      [&] { Load(1, "next", WeightSet::kSnapshot, &is_queued); });
  EXPECT_TRUE(Eventually([&] { return is_queued.load(); }));
  Submit(3, WeightSet::kSnapshot, "next");
  control_.hold = false;
  for (const std::string digest : {"digest", "digest", "next"}) {
    Expect<ViewScores>();
    Expect<ViewScores>();
    EXPECT_EQ(Expect<ScoreFinished>().policy.digest, digest);
  }
}

TEST_F(TeacherWorkerTest, RequestsComeBeforePrefixes) {
  Load(1, "digest");
  SubmitAndHold(1, WeightSet::kBase, "");
  SubmitPrefix(9, "digest", 0, 8);
  Submit(2, WeightSet::kBase, "");
  control_.hold = false;
  for (int i = 0; i < 2; ++i) {
    Expect<ViewScores>();
    Expect<ViewScores>();
    Expect<ScoreFinished>();
  }
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 8; }));
  EXPECT_EQ(control_.started, 2);
}

TEST_F(TeacherWorkerTest, AnIdleWorkerKeepsPrefixesAndNothingElse) {
  Load(1, "digest");
  SubmitPrefix(9, "digest", 0, 8);
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 8; }));
  const int forgotten = control_.forgotten;
  Submit(1, WeightSet::kBase, "");
  ExpectScores();
  EXPECT_EQ(control_.forgotten, forgotten);
  Load(2, "next");
  ASSERT_TRUE(Eventually([&] { return control_.forgotten != forgotten; }));
}

TEST_F(TeacherWorkerTest, WhatIsServedAlreadyIsProbedAndItsPrefixesStay) {
  Load(1, "digest");
  SubmitPrefix(9, "digest", 0, 8);
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 8; }));
  const int forgotten = control_.forgotten;
  Load(1, "digest");  // by another rank
  EXPECT_EQ(control_.loads, 1);
  Submit(1, WeightSet::kSnapshot, "digest");
  ExpectScores();
  EXPECT_EQ(control_.forgotten, forgotten);
}

TEST_F(TeacherWorkerTest, TheSameUploadIsKnownByTheKeyThatItCameWithLast) {
  Load(1, "digest", WeightSet::kSnapshot, nullptr, "first");
  Load(1, "digest", WeightSet::kSnapshot, nullptr, "second");
  EXPECT_EQ(worker_.served().Of(WeightSet::kSnapshot).key, "second");
  EXPECT_EQ(control_.loads, 1);
}

TEST_F(TeacherWorkerTest, PrefixesForOtherWeightsAreLeftOut) {
  Load(1, "digest");
  SubmitPrefix(9, "other", 0, 8);
  SubmitPrefix(10, "digest", 0, 4);
  ASSERT_TRUE(Eventually([&] { return control_.adapter_ahead >= 4; }));
  EXPECT_EQ(ahead_, 4);
}

TEST_F(TeacherWorkerTest, ShutdownDoesWhatIsQueuedWithinTheGrace) {
  Load(1, "digest");
  Submit(9, WeightSet::kBase, "");
  worker_.Shutdown(absl::Seconds(20));
  ExpectScores();
  Submit(10, WeightSet::kBase, "");
  EXPECT_EQ(Expect<absl::Status>().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TeacherWorkerTest, ShutdownWithoutGraceFailsWhatIsQueued) {
  Load(1, "digest");
  control_.hold = true;
  Submit(1, WeightSet::kBase, "");
  Submit(2, WeightSet::kBase, "");
  EXPECT_TRUE(Eventually([&] { return control_.started != 0; }));
  std::jthread stopper([&] { worker_.Shutdown(absl::ZeroDuration()); });
  // Shutdown() has begun once a request is refused; a request before that joins
  // the queue.
  const std::shared_ptr<TeacherOutbox> queued = outbox_;
  outbox_ = std::make_shared<TeacherOutbox>(64);
  EXPECT_TRUE(Eventually([&] {
    Submit(3, WeightSet::kBase, "");
    return outbox_->PopFor(absl::Milliseconds(1)).has_value();
  }));
  outbox_ = queued;
  control_.hold = false;
  ExpectScores();
  EXPECT_EQ(Expect<absl::Status>().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TeacherWorkerTest, ShutdownGivesUpAClientThatReadsNothing) {
  Load(1, "digest");
  const std::shared_ptr<TeacherOutbox> other = outbox_;
  const auto unread = std::make_shared<TeacherOutbox>(1);
  outbox_ = unread;
  Submit(1, WeightSet::kBase, "");  // has two views; one view fits
  outbox_ = other;
  Submit(2, WeightSet::kBase, "");
  ASSERT_TRUE(Eventually([&] { return unread->size() != 0; }));
  worker_.Shutdown(absl::Milliseconds(20));
  EXPECT_TRUE(unread->closed());
  EXPECT_EQ(unread->size(), 1U);
  // A request that waited behind it also learns of the end.
  EXPECT_EQ(Expect<absl::Status>().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace dapd
