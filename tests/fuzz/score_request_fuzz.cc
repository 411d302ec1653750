// Input: a ScoreStream as text.
// Every request is answered once: with the scores of all its views, in the
// requested shape, or with a reason.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/rpc/transfer/wire_weights.h"
#include "services/teacher/score_request.h"
#include "services/teacher/teacher_worker.h"
#include "tests/fakes/fake_scorer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/message_input.h"
#include "tests/fuzz/streams.pb.h"

namespace dapd {
namespace {

constexpr size_t kOutboxEvents = 4096;  // nobody reads while it fills

WorkerDescription Limits() {
  WorkerDescription limits;
  limits.vocab_size = 32;
  limits.max_positions = 64;
  return limits;
}

void CheckViews(const v1::ScoreRequest& request,
                const std::vector<ViewScores>& scores) {
  Check(static_cast<size_t>(request.views_size()) == scores.size(),
        "every view is scored");
  for (const v1::ScoreView& view : request.views()) {
    const auto scored = std::ranges::find(
        scores, *ParseViewName(view.name()), &ViewScores::view);
    Check(scored != scores.end(), "no view is left out");
    for (const auto& [name, tensor] : scored->tensors) {
      Check(tensor.shape[0] == view.scored_count(), "each token has a score");
    }
  }
}

void Run(const fuzz::ScoreStream& stream) {
  FakeScorerControl control;
  TeacherWorker worker(std::make_unique<FakeScorer>(&control), {});
  if (stream.has_served()) {
    AdapterUpload upload;
    upload.set = FromWireWeights(stream.served().weights())
                     .value_or(WeightSet::kSnapshot);
    upload.version = stream.served().policy_version();
    upload.adapter.digest = stream.served().digest();
    upload.probe_ids = {1, 2};
    Check(worker.Load(upload, [] { return false; }).ok(), "an upload loads");
  }
  auto outbox = std::make_shared<TeacherOutbox>(kOutboxEvents);
  // Ids may repeat: answers come in the order of the requests, except for
  // requests that are refused at once.
  std::map<uint64_t, std::vector<const v1::ScoreRequest*>> valid;
  int refused = 0;
  for (const v1::ScoreRequest& message : stream.requests()) {
    auto request = ParseScoreRequest(message, Limits());
    if (request.ok()) {
      valid[message.request_id()].push_back(&message);
      worker.Submit(*std::move(request), outbox);
    } else {
      ++refused;
    }
  }
  worker.Shutdown(absl::InfiniteDuration());
  outbox->Close();
  std::vector<ViewScores> scores;
  int answered = 0;
  while (auto event = outbox->Pop()) {
    if (auto* view = std::get_if<ViewScores>(&event->content)) {
      scores.push_back(std::move(*view));
      continue;
    }
    auto& waiting = valid[event->request_id];
    Check(!waiting.empty(), "only what was asked is answered");
    if (std::holds_alternative<ScoreFinished>(event->content)) {
      CheckViews(*waiting.front(), scores);
    } else {
      Check(scores.empty(), "a refused request has no scores");
      Check(!std::get<absl::Status>(event->content).ok(),
            "a failure has a reason");
    }
    waiting.erase(waiting.begin());
    scores.clear();
    ++answered;
  }
  Check(answered + refused == stream.requests_size(),
        "every request is answered once");
}

}  // namespace
}  // namespace dapd

DAPD_FUZZ_MESSAGES(dapd::fuzz::ScoreStream, dapd::Run)
