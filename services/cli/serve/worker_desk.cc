#include "services/cli/serve/worker_desk.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/generation/decode_request_message.h"
#include "common/rpc/status_conversion.h"
#include "dapd/v1/rollout.grpc.pb.h"

namespace dapd {
namespace {

constexpr absl::Duration kDescribeDeadline = absl::Seconds(5);
// How often a worker is asked for its policy.
constexpr absl::Duration kLookInterval = absl::Seconds(1);
// The longest time that a worker takes to change its policy.
constexpr absl::Duration kSwitchTime = absl::Seconds(10);
// How often a worker without a usable answer, or a waiting call, looks again.
constexpr absl::Duration kSoon = absl::Milliseconds(100);

std::chrono::system_clock::time_point SystemTime(absl::Duration from_now) {
  return absl::ToChronoTime(absl::Now() + from_now);
}

}  // namespace

struct WorkerDesk::State {
  struct Worker {
    std::string name;
    std::unique_ptr<v1::RolloutService::Stub> stub;
    absl::Status usable =
        absl::UnavailableError("it has not been asked what it serves yet");
    ServedPolicy policy;
    int64_t places = 1;
    int64_t taken = 0;
    bool look_now = false;
    // A policy that the worker gives up: it failed answers of it, and may still
    // describe it until it has switched. If the switch fails, it keeps it.
    ServedPolicy given_up;
    absl::Time given_up_until = absl::InfinitePast();

    bool IsGivenUp(const v1::AdapterState& policy) const {
      return SteadyNow() < given_up_until &&
             policy.policy_version() == given_up.version &&
             policy.digest() == given_up.digest;
    }
  };

  // Returns the usable worker with the largest share of free places.
  std::optional<size_t> FreeWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::optional<size_t> best;
    double best_share = 0.0;
    for (size_t i = 0; i < workers.size(); ++i) {
      const Worker& worker = workers[i];
      if (!worker.usable.ok() || worker.taken >= worker.places) continue;
      const double share = 1.0 - static_cast<double>(worker.taken) /
                                     static_cast<double>(worker.places);
      if (best.has_value() && share <= best_share) continue;
      best = i;
      best_share = share;
    }
    return best;
  }

  absl::Status Usable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<std::string> faults;
    for (const Worker& worker : workers) {
      if (worker.usable.ok()) return absl::OkStatus();
      faults.push_back(absl::StrCat(
          worker.name, ": ", std::string(worker.usable.message())));
    }
    return absl::UnavailableError(absl::StrCat("no rollout worker can answer: ",
                                               absl::StrJoin(faults, "; ")));
  }

  bool TryTake(size_t worker) {
    MutexLock lock(&mutex);
    Worker& taken_from = workers[worker];
    // Places that are free belong to the waiting calls.
    if (!waiting.empty() || taken_from.taken >= taken_from.places) return false;
    ++taken_from.taken;
    return true;
  }

  // An answer has ended. Its error may say that the worker serves other weights
  // or is gone.
  void GiveBack(size_t worker,
                const ServedPolicy& policy,
                const absl::Status& error) {
    MutexLock lock(&mutex);
    --workers[worker].taken;
    if (absl::IsFailedPrecondition(error)) {
      workers[worker].given_up = policy;
      workers[worker].given_up_until = SteadyNow() + kSwitchTime;
    }
    if (absl::IsFailedPrecondition(error) || absl::IsUnavailable(error)) {
      workers[worker].usable = error;
      workers[worker].look_now = true;
    }
    changed.NotifyAll();
  }

  Mutex mutex;
  CondVar changed;
  std::vector<Worker> workers ABSL_GUARDED_BY(mutex);
  std::deque<uint64_t> waiting ABSL_GUARDED_BY(mutex);  // calls of Start
  uint64_t next_call ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  DeskModel model;
};

namespace {

// The events of a batch, from gRPC's threads to the batch's thread. Bounded by
// the tokens of the answers.
class Inbox {
 public:
  void Add(AnswerEvent event) {
    MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
    changed_.NotifyOne();
  }
  // Ends a wait without an event: a place has become free.
  void Wake() {
    MutexLock lock(&mutex_);
    is_woken_ = true;
    changed_.NotifyOne();
  }
  std::optional<AnswerEvent> PopFor(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = SteadyNow() + timeout;
    while (events_.empty()) {
      const absl::Duration left = deadline - SteadyNow();
      if (is_woken_ || left <= absl::ZeroDuration()) {
        is_woken_ = false;
        return std::nullopt;
      }
      changed_.WaitFor(&mutex_, left);
    }
    AnswerEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<AnswerEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;
};

// One answer: a Generate stream of its own, so that it can be cancelled alone.
// gRPC calls the On... functions one after another. It keeps itself alive until
// the stream has ended.
class Sampling final : public grpc::ClientBidiReactor<v1::GenerateRequest,
                                                      v1::GenerateResponse> {
 public:
  using OnEnded = std::function<void(const absl::Status& error)>;

  static std::shared_ptr<Sampling> Start(v1::RolloutService::Stub* stub,
                                         v1::GenerateRequest request,
                                         size_t answer,
                                         absl::Duration limit,
                                         std::shared_ptr<Inbox> inbox,
                                         OnEnded on_ended) {
    std::shared_ptr<Sampling> sampling(new Sampling(
        std::move(request), answer, std::move(inbox), std::move(on_ended)));
    sampling->self_ = sampling;
    sampling->context_.set_deadline(SystemTime(limit));
    stub->async()->Generate(&sampling->context_, sampling.get());
    sampling->StartWriteLast(&sampling->request_, grpc::WriteOptions());
    sampling->StartRead(&sampling->response_);
    sampling->StartCall();
    return sampling;
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (!ended_) Take();
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status error = FromGrpcStatus(status);
    if (!ended_) {
      if (error.ok()) {
        error = absl::UnavailableError("the worker ended before the answer");
      }
      End(error);
    }
    on_ended_(error_);
    // The reader of the error may ask again at once, so the desk hears of it
    // first.
    if (!error_.ok()) inbox_->Add({.answer = answer_, .error = error_});
    inbox_->Wake();
    const std::shared_ptr<Sampling> last = std::move(self_);
  }

 private:
  Sampling(v1::GenerateRequest request,
           size_t answer,
           std::shared_ptr<Inbox> inbox,
           OnEnded on_ended)
      : request_(std::move(request)),
        answer_(answer),
        inbox_(std::move(inbox)),
        on_ended_(std::move(on_ended)) {}

  // OnDone, which tells the error, follows soon.
  void End(const absl::Status& error) {
    ended_ = true;
    error_ = error;
    context_.TryCancel();
  }

  void Take() {
    if (response_.has_failed()) {
      return End(FromWireError(response_.failed().code(),
                               response_.failed().message()));
    }
    if (response_.has_prompt()) return TakePrompt(response_.prompt());
    if (response_.has_tokens()) return TakeTokens(response_.tokens());
    const v1::GenerationFinished& finished = response_.finished();
    if (finished.policy_version() != request_.policy_version() ||
        finished.adapter_digest() != request_.adapter_digest()) {
      return End(absl::FailedPreconditionError(
          "the answer is of another policy than the request"));
    }
    if (finished.num_tokens() != num_tokens_ || num_tokens_ == 0) {
      return End(absl::DataLossError("the worker's answer is incomplete"));
    }
    const absl::StatusOr<FinishReason> reason =
        ReadFinishReason(finished.reason());
    if (!reason.ok()) return End(reason.status());
    ended_ = true;
    inbox_->Add({.answer = answer_, .finish_reason = *reason});
  }

  // Returns the number of the prompt's tokens that must have a score.
  uint32_t NumScores() const {
    return request_.score_prompt()
               ? static_cast<uint32_t>(request_.prompt_ids_size()) - 1
               : 0;
  }

  void TakePrompt(const v1::PromptScored& prompt) {
    if (prompt.first_index() != num_scores_ + 1 ||
        prompt.logprobs_size() != prompt.top_ids_size() ||
        prompt.logprobs_size() != prompt.top_logprobs_size() ||
        num_scores_ + static_cast<uint32_t>(prompt.logprobs_size()) >
            NumScores()) {
      return End(
          absl::DataLossError("the worker's scores of the prompt are out of "
                              "order"));
    }
    AnswerEvent event{.answer = answer_};
    for (int i = 0; i < prompt.logprobs_size(); ++i) {
      event.prompt_scores.push_back(
          {.logprob = prompt.logprobs(i),
           .top = {.id = prompt.top_ids(i),
                   .logprob = prompt.top_logprobs(i)}});
    }
    num_scores_ += static_cast<uint32_t>(prompt.logprobs_size());
    inbox_->Add(std::move(event));
  }

  void TakeTokens(const v1::TokensSampled& tokens) {
    if (num_scores_ != NumScores()) {
      return End(absl::DataLossError(
          "the worker has not scored the whole prompt: it may be of an older "
          "version"));
    }
    if (tokens.first_index() != num_tokens_ ||
        tokens.ids_size() != tokens.logprobs_size() ||
        num_tokens_ + static_cast<uint32_t>(tokens.ids_size()) >
            request_.sampling().max_new_tokens()) {
      return End(absl::DataLossError("the worker's tokens are out of order"));
    }
    num_tokens_ += static_cast<uint32_t>(tokens.ids_size());
    inbox_->Add(
        {.answer = answer_,
         .ids = {tokens.ids().begin(), tokens.ids().end()},
         .logprobs = {tokens.logprobs().begin(), tokens.logprobs().end()}});
  }

  grpc::ClientContext context_;
  const v1::GenerateRequest request_;
  const size_t answer_;
  const std::shared_ptr<Inbox> inbox_;
  const OnEnded on_ended_;
  v1::GenerateResponse response_;
  uint32_t num_scores_ = 0;
  uint32_t num_tokens_ = 0;
  bool ended_ = false;
  absl::Status error_;
  std::shared_ptr<Sampling> self_;
};

class WorkerBatch final : public AnswerBatch {
 public:
  using StartOne = std::function<std::shared_ptr<Sampling>(
      size_t answer, const std::shared_ptr<Inbox>& inbox)>;

  // `start_next` returns null while no place is free.
  WorkerBatch(ServedPolicy policy, size_t count, StartOne start_next)
      : policy_(std::move(policy)),
        samplings_(count),
        is_over_(count),
        start_(std::move(start_next)) {}
  ~WorkerBatch() override {
    for (const auto& sampling : samplings_) {
      if (sampling != nullptr) sampling->Cancel();
    }
  }

  const ServedPolicy& policy() const override { return policy_; }

  std::optional<AnswerEvent> NextFor(absl::Duration timeout) override {
    const absl::Time deadline = SteadyNow() + timeout;
    while (true) {
      StartMore();
      const absl::Duration left = deadline - SteadyNow();
      const bool waits = next_ < samplings_.size();
      std::optional<AnswerEvent> event =
          inbox_->PopFor(waits ? std::min(left, kSoon) : left);
      if (event.has_value()) {
        if (is_over_[event->answer]) continue;
        if (event->ended()) is_over_[event->answer] = true;
        return event;
      }
      if (left <= absl::ZeroDuration()) return std::nullopt;
    }
  }

  void Cancel(size_t answer) override {
    is_over_[answer] = true;
    if (samplings_[answer] != nullptr) samplings_[answer]->Cancel();
  }

 private:
  void StartMore() {
    while (next_ < samplings_.size()) {
      samplings_[next_] = start_(next_, inbox_);
      if (samplings_[next_] == nullptr) return;
      ++next_;
    }
  }

  const ServedPolicy policy_;
  std::vector<std::shared_ptr<Sampling>> samplings_;
  std::vector<bool> is_over_;
  const StartOne start_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  size_t next_ = 0;
};

// Returns whether the description is of a worker that can answer.
absl::Status CheckDescription(const v1::DescribeResponse& description,
                              const DeskModel& model) {
  if (description.service() != "rollout") {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is a ", description.service(), ", not a rollout worker"));
  }
  if (description.vocab_size() != model.vocab_size ||
      description.hidden_size() != model.hidden_size) {
    return absl::FailedPreconditionError(
        absl::StrCat("it serves another model, with a vocabulary of ",
                     description.vocab_size(),
                     " and hidden size ",
                     description.hidden_size(),
                     " instead of ",
                     model.vocab_size,
                     " and ",
                     model.hidden_size));
  }
  if (!description.adapter().loaded()) {
    return absl::FailedPreconditionError(
        "its trainer has not given it a policy yet");
  }
  return absl::OkStatus();
}

}  // namespace

WorkerDesk::WorkerDesk(std::vector<DeskWorker> workers, const DeskModel& model)
    : state_(std::make_shared<State>()) {
  MutexLock lock(&state_->mutex);
  state_->model = model;
  for (DeskWorker& worker : workers) {
    State::Worker& added = state_->workers.emplace_back();
    added.name = std::move(worker.name);
    added.stub = v1::RolloutService::NewStub(worker.channel);
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    lookers_.emplace_back([this, i] { Look(i); });
  }
}

WorkerDesk::~WorkerDesk() {
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
    state_->changed.NotifyAll();
  }
  lookers_.clear();
  // The cancelled calls end before the channels do.
  MutexLock lock(&state_->mutex);
  const auto is_idle = [](const State::Worker& worker) {
    return worker.taken == 0;
  };
  while (!std::ranges::all_of(state_->workers, is_idle)) {
    state_->changed.Wait(&state_->mutex);
  }
}

void WorkerDesk::Look(size_t index) {
  State& state = *state_;
  state.mutex.Lock();
  while (!state.stopping) {
    v1::RolloutService::Stub* stub = state.workers[index].stub.get();
    state.workers[index].look_now = false;
    state.mutex.Unlock();
    grpc::ClientContext context;
    context.set_deadline(SystemTime(kDescribeDeadline));
    v1::DescribeResponse description;
    absl::Status usable =
        FromGrpcStatus(stub->Describe(&context, {}, &description));
    if (usable.ok()) usable = CheckDescription(description, state.model);
    state.mutex.Lock();
    State::Worker& worker = state.workers[index];
    // The description may be older than the error that asks for a new one.
    if (worker.look_now) continue;
    if (usable.ok() && worker.IsGivenUp(description.adapter())) {
      usable = absl::UnavailableError("it is changing its policy");
    }
    worker.usable = std::move(usable);
    if (worker.usable.ok()) {
      worker.policy = {.loaded = true,
                       .version = description.adapter().policy_version(),
                       .digest = description.adapter().digest()};
      worker.places = std::max<int64_t>(1, description.max_in_flight());
    }
    state.changed.NotifyAll();
    const absl::Time next =
        SteadyNow() + (worker.usable.ok() ? kLookInterval : kSoon);
    while (!state.stopping && !worker.look_now) {
      const absl::Duration left = next - SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      state.changed.WaitFor(&state.mutex, left);
    }
  }
  state.mutex.Unlock();
}

absl::StatusOr<std::unique_ptr<AnswerBatch>> WorkerDesk::Start(
    std::vector<DecodeRequest> requests,
    absl::Time deadline,
    absl::Duration patience,
    const std::function<bool()>& gives_up) {
  State& state = *state_;
  size_t chosen = 0;
  ServedPolicy policy;
  v1::RolloutService::Stub* stub = nullptr;
  {
    MutexLock lock(&state.mutex);
    const uint64_t call = state.next_call++;
    state.waiting.push_back(call);
    absl::Time last_usable = SteadyNow();
    absl::Status failure;
    std::optional<size_t> worker;
    while (failure.ok() && !worker.has_value()) {
      if (state.waiting.front() == call) worker = state.FreeWorker();
      if (worker.has_value()) break;
      const absl::Time now = SteadyNow();
      const absl::Status usable = state.Usable();
      if (usable.ok()) last_usable = now;
      if (gives_up()) {
        failure = absl::CancelledError("the client has left");
      } else if (now - last_usable >= patience) {
        failure = usable;
      } else if (now >= deadline) {
        failure = absl::DeadlineExceededError(
            "all rollout workers were busy until the time for the answer had "
            "passed");
      } else {
        state.changed.WaitFor(&state.mutex, kSoon);
      }
    }
    std::erase(state.waiting, call);
    state.changed.NotifyAll();
    if (!failure.ok()) return failure;
    chosen = *worker;
    ++state.workers[chosen].taken;
    policy = state.workers[chosen].policy;
    stub = state.workers[chosen].stub.get();
  }
  auto shared =
      std::make_shared<const std::vector<DecodeRequest>>(std::move(requests));
  const auto start =
      [state = state_, chosen, policy, stub, shared, deadline](
          size_t answer,
          const std::shared_ptr<Inbox>& inbox) -> std::shared_ptr<Sampling> {
    // The first place was taken by the call.
    if (answer > 0 && !state->TryTake(chosen)) return nullptr;
    v1::GenerateRequest request;
    request.set_request_id(answer);
    WriteRequest((*shared)[answer], &request);
    request.set_policy_version(policy.version);
    request.set_adapter_digest(policy.digest);
    return Sampling::Start(stub,
                           std::move(request),
                           answer,
                           deadline - SteadyNow(),
                           inbox,
                           [state, chosen, policy](const absl::Status& error) {
                             state->GiveBack(chosen, policy, error);
                           });
  };
  return std::make_unique<WorkerBatch>(
      std::move(policy), shared->size(), start);
}

absl::Status WorkerDesk::Usable() const {
  MutexLock lock(&state_->mutex);
  return state_->Usable();
}

}  // namespace dapd
