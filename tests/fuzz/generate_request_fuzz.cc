// Input: a GenerateStream as text.
// Every request of a stream is answered exactly once, with at most as many
// tokens as it asked for, after the scores of its prompt if it asked for them.
#include <map>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "services/rollout/rollout_service.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

WorkerDescription Limits() {
  WorkerDescription limits;
  limits.vocab_size = 32;
  limits.max_positions = 64;
  return limits;
}

struct Answer {
  uint32_t max_tokens = 0;
  uint32_t tokens = 0;
  // The prompt's tokens that have a score: all but the first, if scores are
  // asked for, and otherwise none.
  uint32_t max_scored = 0;
  uint32_t scored = 0;
  int ends = 0;
};

void Take(const v1::GenerateResponse& message,
          std::map<uint64_t, Answer>& answers) {
  const auto found = answers.find(message.request_id());
  Check(found != answers.end(), "only what was asked is answered");
  Answer& answer = found->second;
  Check(answer.ends == 0, "nothing follows the end of an answer");
  if (message.has_prompt()) {
    const v1::PromptScored& scores = message.prompt();
    Check(answer.tokens == 0, "a prompt's scores come before the answer");
    Check(scores.first_index() == answer.scored + 1 &&
              scores.logprobs_size() > 0 &&
              scores.top_ids_size() == scores.logprobs_size() &&
              scores.top_logprobs_size() == scores.logprobs_size(),
          "scores come in order, each with the most probable token");
    answer.scored += static_cast<uint32_t>(scores.logprobs_size());
    Check(answer.scored <= answer.max_scored, "no score was not asked for");
    return;
  }
  if (message.has_tokens()) {
    Check(message.tokens().first_index() == answer.tokens &&
              message.tokens().ids_size() == message.tokens().logprobs_size(),
          "tokens come in order, with their probabilities");
    answer.tokens += static_cast<uint32_t>(message.tokens().ids_size());
    Check(answer.tokens <= answer.max_tokens, "no token was not asked for");
    return;
  }
  ++answer.ends;
  Check(message.has_finished() != message.has_failed(),
        "an answer ends in one way");
  Check(!message.has_finished() ||
            message.finished().num_tokens() == answer.tokens,
        "the end tells the number of tokens");
  Check(!message.has_finished() || answer.scored == answer.max_scored,
        "a finished answer has every score that was asked for");
  Check(!message.has_failed() || message.failed().code() != 0,
        "a failure has a reason");
}

void Serve(const fuzz::GenerateStream& stream, RolloutWorker& worker) {
  auto outbox = std::make_shared<GenerationOutbox>();
  std::map<uint64_t, Answer> answers;
  for (const v1::GenerateRequest& message : stream.requests()) {
    // The service ends a stream that repeats an id.
    if (answers.contains(message.request_id())) {
      return worker.CancelStream(outbox);
    }
    Check(outbox->Open(message.request_id()), "a new id can be opened");
    Answer& answer = answers[message.request_id()];
    answer.max_tokens = message.sampling().max_new_tokens();
    if (message.score_prompt() && message.prompt_ids_size() > 0) {
      answer.max_scored = static_cast<uint32_t>(message.prompt_ids_size()) - 1;
    }
    auto request = ParseGenerateRequest(message, Limits());
    if (request.ok()) {
      worker.Submit(message.request_id(),
                    *std::move(request),
                    {true, message.policy_version(), message.adapter_digest()},
                    outbox);
    } else {
      outbox->Fail(message.request_id(), request.status());
    }
  }
  if (stream.hang_up()) return worker.CancelStream(outbox);
  outbox->CloseWhenAnswered();
  while (!outbox->done()) {
    if (const auto message = outbox->PopFor(absl::Seconds(10))) {
      Take(*message, answers);
    }
  }
  for (const auto& [id, answer] : answers) {
    Check(answer.ends == 1, "every request is answered once");
  }
}

void Run(const fuzz::GenerateStream& stream) {
  FakeSamplerControl control;
  RolloutWorker worker(std::make_unique<FakeSampler>(&control),
                       {.max_waiting = 8});
  if (stream.has_served()) {
    AdapterUpload upload;
    upload.version = stream.served().policy_version();
    upload.adapter.digest = stream.served().digest();
    upload.probe_ids = {1, 2};
    Check(worker.Load(upload, [] { return false; }).ok(), "an upload loads");
  }
  Serve(stream, worker);
  worker.Shutdown(absl::Seconds(10));
  Check(control.running == 0, "no sequence is left behind");
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::GenerateStream, dapd::Run)
