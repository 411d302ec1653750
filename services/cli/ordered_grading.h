// OrderedGrading: grades the answers of a command by a grader of the user's own
// (common/grader/grading_desk.h), several at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/grader/grading_desk.h"

namespace dapd {

// Not thread-safe.
class OrderedGrading {
 public:
  // Gets the result for an answer.
  using Done = std::function<absl::Status(const GraderResult& result)>;

  // Returns the errors of GradingDesk::Open.
  static absl::StatusOr<std::unique_ptr<OrderedGrading>> Open(
      const GraderSection& options);

  // Hands an answer to the grader. Calls the functions of the answers whose
  // grades are there, in the order of Add: `done` of this answer now or later,
  // on this thread. Blocks while too many answers wait. Returns the first error
  // of a function, or of the grader (GradingDesk::NextWithin).
  absl::Status Add(GraderQuestion question, Done done);
  // Blocks until all grades are there.
  absl::Status Finish();

  // Returns the number of results so far without a grade.
  int64_t ungraded() const { return ungraded_; }

 private:
  struct Waiting {
    uint64_t ticket = 0;
    Done done;
  };
  OrderedGrading(std::unique_ptr<GradingDesk> desk, size_t most_waiting)
      : desk_(std::move(desk)), most_waiting_(most_waiting) {}
  // Takes results until at most `most` answers wait.
  absl::Status Drain(size_t most);

  const std::unique_ptr<GradingDesk> desk_;
  const size_t most_waiting_;
  std::deque<Waiting> waiting_;
  std::map<uint64_t, GraderResult> results_;  // of tickets that are not first
  int64_t ungraded_ = 0;
};

}  // namespace dapd
