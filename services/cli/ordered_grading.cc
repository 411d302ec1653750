#include "services/cli/ordered_grading.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<std::unique_ptr<OrderedGrading>> OrderedGrading::Open(
    const GraderSection& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<GradingDesk> desk,
                   GradingDesk::Open(options));
  // Enough for every worker to find its next answers.
  const int64_t at_a_time = options.url.empty() ? 1 : options.batch;
  return std::unique_ptr<OrderedGrading>(new OrderedGrading(
      std::move(desk), static_cast<size_t>(4 * options.workers * at_a_time)));
}

absl::Status OrderedGrading::Add(GraderQuestion question, Done done) {
  const uint64_t ticket = desk_->Submit(std::move(question));
  waiting_.push_back({ticket, std::move(done)});
  return Drain(most_waiting_);
}

absl::Status OrderedGrading::Finish() { return Drain(0); }

absl::Status OrderedGrading::Drain(size_t most) {
  while (!waiting_.empty()) {
    if (const auto found = results_.find(waiting_.front().ticket);
        found != results_.end()) {
      const GraderResult result = std::move(results_.extract(found).mapped());
      const Done done = std::move(waiting_.front().done);
      waiting_.pop_front();
      ungraded_ += result.ungraded.has_value() ? 1 : 0;
      RETURN_IF_ERROR(done(result));
      continue;
    }
    const bool waits = waiting_.size() > most;
    ASSIGN_OR_RETURN(std::optional<GradedTicket> graded,
                     desk_->NextWithin(waits ? absl::InfiniteDuration()
                                             : absl::ZeroDuration()));
    if (!graded.has_value()) return absl::OkStatus();
    results_[graded->ticket] = std::move(graded->result);
  }
  return absl::OkStatus();
}

}  // namespace dapd
