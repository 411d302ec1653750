// dapd answers: answers of a run's model, before and after training.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "services/cli/answers_text.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

constexpr int kMinWidth = 40;
constexpr int kMaxWidth = 1000;
constexpr int kDefaultWidth = 100;  // unless stdout is a terminal

struct AnswersOptions {
  std::string run;
  int64_t count = 3;
  int64_t step = -1;  // none
  int width = 0;      // the terminal's
  bool is_whole = false;
  bool json = false;
};

int WidthOfOutput() {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kDefaultWidth;
  }
  return std::clamp<int>(size.ws_col, kMinWidth, kMaxWidth);
}

absl::StatusOr<AnswersToShow> ReadAnswers(const AnswersOptions& options) {
  const std::string config = JoinPath(options.run, "config.yaml");
  const absl::Status found = ReadFile(config, kMaxConfigBytes).status();
  if (absl::IsNotFound(found)) {
    return DataError(
        absl::StrCat(options.run, " holds no run: there is no ", config));
  }
  if (!found.ok()) return WithExitCode(found, ExitCode::kData);
  RunAnswers answers;
  RETURN_IF_ERROR(RecallAnswers(options.run, &answers));
  AnswersToShow shown = answers.Get();
  if (options.step < 0) {
    if (!shown.held_out.empty() || options.json) return shown;
    return DataError(
        absl::StrCat(options.run,
                     " holds no held-out answers: it has not been evaluated "
                     "(evaluation.path), or an earlier version evaluated it; "
                     "--step 0 shows the answers of the newest step"));
  }
  const std::string path = JoinPath(options.run, "answers.jsonl");
  const int64_t newest = shown.step.step;
  if (options.step > 0) {
    ASSIGN_OR_RETURN(shown.step, ReadStepAnswers(path, options.step));
  }
  if (shown.step.step == 0) {
    return DataError(newest == 0 ? absl::StrCat(path, " holds no answers yet")
                                 : absl::StrCat(path,
                                                " holds no answers of step ",
                                                options.step,
                                                "; the newest is step ",
                                                newest));
  }
  return shown;
}

absl::Status ShowAnswers(const AnswersOptions& options) {
  ASSIGN_OR_RETURN(const AnswersToShow answers, ReadAnswers(options));
  const AnswersTextOptions form = {
      .count = static_cast<size_t>(options.count),
      .width = static_cast<size_t>(options.width > 0 ? options.width
                                                     : WidthOfOutput()),
      .is_whole = options.is_whole};
  const std::string text = options.json        ? ToJson(answers).dump(2) + "\n"
                           : options.step >= 0 ? StepText(answers.step, form)
                                               : HeldOutText(answers, form);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddAnswersCommand(Command& app) {
  auto options = std::make_shared<AnswersOptions>();
  Command command = app.AddSubcommand(
      "answers",
      "Shows held-out answers before and after training, side by side");
  command.AddOption("run", options->run, "run folder").Path().Required();
  command.AddOption("--count", options->count, "number of held-out problems")
      .Positive()
      .ShowDefault();
  command
      .AddOption("--step",
                 options->step,
                 "the answers of this step instead; 0: of the newest")
      .NonNegative();
  command
      .AddOption("--width",
                 options->width,
                 "columns of text (default: the terminal's)")
      .Range(kMinWidth, kMaxWidth);
  command.AddFlag("--whole",
                  options->is_whole,
                  "print long answers in full, as they were kept");
  command.AddFlag("--json", options->json, "print JSON");
  command.Does([options] { return ShowAnswers(*options); });
}

}  // namespace dapd
