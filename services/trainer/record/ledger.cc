#include "services/trainer/record/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/aside.h"
#include "common/base/crc32c.h"
#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Enough for an answer of ten million tokens.
constexpr size_t kMaxRecordBytes = size_t{1} << 28;
constexpr int64_t kMaxCount = int64_t{1} << 53;
constexpr char kAccepted[] = "accepted";
constexpr char kGraded[] = "graded";
constexpr char kHeldOutGraded[] = "held_out_graded";
// ,"crc":"0123abcd"}
constexpr size_t kSealBytes = 18;

// Returns whether an error in reading a ledger comes from its content, not from
// the disk.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsOutOfRange(status);
}

std::string Seal(absl::string_view body) {
  return absl::StrFormat(",\"crc\":\"%08x\"}", Crc32c(body));
}

// Returns whether a whole line, without its '\n', has a valid checksum.
bool IsSealed(absl::string_view line) {
  return line.size() > kSealBytes &&
         line.substr(line.size() - kSealBytes) ==
             Seal(line.substr(0, line.size() - kSealBytes));
}

// Takes a count and the ',' behind it from the front of `text`.
bool ConsumeCount(absl::string_view* text, int64_t* count) {
  const size_t end = text->find(',');
  if (end == absl::string_view::npos ||
      !absl::SimpleAtoi(text->substr(0, end), count) || *count < 0 ||
      *count > kMaxCount) {
    return false;
  }
  text->remove_prefix(end + 1);
  return true;
}

// Returns the step and place of the line of an answer or of a grade, `event`,
// from its beginning as PlacedEvent writes it. Returns nothing for any
// other line.
std::optional<std::pair<int64_t, AnswerPlace>> ToldPlace(
    absl::string_view line, absl::string_view event) {
  int64_t step = 0;
  AnswerPlace place;
  if (!absl::ConsumePrefix(&line, R"({"event":")") ||
      !absl::ConsumePrefix(&line, event) ||
      !absl::ConsumePrefix(&line, R"(","step":)") ||
      !ConsumeCount(&line, &step) ||
      !absl::ConsumePrefix(&line, R"("sample":)") ||
      !ConsumeCount(&line, &place.sample) ||
      (absl::ConsumePrefix(&line, R"("attempt":)") &&
       !ConsumeCount(&line, &place.attempt))) {
    return std::nullopt;
  }
  return std::pair(step, place);
}

// Returns the beginning of the line of an answer or of a grade, which ToldPlace
// reads.
Json PlacedEvent(const char* event, int64_t step, const AnswerPlace& place) {
  Json line = {{"event", event}, {"step", step}, {"sample", place.sample}};
  if (place.attempt > 0) line["attempt"] = place.attempt;
  return line;
}

absl::StatusOr<AnswerPlace> PlaceOf(const nlohmann::json& event) {
  AnswerPlace place;
  ASSIGN_OR_RETURN(place.sample, JsonInteger(event.at("sample"), 0, kMaxCount));
  if (event.contains("attempt")) {
    ASSIGN_OR_RETURN(place.attempt,
                     JsonInteger(event.at("attempt"), 0, kMaxCount));
  }
  return place;
}

absl::StatusOr<GraderResult> GivenGradeOf(const nlohmann::json& event) {
  GraderResult grade;
  if (event.contains("ungraded")) {
    const std::string reason = event.at("ungraded");
    grade.ungraded = ParseName<Ungraded>(reason);
    if (grade.ungraded.has_value()) return grade;
    return absl::DataLossError(
        absl::StrCat("an answer cannot be ungraded for '", reason, "'"));
  }
  event.at("correct").get_to(grade.correct);
  event.at("score").get_to(grade.score);
  if (event.contains("feedback")) event.at("feedback").get_to(grade.feedback);
  if (grade.score >= 0.0 && grade.score <= 1.0) return grade;
  return absl::DataLossError("a score that is not between 0 and 1");
}

void AddGrade(const GraderResult& grade, Json* event) {
  if (grade.ungraded.has_value()) {
    (*event)["ungraded"] = NameOf(*grade.ungraded);
    return;
  }
  (*event)["correct"] = grade.correct;
  (*event)["score"] = grade.score;
  if (!grade.feedback.empty()) (*event)["feedback"] = grade.feedback;
}

std::string DigestOfAnswer(const std::vector<int32_t>& ids) {
  return Sha256Hex(absl::string_view(reinterpret_cast<const char*>(ids.data()),
                                     ids.size() * sizeof(int32_t)));
}

static_assert(std::endian::native == std::endian::little);

std::string EncodeFloats(const std::vector<float>& values) {
  return absl::Base64Escape(
      absl::string_view(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float)));
}

absl::StatusOr<std::vector<float>> DecodeFloats(const std::string& text,
                                                size_t count) {
  std::string bytes;
  std::vector<float> values(count);
  if (!absl::Base64Unescape(text, &bytes) ||
      bytes.size() != count * sizeof(float)) {
    return absl::DataLossError(
        absl::StrCat("log-probabilities that are not ", count, " numbers"));
  }
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return absl::DataLossError("a log-probability that is not finite");
    }
  }
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  std::unique_ptr<Ledger> ledger(new Ledger(std::move(file)));
  const absl::Status read = ledger->Read();
  if (read.ok()) return ledger;
  if (!IsDamage(read)) return read;
  ASSIGN_OR_RETURN(const std::string aside, SetAsideDamaged(path));
  LogWarning(
      absl::StrCat(read.message(),
                   "; kept as ",
                   aside,
                   "; answers since the checkpoint will be sampled again"));
  ASSIGN_OR_RETURN(AppendFile empty, AppendFile::Open(path));
  ledger.reset(new Ledger(std::move(empty)));
  return ledger;
}

// Reads line by line, since a long run's file exceeds a machine's memory.
// Nearly all lines are answers before a checkpoint: only the answers that are
// left at the end are parsed.
absl::Status Ledger::Read() {
  const int descriptor = ::open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", file_.path(), errno);
  const absl::Cleanup close_file = [descriptor] { ::close(descriptor); };
  std::string block(kFileBlockBytes, '\0');
  std::string line;  // the part read so far
  uint64_t begin = 0;
  int64_t number = 1;
  while (true) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", file_.path(), errno);
    if (count == 0) break;
    absl::string_view rest(block.data(), static_cast<size_t>(count));
    for (size_t end = rest.find('\n'); end != absl::string_view::npos;
         end = rest.find('\n')) {
      absl::StrAppend(&line, rest.substr(0, end));
      rest.remove_prefix(end + 1);
      begin += line.size() + 1;
      RETURN_IF_ERROR(
          TakeLine({.text = std::exchange(line, {}), .number = number++}));
    }
    absl::StrAppend(&line, rest);
    if (line.size() > kMaxRecordBytes) {
      return absl::DataLossError(
          absl::StrCat(file_.path(), ":", number, ": the line is too long"));
    }
  }
  // Grades are read after the answers to which they belong.
  for (auto* unread : {&unread_, &unread_grades_, &unread_held_out_grades_}) {
    while (!unread->empty()) {
      const auto left = unread->extract(unread->begin());
      RETURN_IF_ERROR(Replay(left.mapped()));
    }
  }
  if (line.empty()) return absl::OkStatus();
  LogWarning(absl::StrCat(file_.path(),
                          ": the last record is unfinished (",
                          line.size(),
                          " bytes) and is ignored"));
  return file_.Truncate(begin);
}

absl::Status Ledger::TakeLine(Line line) {
  if (!IsSealed(line.text)) {
    return absl::DataLossError(
        absl::StrCat(file_.path(), ":", line.number, ": the checksum differs"));
  }
  for (const auto& [event, unread] :
       {std::pair(kGraded, &unread_grades_),
        std::pair(kHeldOutGraded, &unread_held_out_grades_)}) {
    const auto place = ToldPlace(line.text, event);
    if (!place.has_value()) continue;
    (*unread)[*place] = std::move(line);
    return absl::OkStatus();
  }
  const auto answer = ToldPlace(line.text, kAccepted);
  if (!answer.has_value()) return Replay(line);
  // A grade that was read before is of an earlier answer.
  unread_grades_.erase(*answer);
  unread_[*answer] = std::move(line);
  return absl::OkStatus();
}

absl::Status Ledger::Replay(const Line& line) try {
  ASSIGN_OR_RETURN(
      const nlohmann::json event,
      ParseJson(line.text, absl::StrCat(file_.path(), ":", line.number)));
  const std::string name = event.at("event");
  ASSIGN_OR_RETURN(const int64_t step,
                   JsonInteger(event.at("step"), 0, kMaxCount));
  if (name == "started") {
    ASSIGN_OR_RETURN(attempt_, JsonInteger(event.at("attempt"), 0, kMaxCount));
  }
  if (name == kAccepted) {
    Answer answer;
    answer.problem_id = event.at("id");
    ASSIGN_OR_RETURN(answer.result.ids,
                     JsonTokenIds(event.at("rollout_ids"), "rollout_ids"));
    if (event.contains("logprobs")) {
      ASSIGN_OR_RETURN(
          answer.result.logprobs,
          DecodeFloats(event.at("logprobs"), answer.result.ids.size()));
    }
    const std::string reason = event.at("finish_reason");
    if (const auto known = FinishReasonOf(reason); known.has_value()) {
      answer.result.finish_reason = *known;
    } else {
      return absl::DataLossError(absl::StrCat(
          file_.path(), ": an answer cannot end with '", reason, "'"));
    }
    ASSIGN_OR_RETURN(answer.result.policy_version,
                     JsonInteger(event.at("policy_version"), 0, kMaxCount));
    answer.result.adapter_digest = event.at("adapter_digest");
    ASSIGN_OR_RETURN(const AnswerPlace place, PlaceOf(event));
    unread_.erase({step, place});  // replaced by this one
    answers_[{step, place}] = std::move(answer);
  }
  if (name == kGraded) {
    ASSIGN_OR_RETURN(const AnswerPlace place, PlaceOf(event));
    const auto answer = answers_.find({step, place});
    if (answer != answers_.end()) {
      ASSIGN_OR_RETURN(answer->second.result.grade, GivenGradeOf(event));
    }
  }
  if (name == kHeldOutGraded) {
    ASSIGN_OR_RETURN(const AnswerPlace place, PlaceOf(event));
    HeldOutGrade& kept = held_out_grades_[{step, place}];
    event.at("answer").get_to(kept.answer);
    ASSIGN_OR_RETURN(kept.grade, GivenGradeOf(event));
  }
  // A resume may have to start at the checkpoint before the last one.
  if (name == "checkpointed") {
    const auto is_behind = [&](const auto& entry) {
      return entry.first.first <= checkpoint_before_;
    };
    std::erase_if(answers_, is_behind);
    std::erase_if(unread_, is_behind);
    std::erase_if(unread_grades_, is_behind);
    // The evaluation of a checkpoint comes after it.
    std::erase_if(unread_held_out_grades_, [&](const auto& entry) {
      return entry.first.first < checkpoint_before_;
    });
    checkpoint_before_ = step;
  }
  return absl::OkStatus();
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(
      absl::StrCat(file_.path(), ": not an event of a ledger: ", error.what()));
}

absl::Status Ledger::Append(const Json& event) {
  std::string line = event.dump();
  line.pop_back();
  line += Seal(line);
  line.push_back('\n');
  return file_.Append(line);
}

absl::Status Ledger::Started(int64_t step, const std::string& adapter_digest) {
  RETURN_IF_ERROR(Append({{"event", "started"},
                          {"attempt", attempt_ + 1},
                          {"step", step},
                          {"adapter_digest", adapter_digest},
                          {"version", Version()}}));
  ++attempt_;
  return absl::OkStatus();
}

absl::Status Ledger::Accepted(int64_t step,
                              const AnswerPlace& place,
                              const std::string& problem_id,
                              const RolloutResult& result) {
  const RolloutResult* known = Recall(
      step, place, problem_id, result.policy_version, result.adapter_digest);
  if (known != nullptr) return absl::OkStatus();
  DAPD_FAILPOINT("ledger.before_accept");
  Json event = PlacedEvent(kAccepted, step, place);
  event.update({{"id", problem_id},
                {"policy_version", result.policy_version},
                {"adapter_digest", result.adapter_digest},
                {"rollout_ids", result.ids},
                {"finish_reason", NameOf(result.finish_reason)}});
  if (!result.logprobs.empty()) {
    event["logprobs"] = EncodeFloats(result.logprobs);
  }
  RETURN_IF_ERROR(Append(event));
  DAPD_FAILPOINT("ledger.after_accept");
  return absl::OkStatus();
}

absl::Status Ledger::Graded(int64_t step,
                            const AnswerPlace& place,
                            const std::string& problem_id,
                            const RolloutResult& result) {
  const RolloutResult* known = Recall(
      step, place, problem_id, result.policy_version, result.adapter_digest);
  if (known != nullptr && known->grade.has_value()) return absl::OkStatus();
  DAPD_FAILPOINT("ledger.before_grade");
  Json event = PlacedEvent(kGraded, step, place);
  AddGrade(*result.grade, &event);
  RETURN_IF_ERROR(Append(event));
  DAPD_FAILPOINT("ledger.after_grade");
  return absl::OkStatus();
}

absl::Status Ledger::HeldOutGraded(int64_t version,
                                   int64_t index,
                                   const RolloutResult& result) {
  Json event = PlacedEvent(kHeldOutGraded, version, {.sample = index});
  event["answer"] = DigestOfAnswer(result.ids);
  AddGrade(*result.grade, &event);
  return Append(event);
}

std::optional<GraderResult> Ledger::RecallHeldOutGrade(
    int64_t version, int64_t index, const std::vector<int32_t>& ids) const {
  const auto found = held_out_grades_.find({version, {.sample = index}});
  if (found == held_out_grades_.end() ||
      found->second.answer != DigestOfAnswer(ids)) {
    return std::nullopt;
  }
  return found->second.grade;
}

const RolloutResult* Ledger::Recall(int64_t step,
                                    const AnswerPlace& place,
                                    const std::string& problem_id,
                                    int64_t policy_version,
                                    const std::string& adapter_digest) const {
  const auto found = answers_.find({step, place});
  if (found == answers_.end()) return nullptr;
  const Answer& answer = found->second;
  const bool same = answer.problem_id == problem_id &&
                    answer.result.adapter_digest == adapter_digest &&
                    answer.result.policy_version == policy_version;
  return same ? &answer.result : nullptr;
}

absl::Status Ledger::Reached(const std::string& event,
                             int64_t step,
                             const std::string& adapter_digest,
                             const std::vector<int64_t>& samples) {
  Json record = {
      {"event", event}, {"step", step}, {"adapter_digest", adapter_digest}};
  if (!samples.empty()) record["samples"] = samples;
  RETURN_IF_ERROR(Append(record));
  if (event == "trained") {
    std::erase_if(answers_,
                  [&](const auto& entry) { return entry.first.first <= step; });
  }
  return absl::OkStatus();
}

}  // namespace dapd
