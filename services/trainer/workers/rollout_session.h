// The conversation with one rollout worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "dapd/v1/rollout.grpc.pb.h"
#include "services/trainer/workers/grpc_session.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

using RolloutSessionBase = GrpcSession<v1::RolloutService,
                                       RolloutTask,
                                       RolloutResult,
                                       v1::GenerateRequest,
                                       v1::GenerateResponse>;

class RolloutSession final : public RolloutSessionBase {
 public:
  RolloutSession(const std::string& endpoint,
                 const RpcCredentials& credentials,
                 const ExpectedWorker& expected,
                 absl::Duration load_timeout,
                 Timeline* timeline,
                 OnTokens on_tokens)
      : RolloutSessionBase(endpoint,
                           Role::kRollout,
                           credentials,
                           expected,
                           load_timeout,
                           timeline),
        on_tokens_(std::move(on_tokens)) {}

  // Returns DATA_LOSS for an invalid answer: missing or surplus tokens, ids
  // outside the vocabulary, invalid log-probabilities, an end token before the
  // end, a task that the worker was not given. Returns FAILED_PRECONDITION for
  // an answer of another policy.
  std::optional<TaskAnswer<RolloutResult>> Receive() override;

 private:
  struct Partial {
    int64_t max_new_tokens = 0;
    SamplingKey key;
    RolloutResult result;
  };

  std::unique_ptr<Stream> StartStream(grpc::Channel* channel,
                                      grpc::ClientContext* context) override;
  v1::GenerateRequest ToRequest(const RolloutTask& task) override;
  absl::Status AddTokens(const v1::TokensSampled& tokens, Partial& partial);
  absl::StatusOr<RolloutResult> Finish(const v1::GenerationFinished& finished,
                                       Partial partial) const;
  // Returns DATA_LOSS if an answer cannot have ended in this way.
  absl::Status CheckEnd(const RolloutResult& result,
                        int64_t max_new_tokens) const;
  void Record(const v1::SampleTimes& times,
              const SamplingKey& key,
              const RolloutResult& result);

  const OnTokens on_tokens_;
  Mutex mutex_;
  std::map<uint64_t, Partial> partial_ ABSL_GUARDED_BY(mutex_);  // by id
};

}  // namespace dapd
