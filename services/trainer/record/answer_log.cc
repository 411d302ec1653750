#include "services/trainer/record/answer_log.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Several times what kStepAnswers answers come to if all is escaped.
constexpr size_t kMaxLineBytes = size_t{1} << 20;

struct Line {
  int64_t step = 0;
  Json row;
  uint64_t begin = 0;  // in the file
  uint64_t end = 0;
  std::string where;  // "answers.jsonl:12"
};

// False: no further line is wanted.
using Visit = std::function<absl::StatusOr<bool>(const Line& line)>;

absl::StatusOr<Line> ParseLine(absl::string_view text,
                               const std::string& where) {
  // What it says of the file's kind is left to the caller.
  const absl::StatusOr<nlohmann::json> row = ParseJson(text, where);
  if (!row.ok()) return absl::DataLossError(row.status().message());
  const auto step = row->is_object()
                        ? JsonInteger(row->value("step", nlohmann::json()), 1)
                        : absl::InvalidArgumentError("no object");
  if (!step.ok() || !row->contains("answers")) {
    return absl::DataLossError(absl::StrCat(where, " is no step's answers"));
  }
  return Line{.step = *step, .row = Json(*row), .where = where};
}

// Those lines that have an end; none where there is no file.
absl::Status ForEachLine(const std::string& path, const Visit& visit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (!FileExists(path)) return absl::OkStatus();
    return FileError("open", path, errno);
  }
  std::vector<char> buffer(kMaxLineBytes);
  uint64_t begin = 0;
  int number = 1;
  for (; file.getline(buffer.data(),
                      static_cast<std::streamsize>(kMaxLineBytes)) &&
         !file.eof();
       ++number) {
    const auto size = static_cast<size_t>(file.gcount());
    ASSIGN_OR_RETURN(Line line,
                     ParseLine(absl::string_view(buffer.data(), size - 1),
                               absl::StrCat(path, ":", number)));
    line.begin = begin;
    line.end = begin + size;
    begin = line.end;
    ASSIGN_OR_RETURN(const bool goes_on, visit(line));
    if (!goes_on) return absl::OkStatus();
  }
  if (file.bad()) return FileError("read", path, errno);
  if (!file.eof()) {
    return absl::DataLossError(
        absl::StrCat(path, ":", number, ": the line is too long"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepAnswers> AnswersOf(const Line& line) {
  StepAnswers answers{.step = line.step};
  ASSIGN_OR_RETURN(answers.answers,
                   ParseShownAnswers(line.row["answers"], line.where));
  return answers;
}

// Where the lines up to `last_step` end, and the last of them.
struct Kept {
  uint64_t bytes = 0;
  StepAnswers last;
};

absl::StatusOr<Kept> Keep(const std::string& path, int64_t last_step) {
  Kept kept;
  RETURN_IF_ERROR(
      ForEachLine(path, [&](const Line& line) -> absl::StatusOr<bool> {
        if (line.step > last_step) return false;
        ASSIGN_OR_RETURN(kept.last, AnswersOf(line));
        kept.bytes = line.end;
        return true;
      }));
  return kept;
}

}  // namespace

absl::StatusOr<AnswerLog> AnswerLog::Open(const std::string& path,
                                          int64_t last_step) {
  absl::StatusOr<Kept> kept = Keep(path, last_step);
  if (absl::IsDataLoss(kept.status())) {
    const std::string aside = absl::StrCat(path, ".damaged");
    LogWarning(absl::StrCat(kept.status().message(),
                            "; kept as ",
                            aside,
                            ", the answers of earlier steps are in samples/"));
    if (std::rename(path.c_str(), aside.c_str()) != 0) {
      return FileError("rename", path, errno);
    }
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
  StepAnswers found;
  RETURN_IF_ERROR(
      ForEachLine(path, [&](const Line& line) -> absl::StatusOr<bool> {
        if (step != 0 && line.step != step) return true;
        ASSIGN_OR_RETURN(found, AnswersOf(line));
        return step == 0;
      }));
  return found;
}

}  // namespace dapd
