#include "services/teacher/teacher_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// How often a compute thread that waits for a client checks for Shutdown.
constexpr absl::Duration kGivesUpPoll = absl::Milliseconds(100);

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

int64_t NumTokens(const ScoreWork& work) {
  return work.computed_tokens + work.reused_tokens;
}

int64_t NumScoredTokens(const ScoreInput& input) {
  int64_t tokens = 0;
  for (const auto& [name, view] : input.views) tokens += view.scored_count;
  return tokens;
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
  if (draining_ || !commands_.Push([this, shared, outbox] {
        turns_.push_back({shared, outbox, {}});
      })) {
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
      [this](const AdapterUpload& adapter) {
        while (!turns_.empty()) TakeTurns();  // earlier requests first
        return Switch(adapter);
      },
      cancelled);
}

void TeacherWorker::Shutdown(absl::Duration grace) {
  if (!draining_.exchange(true)) {
    MutexLock lock(&mutex_);
    deadline_ = SteadyNow() + grace;
  }
  commands_.Close();
  if (thread_.joinable()) thread_.join();
}

void TeacherWorker::Run() {
  while (true) {
    const bool may_wait = turns_.empty() && !desk_.has_work();
    std::optional<Command> command =
        may_wait ? commands_.Pop() : commands_.PopFor(absl::ZeroDuration());
    if (command.has_value()) (*command)();
    // Further requests may wait behind this one.
    const bool takes_turns =
        !turns_.empty() && (FullSet().has_value() || !command.has_value());
    if (takes_turns) {
      TakeTurns();
    } else if (!command.has_value() && commands_.drained()) {
      return;
    } else if (!command.has_value()) {
      ComputeAhead();
    }
    // A worker keeps no chunks between two steps.
    if ((command.has_value() || takes_turns) && turns_.empty() &&
        desk_.open() == 0 && commands_.size() == 0) {
      scorer_->Forget();
    }
    if (observer_.on_load) {
      observer_.on_load(static_cast<int64_t>(commands_.size() + turns_.size()));
    }
    if (observer_.on_open_prefixes) {
      observer_.on_open_prefixes(static_cast<int64_t>(desk_.open()));
    }
  }
}

void TeacherWorker::ComputeAhead() {
  const absl::Time start = SteadyNow();
  DAPD_FAILPOINT("worker.before_chunk");
  const absl::StatusOr<int64_t> tokens = desk_.Advance(*scorer_);
  device_.Note(tokens.status());
  if (!tokens.ok()) {
    // The request itself will meet the same error and report it.
    LogWarning(absl::StrCat("computing ahead of a request failed: ",
                            std::string(tokens.status().message())));
  } else if (*tokens > 0 && observer_.on_ahead) {
    observer_.on_ahead(*tokens, absl::ToDoubleSeconds(SteadyNow() - start));
  }
}

bool TeacherWorker::IsOverdue() const {
  MutexLock lock(&mutex_);
  return SteadyNow() > deadline_;
}

bool TeacherWorker::Deliver(TeacherEvent event, TeacherOutbox& outbox) const {
  while (!outbox.PushFor(event, kGivesUpPoll)) {
    if (outbox.closed()) return false;
    if (IsOverdue()) outbox.Close();
  }
  return true;
}

absl::Status TeacherWorker::CheckTurn(const TeacherRequest& request) {
  if (IsOverdue()) return ShuttingDown();
  return served_.Check(
      request.input.weights, request.policy_version, request.adapter_digest);
}

void TeacherWorker::End(const Turn& turn,
                        std::variant<ScoreFinished, absl::Status> end) {
  const bool is_ok = std::holds_alternative<ScoreFinished>(end);
  if (observer_.on_request) observer_.on_request(is_ok ? "ok" : "failed");
  TeacherEvent event{.request_id = turn.request->request_id};
  std::visit([&](auto& content) { event.content = std::move(content); }, end);
  Deliver(std::move(event), *turn.outbox);
}

std::optional<WeightSet> TeacherWorker::FullSet() const {
  for (const Turn& turn : turns_) {
    const WeightSet set = turn.request->input.weights;
    const auto count = std::ranges::count_if(turns_, [set](const Turn& other) {
      return other.request->input.weights == set;
    });
    if (count >= scorer_->most_together()) return set;
  }
  return std::nullopt;
}

WeightSet TeacherWorker::NextSet() {
  const WeightSet oldest = turns_.front().request->input.weights;
  const WeightSet wanted = FullSet().value_or(oldest);
  passed_over_ = wanted != oldest && !passed_over_;
  return passed_over_ ? wanted : oldest;
}

void TeacherWorker::TakeTurns() {
  const std::vector<Turn> turns = TakeNextTurns();
  if (!turns.empty()) ReportTurns(turns, ScoreTurns(turns));
}

std::vector<TeacherWorker::Turn> TeacherWorker::TakeNextTurns() {
  const WeightSet set = NextSet();
  std::vector<Turn> taken;
  std::vector<Turn> left;
  for (Turn& turn : turns_) {
    const bool is_full =
        static_cast<int64_t>(taken.size()) == scorer_->most_together();
    (turn.request->input.weights == set && !is_full ? taken : left)
        .push_back(std::move(turn));
  }
  turns_ = std::move(left);
  std::vector<Turn> turns;
  for (Turn& turn : taken) {
    turn.ahead = desk_.Close(turn.outbox.get(), turn.request->request_id);
    if (turn.outbox->closed()) continue;
    if (const absl::Status status = CheckTurn(*turn.request); !status.ok()) {
      End(turn, status);
    } else {
      turns.push_back(std::move(turn));
    }
  }
  return turns;
}

TeacherWorker::Scored TeacherWorker::ScoreTurns(
    const std::vector<Turn>& turns) {
  absl::Duration waiting;  // time that clients took
  std::vector<ScoreJob> jobs;
  for (const Turn& turn : turns) {
    jobs.push_back({&turn.request->input, [&](ViewScores scores) {
                      return SendScores(turn, std::move(scores), &waiting);
                    }});
  }
  const absl::Time begin = absl::Now();
  const absl::Time start = SteadyNow();
  DAPD_FAILPOINT("worker.before_score");
  Scored scored = {.outcomes = scorer_->ScoreTogether(jobs)};
  const absl::Duration taken = SteadyNow() - start;
  scored.span = {begin, begin + taken};
  scored.seconds = absl::ToDoubleSeconds(taken - waiting);
  // One computation counts once, however many requests it fails.
  const auto failed =
      std::ranges::find_if(scored.outcomes, [](const auto& outcome) {
        return absl::IsInternal(outcome.status()) ||
               absl::IsAborted(outcome.status());
      });
  device_.Note(failed == scored.outcomes.end() ? absl::OkStatus()
                                               : failed->status());
  return scored;
}

bool TeacherWorker::SendScores(const Turn& turn,
                               ViewScores scores,
                               absl::Duration* waiting) const {
  const absl::Time start = SteadyNow();
  if (observer_.on_payload) observer_.on_payload(NumBytes(scores));
  const bool is_wanted =
      Deliver({turn.request->request_id, std::move(scores)}, *turn.outbox);
  *waiting += SteadyNow() - start;
  return is_wanted;
}

void TeacherWorker::ReportTurns(const std::vector<Turn>& turns,
                                const Scored& scored) {
  int64_t all_tokens = 0;
  for (const auto& outcome : scored.outcomes) {
    if (outcome.ok()) all_tokens += NumTokens(*outcome);
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    if (!scored.outcomes[i].ok()) {
      End(turn, scored.outcomes[i].status());
      continue;
    }
    const ScoreWork& work = *scored.outcomes[i];
    const double share =
        turns.size() == 1
            ? 1.0
            : static_cast<double>(NumTokens(work)) /
                  static_cast<double>(std::max<int64_t>(all_tokens, 1));
    const double seconds = share * scored.seconds;
    if (observer_.on_scored) {
      observer_.on_scored(NumScoredTokens(turn.request->input), seconds);
    }
    if (observer_.on_work) observer_.on_work(work);
    DAPD_FAILPOINT("worker.after_score");
    End(turn,
        ScoreFinished{.policy = served_.Of(turn.request->input.weights),
                      .compute_seconds = seconds,
                      .ahead_seconds = turn.ahead.seconds,
                      .work = work,
                      .scored = scored.span,
                      .ahead = turn.ahead.spans});
  }
}

absl::StatusOr<LoadResult> TeacherWorker::Switch(const AdapterUpload& upload) {
  DAPD_FAILPOINT("worker.before_adapter");
  const ServedPolicy old = served_.Of(upload.set);
  ASSIGN_OR_RETURN(const bool is_served, IsServedAlready(old, upload));
  if (is_served || upload.set == WeightSet::kBase) {
    absl::StatusOr<AppliedAdapter> probed =
        scorer_->Probe(upload.set, upload.probe_ids);
    device_.Note(probed.status());
    ASSIGN_OR_RETURN(AppliedAdapter applied, std::move(probed));
    return LoadResult{upload.set, served_.Keep(upload), std::move(applied)};
  }
  absl::StatusOr<AppliedAdapter> loaded = scorer_->Load(upload);
  device_.Note(loaded.status());
  ASSIGN_OR_RETURN(AppliedAdapter applied, std::move(loaded));
  ServedPolicy fresh{true, upload.version, upload.adapter.digest, upload.key};
  served_.Set(upload.set, fresh);
  desk_.CloseSet(upload.set);
  DAPD_FAILPOINT("worker.after_adapter");
  if (observer_.on_policy) observer_.on_policy(upload.set, fresh);
  return LoadResult{upload.set, std::move(fresh), std::move(applied)};
}

}  // namespace dapd
