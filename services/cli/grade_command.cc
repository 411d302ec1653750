// dapd grade: grades answers.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/data/expected_answer.h"
#include "common/data/grade_answer.h"
#include "common/data/json_text.h"
#include "common/data/unread_row_keys.h"
#include "services/cli/answer_grader.h"
#include "services/cli/answer_record.h"
#include "services/cli/command.h"
#include "services/cli/math_verify_grader.h"
#include "services/cli/ordered_grading.h"

namespace dapd {
namespace {

struct GradeOptions {
  std::string input;
  std::string output;
  std::string grader = "builtin";
  std::string python;
  std::string config;  // empty: none
  std::vector<std::string> overrides;
  double answer_timeout = 30.0;
  int64_t restarts = 100;
};

absl::StatusOr<std::unique_ptr<AnswerGrader>> MakeGrader(
    const GradeOptions& options) {
  if (options.grader == "builtin") return MakeBuiltinGrader();
  return StartMathVerify(
      {.command = MathVerifyCommand(options.python),
       .answer_timeout = absl::Seconds(options.answer_timeout),
       .restarts = options.restarts});
}

// Returns a text, number or truth value as it is written.
absl::StatusOr<std::string> TextOf(const nlohmann::json& row,
                                   const char* key,
                                   const std::string& where) {
  const auto found = row.is_object() ? row.find(key) : row.end();
  if (found == row.end() || found->is_structured() || found->is_null()) {
    return DataError(absl::StrCat(where,
                                  ": a row needs id, text and answer, and '",
                                  key,
                                  "' as a string or a number"));
  }
  return JsonText(*found, absl::StrCat(where, ": '", key, "'"));
}

// Returns the text at `key`; empty if there is none.
std::string TextIfAny(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>()
                                                  : "";
}

// Grades with the grader of the configuration.
absl::Status GradeByConfig(const GradeOptions& options,
                           const GraderSection& grader) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OrderedGrading> grading,
                   OrderedGrading::Open(grader));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  Progress progress("answers");
  int64_t graded = 0;
  int64_t correct = 0;
  RETURN_IF_ERROR(ForEachJsonLine(
      options.input, [&](const nlohmann::json& row, int line) -> absl::Status {
        const std::string where = absl::StrCat(options.input, ":", line);
        GraderQuestion question;
        ASSIGN_OR_RETURN(question.answer, TextOf(row, "text", where));
        ASSIGN_OR_RETURN(question.problem_id, TextOf(row, "id", where));
        if (row.contains("answer")) {
          ASSIGN_OR_RETURN(const std::string answer,
                           TextOf(row, "answer", where));
          question.expected = ExpectedAnswer(answer, "");
        }
        question.problem = TextIfAny(row, "problem");
        question.reference = TextIfAny(row, "reference");
        question.row_json = row.dump();
        nlohmann::ordered_json out = {{"id", row["id"]}};
        // Rows of `dapd eval` have this key.
        if (row.contains("sample")) out["sample"] = row["sample"];
        out["extracted"] = nullptr;
        if (const auto box = ExtractBoxed(question.answer); box.has_value()) {
          out["extracted"] = *box;
        }
        return grading->Add(
            std::move(question),
            [&, out = std::move(out)](const GraderResult& result) mutable {
              out["correct"] = result.correct;
              AddGivenGrade(result, &out);
              if (result.ungraded.has_value()) out["error"] = result.error;
              correct += result.correct ? 1 : 0;
              progress.Update(++graded, absl::StrCat(correct, " right"));
              return writer.Append(out);
            });
      }));
  RETURN_IF_ERROR(grading->Finish());
  RETURN_IF_ERROR(writer.Commit());
  LogInfo(absl::StrCat(correct,
                       " of ",
                       graded,
                       " answers are right, ",
                       grading->ungraded(),
                       " could not be graded"));
  return absl::OkStatus();
}

absl::Status GradeRows(const GradeOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  if (!options.config.empty()) {
    if (options.grader != "builtin") {
      return WithExitCode(
          absl::InvalidArgumentError(
              "--config names a configuration with a grader, and --grader "
              "another grader; give one of the two"),
          ExitCode::kUsage);
    }
    ASSIGN_OR_RETURN(const LoadedConfig loaded,
                     LoadConfig(options.config, options.overrides));
    const GraderSection& grader = loaded.config.grader;
    if (grader.is_given()) return GradeByConfig(options, grader);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<AnswerGrader> grader,
                   MakeGrader(options));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  Progress progress("answers");
  int64_t graded = 0;
  int64_t correct = 0;
  int64_t failed = 0;
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachJsonLine(
      options.input, [&](const nlohmann::json& row, int line) -> absl::Status {
        const std::string where = absl::StrCat(options.input, ":", line);
        ASSIGN_OR_RETURN(const std::string text, TextOf(row, "text", where));
        ASSIGN_OR_RETURN(const std::string answer,
                         TextOf(row, "answer", where));
        ASSIGN_OR_RETURN(const std::string id, TextOf(row, "id", where));
        ASSIGN_OR_RETURN(const TextGrade result,
                         grader->GradeText(text, ExpectedAnswer(answer, "")));
        unread.Add(row, kAnswerKeys, where);
        nlohmann::ordered_json out = {{"id", row["id"]}};
        // Rows of `dapd eval` have this key.
        if (row.contains("sample")) out["sample"] = row["sample"];
        out["extracted"] = nullptr;
        if (result.extracted.has_value()) out["extracted"] = *result.extracted;
        out["correct"] = result.correct;
        if (!result.error.empty()) {
          out["error"] = result.error;
          ++failed;
          LogWarning(absl::StrCat(
              where, ": '", id, "' could not be graded: ", result.error));
        }
        correct += result.correct ? 1 : 0;
        progress.Update(++graded, absl::StrCat(correct, " right"));
        return writer.Append(out);
      }));
  unread.Report(options.input);
  RETURN_IF_ERROR(writer.Commit());
  LogInfo(absl::StrCat(correct,
                       " of ",
                       graded,
                       " answers are right, ",
                       failed,
                       " could not be graded"));
  return absl::OkStatus();
}

}  // namespace

void AddGradeCommand(Command& app) {
  auto options = std::make_shared<GradeOptions>();
  Command command = app.AddSubcommand("grade", "Grades answers");
  command.AddOption("--input", options->input, "JSON Lines {id, text, answer}")
      .Path()
      .Required();
  command
      .AddOption(
          "--output", options->output, "JSON Lines {id, extracted, correct}")
      .Path()
      .Required();
  command
      .AddOption("--grader",
                 options->grader,
                 "builtin, or math-verify in a separate Python process")
      .OneOf({"builtin", "math-verify"})
      .ShowDefault();
  command
      .AddOption("--config",
                 options->config,
                 "YAML configuration whose grader grades (grader.command or "
                 "grader.url)")
      .Path()
      .NotEmpty();
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  command
      .AddOption("--python",
                 options->python,
                 "the Python that has deploy/requirements-grading.txt")
      .Path()
      .NotEmpty()
      .FromEnvironment("DAPD_PYTHON");
  command
      .AddOption("--answer-timeout",
                 options->answer_timeout,
                 "seconds that math-verify has for an answer")
      .Range(0.01, 1e6)
      .ShowDefault();
  command
      .AddOption(
          "--grader-restarts",
          options->restarts,
          "how often a math-verify process that died or hung is restarted")
      .NonNegative()
      .ShowDefault();
  command.Does([options] { return GradeRows(*options); });
}

}  // namespace dapd
