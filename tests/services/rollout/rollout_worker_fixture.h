// A worker over the sampler of tests/fakes/fake_sampler.h with one stream of
// requests.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/steady_time.h"
#include "common/rpc/status_conversion.h"
#include "services/rollout/rollout_worker.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_sampler.h"

namespace dapd {

class RolloutWorkerTest : public ::testing::Test {
 protected:
  // Holds all answers to one request.
  struct Answer {
    std::vector<int32_t> ids;
    v1::GenerationFinished end;  // empty if the request failed
    absl::Status error;
  };

  // Returns the error if the message says that a request failed.
  static absl::Status ErrorOf(const v1::GenerateResponse& message) {
    if (!message.has_failed()) return absl::OkStatus();
    return FromWireError(message.failed().code(), message.failed().message());
  }

  void Start(RolloutWorker::Options options = {}) {
    worker_ = std::make_unique<RolloutWorker>(
        std::make_unique<FakeSampler>(&control_), std::move(options));
  }

  absl::StatusOr<LoadResult> Load(int64_t version,
                                  const std::string& digest,
                                  const std::string& key = "") {
    AdapterUpload upload;
    upload.version = version;
    upload.key = key;
    upload.adapter.digest = digest;
    upload.probe_ids = {1, 2, 3};
    return worker_->Load(std::move(upload), [] { return false; });
  }

  void Submit(uint64_t id,
              int64_t max_new_tokens,
              int64_t version = 1,
              const std::string& digest = "one") {
    ASSERT_TRUE(outbox_->Open(id));
    DecodeRequest request;
    request.prompt_ids = {1, 2};
    request.sampling.max_new_tokens = max_new_tokens;
    worker_->Submit(id, std::move(request), {true, version, digest}, outbox_);
  }

  // Reads the outbox until `id` has ended; keeps answers to other requests.
  Answer Wait(uint64_t id) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(20);
    while (!ended_.contains(id) && SteadyNow() < deadline) {
      const auto message = outbox_->PopFor(absl::Seconds(1));
      if (!message.has_value()) continue;
      Answer& answer = answers_[message->request_id()];
      const auto& ids = message->tokens().ids();
      answer.ids.insert(answer.ids.end(), ids.begin(), ids.end());
      if (message->has_tokens()) continue;
      answer.end = message->finished();
      answer.error = ErrorOf(*message);
      ended_.insert(message->request_id());
    }
    EXPECT_TRUE(ended_.contains(id)) << "no end of request " << id;
    return answers_[id];
  }

  void WaitForRunning(int count) {
    ASSERT_TRUE(Eventually([&] { return control_.running == count; }));
  }

  // Starts with policy 1 and with request 5 of three tokens, which is held.
  void StartHolding() {
    control_.hold = true;
    Start();
    ASSERT_TRUE(Load(1, "one").ok());
    Submit(5, 3);
    WaitForRunning(1);
  }

  FakeSamplerControl control_;
  std::shared_ptr<GenerationOutbox> outbox_ =
      std::make_shared<GenerationOutbox>();
  std::map<uint64_t, Answer> answers_;
  std::set<uint64_t> ended_;
  std::unique_ptr<RolloutWorker> worker_;
};

}  // namespace dapd
