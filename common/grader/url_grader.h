// UrlGrader: grades answers by a service (grader.url) that gets {"answers":
// [...]} in a POST and returns {"grades": [...]} (grader_messages.h), in any
// order.
//
// A request that fails for a passing reason (no connection, HTTP status 408,
// 429 or 5xx, no response in grader.timeout_seconds) is sent again up to
// grader.retries times: after the time that the response asks for by its header
// Retry-After, but after grader.timeout_seconds at most; otherwise after pauses
// that double. Answers whose grade is missing from a response, or is
// none, are sent once more without the others.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/grader/answer_grading.h"
#include "common/notify/http_post.h"

namespace dapd {

// Returns the target of grader.url, with its files read. Returns the errors of
// LoadHttpTarget.
absl::StatusOr<HttpTarget> LoadGraderTarget(const GraderSection& options);

class UrlGrader final : public AnswerGrading {
 public:
  // `gives_up` must be quick and thread-safe.
  UrlGrader(GraderSection options,
            HttpTarget target,
            std::function<bool()> gives_up);

  size_t max_questions() const override {
    return static_cast<size_t>(options_.batch);
  }
  std::vector<GraderResult> Grade(
      std::span<const GraderQuestion> questions) override;

 private:
  // Returns the body of the response.
  absl::StatusOr<std::string> Post(std::span<const GraderQuestion> questions);

  const GraderSection options_;
  const HttpTarget target_;
  const std::function<bool()> gives_up_;
};

}  // namespace dapd
