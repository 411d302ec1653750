#include "services/trainer/record/answer_log.h"

#include <cerrno>
#include <fstream>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/aside.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Several times the size of kStepAnswers answers in which every character is
// escaped.
constexpr size_t kMaxAnswerBytes = size_t{1} << 20;

struct Line {
  absl::string_view text;
  int number = 0;    // from 1
  uint64_t end = 0;  // in the file
};

// Returns false to see no further line.
using Visit = std::function<absl::StatusOr<bool>(const Line& line)>;

// A parsed line, whose answers are not parsed yet.
struct StepLine {
  int64_t step = 0;
  Json row;
  std::string where;  // "answers.jsonl:12"
};

absl::StatusOr<StepLine> ParseLine(const std::string& path, const Line& line) {
  const std::string where = absl::StrCat(path, ":", line.number);
  // Only the message is used; the caller decides on the code.
  const absl::StatusOr<nlohmann::json> row = ParseJson(line.text, where);
  if (!row.ok()) return absl::DataLossError(row.status().message());
  const auto step = row->is_object()
                        ? JsonInteger(row->value("step", nlohmann::json()), 1)
                        : absl::InvalidArgumentError("not an object");
  if (!step.ok() || !row->contains("answers")) {
    return absl::DataLossError(
        absl::StrCat(where, " is not a step with its answers"));
  }
  return StepLine{.step = *step, .row = Json(*row), .where = where};
}

// Returns the step that a line begins with, as Append writes it. This takes no
// time, while parsing the lines of a long run takes seconds. Returns 0 if the
// line does not begin or end as a whole one.
int64_t ToldStep(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "{\"step\":") ||
      !absl::EndsWith(text, "]}")) {
    return 0;
  }
  int64_t step = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(',')), &step) ? step : 0;
}

// Parses the line only if it does not begin and end in Append's form.
absl::StatusOr<int64_t> StepOf(const std::string& path, const Line& line) {
  const int64_t told = ToldStep(line.text);
  if (told > 0) return told;
  ASSIGN_OR_RETURN(const StepLine parsed, ParseLine(path, line));
  return parsed.step;
}

// Visits the lines that have an end; none if there is no file.
absl::Status ForEachLine(const std::string& path, const Visit& visit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (!FileExists(path)) return absl::OkStatus();
    return FileError("open", path, errno);
  }
  std::vector<char> buffer(kMaxAnswerBytes);
  Line line = {.number = 1};
  for (; file.getline(buffer.data(),
                      static_cast<std::streamsize>(kMaxAnswerBytes)) &&
         !file.eof();
       ++line.number) {
    const auto size = static_cast<size_t>(file.gcount());
    line.text = {buffer.data(), size - 1};
    line.end += size;
    ASSIGN_OR_RETURN(const bool goes_on, visit(line));
    if (!goes_on) return absl::OkStatus();
  }
  if (file.bad()) return FileError("read", path, errno);
  if (!file.eof()) {
    return absl::DataLossError(
        absl::StrCat(path, ":", line.number, ": the line is too long"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepAnswers> ParseAnswers(const std::string& path,
                                         const Line& line) {
  ASSIGN_OR_RETURN(const StepLine parsed, ParseLine(path, line));
  StepAnswers answers{.step = parsed.step};
  ASSIGN_OR_RETURN(answers.answers,
                   ParseShownAnswers(parsed.row.at("answers"), parsed.where));
  return answers;
}

// A copy of a line, which outlives its reading.
class KeptLine {
 public:
  void Set(const Line& line) {
    text_.assign(line.text.data(), line.text.size());
    number_ = line.number;
  }
  // Returns step 0 if no line was set.
  absl::StatusOr<StepAnswers> Answers(const std::string& path) const {
    if (number_ == 0) return StepAnswers();
    return ParseAnswers(path, {.text = text_, .number = number_});
  }

 private:
  std::string text_;
  int number_ = 0;
};

// The end of the lines up to `last_step`, and the last of these lines.
struct Kept {
  uint64_t bytes = 0;
  StepAnswers last;
};

absl::StatusOr<Kept> Keep(const std::string& path, int64_t last_step) {
  Kept kept;
  KeptLine last;
  RETURN_IF_ERROR(
      ForEachLine(path, [&](const Line& line) -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(const int64_t step, StepOf(path, line));
        if (step > last_step) return false;
        last.Set(line);
        kept.bytes = line.end;
        return true;
      }));
  ASSIGN_OR_RETURN(kept.last, last.Answers(path));
  return kept;
}

}  // namespace

absl::StatusOr<AnswerLog> AnswerLog::Open(const std::string& path,
                                          int64_t last_step) {
  absl::StatusOr<Kept> kept = Keep(path, last_step);
  if (absl::IsDataLoss(kept.status())) {
    ASSIGN_OR_RETURN(const std::string aside, SetAsideDamaged(path));
    LogWarning(absl::StrCat(kept.status().message(),
                            "; kept as ",
                            aside,
                            "; the answers of earlier steps are in samples/"));
    kept = Kept();
  }
  RETURN_IF_ERROR(kept.status());
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  RETURN_IF_ERROR(file.Truncate(kept->bytes));
  return AnswerLog(std::move(file), std::move(kept->last));
}

absl::Status AnswerLog::Append(const StepAnswers& answers) {
  if (answers.answers.empty()) return absl::OkStatus();
  const Json line = {{"step", answers.step},
                     {"answers", ToJson(answers.answers)}};
  return file_.Append(line.dump() + "\n");
}

absl::StatusOr<StepAnswers> ReadStepAnswers(const std::string& path,
                                            int64_t step) {
  KeptLine found;
  RETURN_IF_ERROR(
      ForEachLine(path, [&](const Line& line) -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(const int64_t told, StepOf(path, line));
        if (step == 0 || told == step) found.Set(line);
        return told != step;
      }));
  return found.Answers(path);
}

}  // namespace dapd
