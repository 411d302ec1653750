// GradingDesk: grades answers by a grader of the user's own, while others go
// on.
//
// A grader may think for minutes, so nobody who has other work waits for it.
// The collector of answers (services/trainer/step/sample_pipeline.h) submits
// each answer as it comes in and takes grades as they are ready; a sample is
// ready once all of its grades are there. grader.workers threads of the desk do
// the waiting: each has one program (command_grader.h) or one open request at a
// time (url_grader.h). The compute thread never comes here.
//
// The order in which answers are graded, and the worker that grades an answer,
// change no result: grades are placed by the ticket. A grader may answer
// otherwise when it is asked again, so the ledger
// (services/trainer/record/ledger.h) keeps its first result.
//
// The queue needs no bound of its own: it holds at most the answers of the
// steps that are open, whose number the configuration bounds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/config/config.h"
#include "common/grader/answer_grading.h"

namespace dapd {

// Follows the desk's work, for metrics. Called by its threads, at the same
// time.
struct GradingObserver {
  // Gets each result, and the seconds that its answer waited for it.
  std::function<void(const GraderResult& result, double seconds)> on_result;
};

struct GradedTicket {
  uint64_t ticket = 0;  // of Submit
  GraderResult result;
};

// Thread-safe.
class GradingDesk {
 public:
  // `options` must have a command or a URL. Reads the secret and looks for the
  // program, but starts nothing before the first answer is there. Returns the
  // errors of CheckGraderCommand and LoadGraderTarget.
  static absl::StatusOr<std::unique_ptr<GradingDesk>> Open(
      const GraderSection& options, GradingObserver observer = {});
  // Kills the programs, and gives up the requests.
  ~GradingDesk();
  GradingDesk(const GradingDesk&) = delete;
  GradingDesk& operator=(const GradingDesk&) = delete;

  // Puts an answer into the queue; returns its ticket, from 1. The id of the
  // question is set to the ticket.
  uint64_t Submit(GraderQuestion question);

  // Returns a result, whichever is ready first; waits up to `timeout` for it.
  // Returns CANCELLED after Shutdown. With grader.on_error: fail, returns
  // UNAVAILABLE instead of an ungraded result.
  absl::StatusOr<std::optional<GradedTicket>> NextWithin(
      absl::Duration timeout);

  // Forgets all tickets: answers that wait are not graded.
  void Forget();

  // Ends every wait. Results that are still to come are dropped.
  void Shutdown();

 private:
  struct Waiting {
    uint64_t ticket = 0;
    GraderQuestion question;
    absl::Time since;
  };

  GradingDesk(const GraderSection& options, GradingObserver observer);
  void Work(AnswerGrading& grading);
  // Returns at most `most` waiting answers; none after Shutdown.
  std::vector<Waiting> Take(size_t most);
  void Deliver(const Waiting& waiting, GraderResult result);

  const OnUngraded on_error_;
  const GradingObserver observer_;
  Mutex mutex_;
  CondVar submitted_;
  CondVar delivered_;
  uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t first_ticket_ ABSL_GUARDED_BY(mutex_) = 1;  // that is not forgotten
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<GradedTicket> results_ ABSL_GUARDED_BY(mutex_);
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t ungraded_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<AnswerGrading>> gradings_;
  std::vector<std::jthread> threads_;
};

}  // namespace dapd
