#include "services/cli/math_verify_grader.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/find_python.h"
#include "common/base/json_lines.h"
#include "common/base/line_process.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

constexpr char kName[] = "the math-verify grader";

class MathVerifyGrader final : public AnswerGrader {
 public:
  explicit MathVerifyGrader(MathVerifyOptions options)
      : options_(std::move(options)), process_(kName, options_.command) {}

  absl::Status Start() {
    RETURN_IF_ERROR(process_.Start());
    const absl::Time deadline = SteadyNow() + options_.start_timeout;
    auto line = process_.Read(deadline);
    if (!line.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot start ",
                       options_.command.front(),
                       ": ",
                       line.status().message(),
                       "; --python names a Python that has "
                       "deploy/requirements-grading.txt"));
    }
    ASSIGN_OR_RETURN(const nlohmann::json greeting, ParseJson(*line, kName));
    if (greeting.is_object() && greeting.contains("ready")) {
      return absl::OkStatus();
    }
    process_.Kill();
    return absl::FailedPreconditionError(absl::StrCat(
        options_.command.front(), " has no math-verify: ", Printable(*line)));
  }

  absl::StatusOr<TextGrade> GradeText(const std::string& text,
                                      const std::string& answer) override {
    if (!process_.running()) RETURN_IF_ERROR(StartAgain());
    absl::StatusOr<TextGrade> graded = Ask(text, answer);
    if (graded.ok()) return graded;
    last_error_ = std::string(graded.status().message());
    if (absl::IsDeadlineExceeded(graded.status())) {
      last_error_ = absl::StrCat("no grade within ",
                                 absl::FormatDuration(options_.answer_timeout));
    }
    process_.Kill();
    TextGrade failed;
    failed.error = last_error_;
    return failed;
  }

 private:
  absl::Status StartAgain() {
    if (restarts_ >= options_.restarts) {
      return absl::UnavailableError(
          absl::StrCat(kName,
                       " died or hung ",
                       restarts_ + 1,
                       " times, the last time with: ",
                       last_error_,
                       "; grade with --grader builtin, or raise "
                       "--grader-restarts"));
    }
    ++restarts_;
    LogWarning(absl::StrCat(kName, " is being restarted (", last_error_, ")"));
    return Start();
  }

  absl::StatusOr<TextGrade> Ask(const std::string& text,
                                const std::string& answer) {
    const absl::Time deadline = SteadyNow() + options_.answer_timeout;
    const nlohmann::json question = {{"text", text}, {"answer", answer}};
    RETURN_IF_ERROR(process_.Write(question.dump(), deadline));
    ASSIGN_OR_RETURN(const std::string line, process_.Read(deadline));
    ASSIGN_OR_RETURN(const nlohmann::json row, ParseJson(line, kName));
    try {
      TextGrade graded;
      if (row.contains("error")) {
        graded.error = row.at("error").get<std::string>();
        return graded;
      }
      if (!row.at("extracted").is_null()) {
        graded.extracted = row.at("extracted").get<std::string>();
      }
      row.at("correct").get_to(graded.correct);
      return graded;
    } catch (const nlohmann::json::exception& error) {
      return absl::DataLossError(
          absl::StrCat(kName, " answered: ", Printable(line)));
    }
  }

  const MathVerifyOptions options_;
  LineProcess process_;
  int64_t restarts_ = 0;
  std::string last_error_;
};

}  // namespace

std::vector<std::string> MathVerifyCommand(const std::string& python) {
  return PythonCommand(python, kMathVerifyScript);
}

absl::StatusOr<std::unique_ptr<AnswerGrader>> StartMathVerify(
    MathVerifyOptions options) {
  auto grader = std::make_unique<MathVerifyGrader>(std::move(options));
  RETURN_IF_ERROR(grader->Start());
  return grader;
}

}  // namespace dapd
