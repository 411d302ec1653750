#include "services/teacher/teacher_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

absl::Status ShuttingDown() {
  return absl::UnavailableError("this teacher worker is shutting down");
}

uint64_t NumBytes(const ViewScores& scores) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : scores.tensors) {
    bytes += static_cast<uint64_t>(tensor.num_bytes());
  }
  return bytes;
}

}  // namespace

TeacherWorker::TeacherWorker(std::unique_ptr<Scorer> scorer,
                             TeacherObserver observer,
                             std::function<void(const absl::Status&)> on_broken)
    : observer_(std::move(observer)),
      scorer_(std::move(scorer)),
      device_(std::move(on_broken)),
      commands_(kMaxQueuedCommands),
      thread_([this] { Run(); }) {}

TeacherWorker::~TeacherWorker() { Shutdown(absl::ZeroDuration()); }

void TeacherWorker::Submit(TeacherRequest request,
                           std::shared_ptr<TeacherOutbox> outbox) {
  const uint64_t id = request.request_id;
  auto shared = std::make_shared<const TeacherRequest>(std::move(request));
  if (draining_ ||
      !commands_.Push([this, shared, outbox] { Score(*shared, *outbox); })) {
    outbox->Push({id, ShuttingDown()});
  }
}

void TeacherWorker::SubmitPrefix(PrefixUpdate update,
                                 std::shared_ptr<TeacherOutbox> outbox) {
  auto shared = std::make_shared<const PrefixUpdate>(std::move(update));
  commands_.Push([this, shared, outbox] {
    if (outbox->closed() || !served_
                                 .Check(shared->weights,
                                        shared->policy_version,
                                        shared->adapter_digest)
                                 .ok()) {
      return;
    }
    desk_.Update(outbox.get(), *shared);
  });
}

void TeacherWorker::CloseStream(std::shared_ptr<TeacherOutbox> outbox) {
  commands_.Push([this, outbox] { desk_.CloseStream(outbox.get()); });
}

absl::StatusOr<LoadResult> TeacherWorker::Load(
    AdapterUpload upload, const std::function<bool()>& cancelled) {
  if (draining_) return ShuttingDown();
  return LoadOnComputeThread(
      std::move(upload),
      commands_,
      [this](const AdapterUpload& adapter) { return Switch(adapter); },
      cancelled);
}

void TeacherWorker::Shutdown(absl::Duration grace) {
  if (!draining_.exchange(true)) {
    MutexLock lock(&mutex_);
    deadline_ = absl::Now() + grace;
  }
  commands_.Close();
  if (thread_.joinable()) thread_.join();
}

void TeacherWorker::Run() {
  while (true) {
    std::optional<Command> command =
        desk_.has_work() ? commands_.PopFor(absl::ZeroDuration())
                         : commands_.Pop();
    if (command.has_value()) {
      (*command)();
      // Between two steps a worker keeps nothing.
      if (desk_.open() == 0 && commands_.size() == 0) scorer_->Forget();
    } else if (commands_.closed()) {
      return;
    } else {
      ComputeAhead();
    }
    if (observer_.on_load) {
      observer_.on_load(static_cast<int64_t>(commands_.size()));
    }
    if (observer_.on_open_prefixes) {
      observer_.on_open_prefixes(static_cast<int64_t>(desk_.open()));
    }
  }
}

void TeacherWorker::ComputeAhead() {
  const absl::Time start = absl::Now();
  DAPD_FAILPOINT("worker.before_chunk");
  const absl::StatusOr<int64_t> tokens = desk_.Advance(*scorer_);
  device_.Note(tokens.status());
  if (!tokens.ok()) {
    // The request, when it comes, meets the same error and reports it.
    LogWarning(absl::StrCat("computing ahead of a request failed: ",
                            std::string(tokens.status().message())));
  } else if (*tokens > 0 && observer_.on_ahead) {
    observer_.on_ahead(*tokens, absl::ToDoubleSeconds(absl::Now() - start));
  }
}

void TeacherWorker::Score(const TeacherRequest& request,
                          TeacherOutbox& outbox) {
  // Kept until the request is done, which finds it in the scorer.
  const AheadWork ahead = desk_.Close(&outbox, request.request_id);
  if (outbox.closed()) return;
  const absl::Status status = TryScore(request, ahead, outbox);
  device_.Note(status);
  if (observer_.on_request) observer_.on_request(status.ok() ? "ok" : "failed");
  if (!status.ok()) outbox.Push({request.request_id, status});
}

absl::Status TeacherWorker::TryScore(const TeacherRequest& request,
                                     const AheadWork& ahead,
                                     TeacherOutbox& outbox) {
  {
    MutexLock lock(&mutex_);
    if (absl::Now() > deadline_) return ShuttingDown();
  }
  RETURN_IF_ERROR(served_.Check(
      request.input.weights, request.policy_version, request.adapter_digest));
  int64_t scored_tokens = 0;
  for (const auto& [name, view] : request.input.views) {
    scored_tokens += view.scored_count;
  }
  const absl::Time start = absl::Now();
  absl::Duration waiting;  // for the client
  DAPD_FAILPOINT("worker.before_score");
  const auto send = [&](ViewScores scores) {
    const absl::Time begin = absl::Now();
    if (observer_.on_payload) observer_.on_payload(NumBytes(scores));
    const bool wanted = outbox.Push({request.request_id, std::move(scores)});
    waiting += absl::Now() - begin;
    return wanted;
  };
  ASSIGN_OR_RETURN(const ScoreWork work, scorer_->Score(request.input, send));
  const absl::Time end = absl::Now();
  const double seconds = absl::ToDoubleSeconds(end - start - waiting);
  if (observer_.on_scored) observer_.on_scored(scored_tokens, seconds);
  if (observer_.on_work) observer_.on_work(work);
  DAPD_FAILPOINT("worker.after_score");
  outbox.Push({request.request_id,
               ScoreFinished{.policy = served_.Of(request.input.weights),
                             .compute_seconds = seconds,
                             .ahead_seconds = ahead.seconds,
                             .work = work,
                             .scored = {start, end},
                             .ahead = ahead.spans}});
  return absl::OkStatus();
}

absl::StatusOr<LoadResult> TeacherWorker::Switch(const AdapterUpload& upload) {
  DAPD_FAILPOINT("worker.before_adapter");
  absl::StatusOr<AppliedAdapter> loaded = scorer_->Load(upload);
  device_.Note(loaded.status());
  ASSIGN_OR_RETURN(AppliedAdapter applied, std::move(loaded));
  ServedPolicy fresh{true, upload.version, upload.adapter.digest};
  if (upload.set != WeightSet::kBase) {
    served_.Set(upload.set, fresh);
    desk_.CloseSet(upload.set);
  }
  DAPD_FAILPOINT("worker.after_adapter");
  if (observer_.on_policy) observer_.on_policy(upload.set, fresh);
  return LoadResult{upload.set, std::move(fresh), std::move(applied)};
}

}  // namespace dapd
