#include "services/cli/answer_grader.h"

#include <utility>

#include "common/data/grade_answer.h"

namespace dapd {
namespace {

class BuiltinGrader final : public AnswerGrader {
 public:
  absl::StatusOr<TextGrade> GradeText(const std::string& text,
                                      const std::string& answer) override {
    Grade grade = GradeAnswer(text, answer);
    TextGrade graded;
    graded.correct = grade.correct;
    if (grade.has_box) graded.extracted = std::move(grade.extracted);
    return graded;
  }
};

}  // namespace

std::unique_ptr<AnswerGrader> MakeBuiltinGrader() {
  return std::make_unique<BuiltinGrader>();
}

}  // namespace dapd
