#include "services/rollout/rollout_worker.h"

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

constexpr size_t kMaxCommands = 256;

absl::Status ShuttingDown() {
  return absl::UnavailableError("this rollout worker is shutting down");
}

}  // namespace

RolloutWorker::RolloutWorker(std::unique_ptr<Sampler> sampler, Options options)
    : options_(std::move(options)),
      sampler_(std::move(sampler)),
      device_(options_.on_broken),
      commands_(kMaxCommands),
      thread_([this] { Run(); }) {}

RolloutWorker::~RolloutWorker() { Shutdown(absl::ZeroDuration()); }

void RolloutWorker::Submit(uint64_t request_id,
                           DecodeRequest request,
                           ServedPolicy policy,
                           std::shared_ptr<GenerationOutbox> outbox) {
  const SampleTimes times = {.arrived = absl::Now()};
  const absl::Time arrival = SteadyNow();
  Sequence sequence{request_id,
                    std::move(request),
                    std::move(policy),
                    outbox,
                    WaitForPlace(*outbox),
                    times,
                    arrival};
  if (sequence.place == nullptr ||
      !commands_.Push(
          [this, sequence = std::move(sequence)] { Admit(sequence); })) {
    outbox->Fail(request_id, ShuttingDown());
  }
}

RolloutWorker::Place RolloutWorker::WaitForPlace(
    const GenerationOutbox& outbox) {
  MutexLock lock(&mutex_);
  while (!draining_ && !outbox.done() &&
         places_taken_ >= options_.max_waiting) {
    places_changed_.Wait(&mutex_);
  }
  if (draining_ || outbox.done()) return nullptr;
  ++places_taken_;
  return {this, [](RolloutWorker* worker) { worker->LeavePlace(); }};
}

void RolloutWorker::LeavePlace() {
  MutexLock lock(&mutex_);
  --places_taken_;
  places_changed_.NotifyAll();
}

void RolloutWorker::CancelStream(std::shared_ptr<GenerationOutbox> outbox) {
  outbox->Abandon();
  {
    MutexLock lock(&mutex_);
    places_changed_.NotifyAll();
  }
  commands_.Push([this, outbox] { Cancel(outbox.get()); });
}

absl::StatusOr<LoadResult> RolloutWorker::Load(
    AdapterUpload upload, const std::function<bool()>& cancelled) {
  if (draining_) return ShuttingDown();
  return LoadOnComputeThread(
      std::move(upload),
      commands_,
      [this](const AdapterUpload& adapter) { return Switch(adapter); },
      cancelled);
}

void RolloutWorker::Shutdown(absl::Duration grace) {
  {
    const absl::Time deadline = SteadyNow() + grace;
    MutexLock lock(&mutex_);
    draining_ = true;
    places_changed_.NotifyAll();
    while (!is_idle_ && SteadyNow() < deadline) {
      drained_.WaitFor(&mutex_, deadline - SteadyNow());
    }
  }
  commands_.Close();
  if (thread_.joinable()) thread_.join();
}

void RolloutWorker::Run() {
  ReportLoad();
  while (true) {
    {
      MutexLock lock(&mutex_);
      is_idle_ = idle() && commands_.size() == 0;
      if (is_idle_) drained_.NotifyAll();
    }
    std::optional<Command> command =
        idle() ? commands_.Pop() : commands_.PopFor(absl::ZeroDuration());
    if (command.has_value()) {
      (*command)();
      continue;
    }
    if (commands_.drained()) break;
    StartWaiting();
    if (!running_.empty()) Step();
    ReportLoad();
  }
  FailAll(ShuttingDown());
}

void RolloutWorker::Admit(Sequence sequence) {
  // The stream may have died, and its Cancel may have come before this request.
  if (sequence.outbox->done()) return;
  const absl::Status fit = served_.Check(
      WeightSet::kLive, sequence.policy.version, sequence.policy.digest);
  if (!fit.ok()) return Fail(sequence, fit);
  waiting_.push_back(std::move(sequence));
}

void RolloutWorker::StartWaiting() {
  while (!waiting_.empty() && sampler_->num_free() > 0) {
    Sequence sequence = std::move(waiting_.front());
    waiting_.pop_front();
    sequence.place.reset();
    const uint64_t id = next_id_++;
    sequence.times.started = absl::Now();
    sequence.times.slot = FreeSlot();
    DAPD_FAILPOINT("worker.before_prefill");
    const absl::Status status = sampler_->Submit(id, sequence.request);
    if (!status.ok()) {
      Fail(sequence, status);
      continue;
    }
    running_.emplace(id, std::move(sequence));
  }
}

uint32_t RolloutWorker::FreeSlot() const {
  std::vector<bool> taken(running_.size() + 1);
  for (const auto& [id, sequence] : running_) {
    const uint32_t slot = sequence.times.slot;
    if (slot < taken.size()) taken[slot] = true;
  }
  return static_cast<uint32_t>(std::ranges::find(taken, false) - taken.begin());
}

absl::StatusOr<std::vector<SampledToken>> RolloutWorker::Compute() {
  RETURN_IF_ERROR(DAPD_FAILPOINT_STATUS("worker.before_token"));
  return sampler_->Step();
}

void RolloutWorker::Step() {
  const absl::Time start = SteadyNow();
  const absl::StatusOr<std::vector<SampledToken>> tokens = Compute();
  if (!tokens.ok()) {
    LogError(absl::StrCat("decode step failed: ",
                          std::string(tokens.status().message())));
    // First, so that requests go to other workers if this ends the process.
    device_.Note(tokens.status());
    // Requests that have not started may fit.
    if (absl::IsResourceExhausted(tokens.status())) {
      FailRunning(tokens.status());
    } else {
      FailAll(tokens.status());
    }
    return;
  }
  device_.Note(absl::OkStatus());
  int64_t new_tokens = 0;
  for (const SampledToken& token : *tokens) {
    const auto found = running_.find(token.id);
    if (found == running_.end()) continue;
    Sequence& sequence = found->second;
    const uint64_t request_id = sequence.request_id;
    if (!token.error.ok()) {
      LogWarning(absl::StrCat("an answer failed: ",
                              std::string(token.error.message())));
      Fail(sequence, token.error);
      running_.erase(found);
      continue;
    }
    ++new_tokens;
    if (sequence.num_tokens == 0) {
      sequence.times.first_token = absl::Now();
      sequence.to_first_token = SteadyNow() - sequence.arrival;
    }
    sequence.outbox->AddToken(
        request_id, sequence.num_tokens++, token.token, token.logprob);
    if (token.finish_reason == FinishReason::kNone) continue;
    DAPD_FAILPOINT("worker.before_answer");
    sequence.times.ended = absl::Now();
    sequence.outbox->Finish(request_id,
                            token.finish_reason,
                            sequence.num_tokens,
                            served_.Of(WeightSet::kLive),
                            sequence.times,
                            token.cost);
    DAPD_FAILPOINT("worker.after_answer");
    Report(sequence, token.finish_reason);
    running_.erase(found);
  }
  if (options_.observer.on_step) {
    options_.observer.on_step(new_tokens,
                              absl::ToDoubleSeconds(SteadyNow() - start));
  }
}

void RolloutWorker::Cancel(const GenerationOutbox* outbox) {
  for (auto it = running_.begin(); it != running_.end();) {
    if (it->second.outbox.get() == outbox) {
      sampler_->Cancel(it->first);
      it = running_.erase(it);
    } else {
      ++it;
    }
  }
  std::erase_if(waiting_,
                [&](const Sequence& s) { return s.outbox.get() == outbox; });
  ReportLoad();
}

absl::StatusOr<LoadResult> RolloutWorker::Switch(const AdapterUpload& upload) {
  const ServedPolicy old = served_.Of(WeightSet::kLive);
  ASSIGN_OR_RETURN(const bool is_served, IsServedAlready(old, upload));
  if (is_served) {
    absl::StatusOr<AppliedAdapter> probed = sampler_->Probe(upload.probe_ids);
    device_.Note(probed.status());
    ASSIGN_OR_RETURN(AppliedAdapter applied, std::move(probed));
    return LoadResult{
        WeightSet::kLive, served_.Keep(upload), std::move(applied)};
  }
  const ServedPolicy fresh{
      true, upload.version, upload.adapter.digest, upload.key};
  DAPD_FAILPOINT("worker.before_adapter");
  FailAll(absl::FailedPreconditionError(
      absl::StrCat("the policy changed to ",
                   PolicyName(fresh.version, fresh.digest),
                   " while this request was sampled")));
  absl::StatusOr<AppliedAdapter> loaded = sampler_->Load(upload);
  device_.Note(loaded.status());
  ASSIGN_OR_RETURN(AppliedAdapter applied, std::move(loaded));
  served_.Set(WeightSet::kLive, fresh);
  DAPD_FAILPOINT("worker.after_adapter");
  if (options_.observer.on_policy) options_.observer.on_policy(fresh);
  return LoadResult{WeightSet::kLive, fresh, std::move(applied)};
}

void RolloutWorker::Fail(const Sequence& sequence, const absl::Status& error) {
  sequence.outbox->Fail(sequence.request_id, error);
  Report(sequence, FinishReason::kNone);
}

void RolloutWorker::Report(const Sequence& sequence,
                           FinishReason finish_reason) const {
  if (!options_.observer.on_request) return;
  options_.observer.on_request(
      {.finish_reason = finish_reason,
       .prompt_tokens =
           static_cast<int64_t>(sequence.request.prompt_ids.size()),
       .answer_tokens = sequence.num_tokens,
       .seconds_to_first_token = absl::ToDoubleSeconds(sequence.to_first_token),
       .seconds = absl::ToDoubleSeconds(SteadyNow() - sequence.arrival)});
}

void RolloutWorker::FailRunning(const absl::Status& error) {
  for (const auto& [id, sequence] : running_) {
    sampler_->Cancel(id);
    Fail(sequence, error);
  }
  running_.clear();
}

void RolloutWorker::FailAll(const absl::Status& error) {
  FailRunning(error);
  for (const Sequence& sequence : waiting_) Fail(sequence, error);
  waiting_.clear();
  ReportLoad();
}

void RolloutWorker::ReportLoad() {
  const RolloutObserver& observer = options_.observer;
  if (observer.on_load) {
    observer.on_load(static_cast<int64_t>(running_.size()),
                     static_cast<int64_t>(waiting_.size()));
  }
  if (observer.on_kv_use) observer.on_kv_use(sampler_->kv_use());
}

}  // namespace dapd
