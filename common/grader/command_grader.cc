#include "common/grader/command_grader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/exit_code.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr char kName[] = "the grader";
constexpr int kAttempts = 2;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr int kMostDoublings = 5;
constexpr absl::Duration kLongestPause = absl::Seconds(2);
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);
constexpr size_t kMaxLoggedBytes = 1000;  // of a line

// Returns a function that logs the first lines of a program's stderr. Programs
// that replace each other have one count: a program that always fails fills no
// log.
LineRelay::Sink LogLines() {
  auto lines = std::make_shared<int>(0);
  return [lines](absl::string_view line) {
    if (*lines > kMaxLoggedLines) return;
    if (++*lines > kMaxLoggedLines) {
      LogInfo("the grader writes more to its stderr, which is not logged");
      return;
    }
    LogInfo(absl::StrCat("the grader says: ",
                         Printable(line.substr(0, kMaxLoggedBytes))));
  };
}

LineProcessOptions MakeProcessOptions(const GraderSection& options,
                                      std::function<bool()> gives_up) {
  return {.max_line_bytes = static_cast<size_t>(options.max_output_bytes),
          .memory_bytes = static_cast<uint64_t>(options.memory_mib) << 20,
          .on_error_line = LogLines(),
          .gives_up = std::move(gives_up)};
}

Ungraded ReasonOf(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return Ungraded::kTimeout;
  if (absl::IsResourceExhausted(status)) return Ungraded::kTooLong;
  if (absl::IsInvalidArgument(status)) return Ungraded::kNonsense;
  return Ungraded::kEnded;
}

bool IsProgram(const std::string& path) {
  struct stat file = {};
  return ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

absl::Status CheckGraderCommand(const std::vector<std::string>& command) {
  const std::string& program = command.front();
  if (program.find('/') != std::string::npos) {
    if (IsProgram(program)) return absl::OkStatus();
    return ConfigError(absl::StrCat("grader.command: ",
                                    Printable(program),
                                    " is not a file that can be executed"));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (IsProgram(absl::StrCat(folder.empty() ? "." : folder, "/", program))) {
      return absl::OkStatus();
    }
  }
  return ConfigError(absl::StrCat(
      "grader.command: there is no program '",
      Printable(program),
      "' in PATH",
      program.find(' ') == std::string::npos
          ? ""
          : "; the program and each argument are entries of a list: [python3, "
            "grade.py]"));
}

CommandGrader::CommandGrader(GraderSection options,
                             std::function<bool()> gives_up)
    : options_(std::move(options)),
      gives_up_(std::move(gives_up)),
      process_(
          kName, options_.command, MakeProcessOptions(options_, gives_up_)) {}

std::vector<GraderResult> CommandGrader::Grade(
    std::span<const GraderQuestion> questions) {
  std::vector<GraderResult> results;
  for (const GraderQuestion& question : questions) {
    results.push_back(GradeOne(question));
  }
  return results;
}

GraderResult CommandGrader::GradeOne(const GraderQuestion& question) {
  absl::Status failure;
  for (int attempt = 0; attempt < kAttempts && !gives_up_(); ++attempt) {
    absl::StatusOr<GraderResult> result = Try(question);
    if (result.ok()) {
      failures_ = 0;
      return *std::move(result);
    }
    failure = result.status();
    // Otherwise its late output would be taken for the next grade.
    process_.Kill();
    ++failures_;
  }
  return {.ungraded = ReasonOf(failure),
          .error = std::string(failure.message())};
}

absl::Status CommandGrader::EnsureRunning() {
  if (process_.running()) return absl::OkStatus();
  if (failures_ > 0) {
    const absl::Duration pause =
        std::min(kLongestPause,
                 kFirstPause * (1 << std::min(failures_ - 1, kMostDoublings)));
    const absl::Time again = SteadyNow() + pause;
    while (SteadyNow() < again && !gives_up_()) absl::SleepFor(kLookInterval);
  }
  return process_.Start();
}

absl::StatusOr<GraderResult> CommandGrader::Try(
    const GraderQuestion& question) {
  RETURN_IF_ERROR(EnsureRunning());
  const absl::Time deadline =
      SteadyNow() + absl::Seconds(options_.timeout_seconds);
  RETURN_IF_ERROR(process_.Write(QuestionJson(question), deadline));
  ASSIGN_OR_RETURN(const std::string line, process_.Read(deadline));
  const auto message = ParseJson(line, kName);
  if (!message.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        kName, " wrote no JSON: ", Printable(Utf8Head(line, 200))));
  }
  auto result = ParseGraderResult(
      *message, question.id, static_cast<size_t>(options_.max_feedback_bytes));
  if (result.ok()) return result;
  return absl::InvalidArgumentError(
      absl::StrCat(kName, " wrote no grade: ", result.status().message()));
}

}  // namespace dapd
