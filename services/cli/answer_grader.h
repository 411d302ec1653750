// AnswerGrader: decides whether an answer is right, for `dapd grade`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

struct TextGrade {
  std::optional<std::string> extracted;  // nothing: no result was found
  bool correct = false;
  std::string error;  // why it could not be graded; it is then not correct
};

class AnswerGrader {
 public:
  virtual ~AnswerGrader() = default;

  // Grades a text. An error means that no further answer can be graded.
  virtual absl::StatusOr<TextGrade> GradeText(const std::string& text,
                                              const std::string& answer) = 0;
};

// Returns the grader of common/data/grade_answer.h.
std::unique_ptr<AnswerGrader> MakeBuiltinGrader();

}  // namespace dapd
