#include "common/grader/url_grader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr int kAsks = 2;  // for a grade
constexpr absl::Duration kFirstWait = absl::Milliseconds(500);
constexpr int kMostWaitDoublings = 6;
constexpr absl::Duration kLongestWait = absl::Seconds(30);
constexpr absl::Duration kGlance = absl::Milliseconds(50);

Ungraded ReasonOfPost(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return Ungraded::kTimeout;
  if (absl::IsResourceExhausted(status)) return Ungraded::kTooLong;
  if (absl::IsInvalidArgument(status)) return Ungraded::kRefused;
  return Ungraded::kUnreachable;
}

// Returns the grades of a response by their ids.
absl::StatusOr<std::map<std::string, nlohmann::json>> GradesOf(
    const std::string& body) {
  const auto response = ParseJson(body, "the response");
  if (response.ok() && response->is_object() && response->contains("grades") &&
      response->at("grades").is_array()) {
    std::map<std::string, nlohmann::json> grades;
    for (const nlohmann::json& grade : response->at("grades")) {
      if (!grade.is_object() || !grade.contains("id") ||
          !grade.at("id").is_string()) {
        continue;
      }
      grades.emplace(grade.at("id").get<std::string>(), grade);
    }
    return grades;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the response is no object with a list 'grades': ",
                   Printable(Utf8Head(body, 200))));
}

}  // namespace

absl::StatusOr<HttpTarget> LoadGraderTarget(const GraderSection& options) {
  return LoadHttpTarget(
      "grader.", options.url, options.secret_file, options.ca_file);
}

UrlGrader::UrlGrader(GraderSection options,
                     HttpTarget target,
                     std::function<bool()> gives_up)
    : options_(std::move(options)),
      target_(std::move(target)),
      gives_up_(std::move(gives_up)) {}

absl::StatusOr<std::string> UrlGrader::Post(
    std::span<const GraderQuestion> questions) {
  const std::string json = QuestionsJson(questions);
  const absl::Duration timeout = absl::Seconds(options_.timeout_seconds);
  const PostLimits limits = {
      .connect_timeout = timeout,
      .timeout = timeout,
      .max_answer_bytes =
          static_cast<size_t>(options_.max_output_bytes) * questions.size(),
      .keeps_answer = true};
  for (int64_t retry = 0;; ++retry) {
    auto body = PostOnce(target_, json, limits, gives_up_);
    if (!IsPassingPostError(body.status()) || retry == options_.retries) {
      return body;
    }
    const auto doublings =
        static_cast<int>(std::min<int64_t>(retry, kMostWaitDoublings));
    const std::optional<absl::Duration> asked = RetryAfterOf(body.status());
    const absl::Duration wait =
        asked.has_value()
            ? std::min(*asked, timeout)
            : std::min(kLongestWait, kFirstWait * (1 << doublings));
    const absl::Time again = SteadyNow() + wait;
    while (SteadyNow() < again && !gives_up_()) absl::SleepFor(kGlance);
  }
}

std::vector<GraderResult> UrlGrader::Grade(
    std::span<const GraderQuestion> questions) {
  std::vector<GraderResult> results(questions.size());
  std::vector<size_t> left;  // that have no grade
  for (size_t i = 0; i < questions.size(); ++i) left.push_back(i);
  const auto give_reason = [&](Ungraded reason, const absl::Status& why) {
    for (const size_t i : left) {
      results[i] = {.ungraded = reason, .error = std::string(why.message())};
    }
  };
  for (int ask = 0; ask < kAsks && !left.empty() && !gives_up_(); ++ask) {
    std::vector<GraderQuestion> asked;
    for (const size_t i : left) asked.push_back(questions[i]);
    const auto body = Post(asked);
    if (!body.ok()) {
      give_reason(ReasonOfPost(body.status()), body.status());
      return results;
    }
    const auto grades = GradesOf(*body);
    if (!grades.ok()) {
      give_reason(Ungraded::kNonsense, grades.status());
      continue;
    }
    std::erase_if(left, [&](size_t i) {
      const auto grade = grades->find(questions[i].id);
      if (grade == grades->end()) {
        results[i] = {.ungraded = Ungraded::kNonsense,
                      .error = "the response has no grade for the answer"};
        return false;
      }
      auto result =
          ParseGraderResult(grade->second,
                            questions[i].id,
                            static_cast<size_t>(options_.max_feedback_bytes));
      if (result.ok()) {
        results[i] = *std::move(result);
      } else {
        results[i] = {.ungraded = Ungraded::kNonsense,
                      .error = absl::StrCat("the response has no grade: ",
                                            result.status().message())};
      }
      return result.ok();
    });
  }
  return results;
}

}  // namespace dapd
