#include "common/grader/grading_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/grader/command_grader.h"
#include "common/grader/url_grader.h"

namespace dapd {
namespace {

// Ungraded answers that are logged one by one; of later ones each hundredth is.
constexpr int64_t kLoggedOneByOne = 5;
constexpr int64_t kLoggedEvery = 100;

std::string Describe(const GraderQuestion& question,
                     const GraderResult& result) {
  return absl::StrCat("an answer to problem '",
                      Printable(question.problem_id),
                      "' could not be graded (",
                      NameOf(*result.ungraded),
                      "): ",
                      result.error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradingDesk>> GradingDesk::Open(
    const GraderSection& options, GradingObserver observer) {
  HttpTarget target;
  if (options.url.empty()) {
    RETURN_IF_ERROR(CheckGraderCommand(options.command));
  } else {
    ASSIGN_OR_RETURN(target, LoadGraderTarget(options));
  }
  std::unique_ptr<GradingDesk> desk(
      new GradingDesk(options, std::move(observer)));
  const auto gives_up = [&desk = *desk] {
    MutexLock lock(&desk.mutex_);
    return desk.is_shut_down_;
  };
  for (int64_t i = 0; i < options.workers; ++i) {
    if (options.url.empty()) {
      desk->gradings_.push_back(
          std::make_unique<CommandGrader>(options, gives_up));
    } else {
      desk->gradings_.push_back(
          std::make_unique<UrlGrader>(options, target, gives_up));
    }
  }
  for (const auto& grading : desk->gradings_) {
    desk->threads_.emplace_back(
        [desk = desk.get(), grading = grading.get()] { desk->Work(*grading); });
  }
  return desk;
}

GradingDesk::GradingDesk(const GraderSection& options, GradingObserver observer)
    : on_error_(options.on_error), observer_(std::move(observer)) {}

GradingDesk::~GradingDesk() {
  Shutdown();
  threads_.clear();
}

uint64_t GradingDesk::Submit(GraderQuestion question) {
  MutexLock lock(&mutex_);
  const uint64_t ticket = ++last_ticket_;
  question.id = absl::StrCat(ticket);
  waiting_.push_back({ticket, std::move(question), SteadyNow()});
  submitted_.NotifyOne();
  return ticket;
}

absl::StatusOr<std::optional<GradedTicket>> GradingDesk::NextWithin(
    absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const absl::Time deadline = SteadyNow() + timeout;
  while (results_.empty() && !is_shut_down_) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    // std's condition variables know no infinite time.
    delivered_.WaitFor(&mutex_, std::min(left, absl::Hours(1)));
  }
  if (is_shut_down_) {
    return absl::CancelledError("the grader was told to stop");
  }
  GradedTicket graded = std::move(results_.front());
  results_.pop_front();
  if (graded.result.ungraded.has_value() && on_error_ == OnUngraded::kFail) {
    return absl::UnavailableError(absl::StrCat(
        graded.result.error,
        "; grader.on_error: ungraded would count such an answer as not right "
        "and go on"));
  }
  return graded;
}

void GradingDesk::Forget() {
  MutexLock lock(&mutex_);
  first_ticket_ = last_ticket_ + 1;
  waiting_.clear();
  results_.clear();
}

void GradingDesk::Shutdown() {
  MutexLock lock(&mutex_);
  is_shut_down_ = true;
  submitted_.NotifyAll();
  delivered_.NotifyAll();
}

std::vector<GradingDesk::Waiting> GradingDesk::Take(size_t most) {
  MutexLock lock(&mutex_);
  while (waiting_.empty() && !is_shut_down_) submitted_.Wait(&mutex_);
  std::vector<Waiting> taken;
  while (!is_shut_down_ && !waiting_.empty() && taken.size() < most) {
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return taken;
}

void GradingDesk::Deliver(const Waiting& waiting, GraderResult result) {
  if (result.ungraded.has_value()) {
    result.error = Describe(waiting.question, result);
  }
  std::string warning;
  {
    MutexLock lock(&mutex_);
    if (is_shut_down_) return;
    if (result.ungraded.has_value()) {
      ++ungraded_;
      if (ungraded_ <= kLoggedOneByOne) {
        warning = result.error;
      } else if (ungraded_ % kLoggedEvery == 0) {
        warning = absl::StrCat(ungraded_, " answers so far; ", result.error);
      }
    }
  }
  // This comes before the result, so that a reader of the result also finds the
  // warning and the metrics.
  if (!warning.empty()) LogWarning(warning);
  if (observer_.on_result) {
    observer_.on_result(result,
                        absl::ToDoubleSeconds(SteadyNow() - waiting.since));
  }
  MutexLock lock(&mutex_);
  if (waiting.ticket < first_ticket_) return;
  results_.push_back({waiting.ticket, std::move(result)});
  delivered_.NotifyOne();
}

void GradingDesk::Work(AnswerGrading& grading) {
  while (true) {
    const std::vector<Waiting> taken = Take(grading.max_questions());
    if (taken.empty()) return;
    std::vector<GraderQuestion> questions;
    for (const Waiting& waiting : taken) questions.push_back(waiting.question);
    std::vector<GraderResult> results = grading.Grade(questions);
    for (size_t i = 0; i < taken.size(); ++i) {
      Deliver(taken[i], std::move(results[i]));
    }
  }
}

}  // namespace dapd
