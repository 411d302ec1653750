// AnswerGrading: one worker of a grader of the user's own, which grades some
// answers and waits for the result. GradingDesk has several of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/grader/grader_messages.h"
#include "common/grader/grader_result.h"

namespace dapd {

// Not thread-safe: each is used by one thread.
class AnswerGrading {
 public:
  virtual ~AnswerGrading() = default;

  // The most questions of a call.
  virtual size_t max_questions() const = 0;

  // Blocks; returns one result for each question, in order. A question that
  // cannot be graded gets a result that says so. Once `gives_up` of its
  // constructor returns true, it returns soon, with any results.
  virtual std::vector<GraderResult> Grade(
      std::span<const GraderQuestion> questions) = 0;
};

}  // namespace dapd
