// GraderResult: what a grader of the user's own says about an answer.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "common/base/enum_names.h"

namespace dapd {

// Why an answer has no grade.
enum class Ungraded {
  kTimeout,      // the grader took too long
  kEnded,        // the program ended
  kNonsense,     // it answered with something else than a grade
  kTooLong,      // it wrote too much
  kUnreachable,  // the service could not be reached, or was too busy
  kRefused,      // the service refused the request
  kDeclined,     // the grader itself says that it cannot grade it
};
constexpr auto NameTable(Ungraded) {
  return std::array{"timeout",
                    "ended",
                    "nonsense",
                    "too_long",
                    "unreachable",
                    "refused",
                    "declined"};
}

struct GraderResult {
  bool correct = false;
  double score = 0.0;    // in [0, 1]
  std::string feedback;  // for the self-teacher; may be empty
  // Set: the grader did not grade the answer, which then counts as not right.
  std::optional<Ungraded> ungraded;
  std::string error;  // for messages: what went wrong

  bool operator==(const GraderResult&) const = default;
};

// Scores from here on count as right if the grader does not say `correct`.
inline constexpr double kRightScore = 0.5;

}  // namespace dapd
