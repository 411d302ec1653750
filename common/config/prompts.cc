#include "common/config/prompts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

// The fields that a template must contain, and the fields that it may contain
// in addition.
struct PromptRule {
  const char* key;
  std::string PromptsSection::*text;
  std::vector<PromptField> required;
  std::vector<PromptField> allowed;
  const char* why;  // for messages
};

const std::vector<PromptRule>& Rules() {
  using enum PromptField;
  static const auto& rules = *new std::vector<PromptRule>{
      {"prompts.none",
       &PromptsSection::none,
       {kProblem},
       {},
       "it is the problem's own prompt, without any answer"},
      {"prompts.privileged",
       &PromptsSection::privileged,
       {kReference},
       {kProblem, kPrompt},
       "it is the prompt that shows an answer"},
      {"prompts.demonstration",
       &PromptsSection::demonstration,
       {kReference},
       {kProblem, kPrompt},
       "it is the prompt that shows an answer"},
      {"prompts.probe",
       &PromptsSection::probe,
       {kReference},
       {},
       "it is the prompt that shows an answer without its problem"},
      {"prompts.sibling",
       &PromptsSection::sibling,
       {kSolution, kFeedback},
       {kProblem, kPrompt},
       "it is the problem with the two parts that say more about it"},
      {"prompts.sibling_solution",
       &PromptsSection::sibling_solution,
       {kReference},
       {},
       "it is the part of prompts.sibling that shows an answer"},
      {"prompts.sibling_feedback",
       &PromptsSection::sibling_feedback,
       {kFeedback},
       {},
       "it is the part of prompts.sibling that says what is wrong"},
      {"prompts.feedback_wrong",
       &PromptsSection::feedback_wrong,
       {},
       {kAnswer},
       "it is said of a result that is not the expected one"},
      {"prompts.feedback_unboxed",
       &PromptsSection::feedback_unboxed,
       {},
       {},
       "it is said of an answer that states no result"},
      {"prompts.feedback_truncated",
       &PromptsSection::feedback_truncated,
       {},
       {},
       "it is said of an answer that was cut off"},
  };
  return rules;
}

bool IsAllowed(PromptField field, const PromptRule& rule) {
  return std::ranges::count(rule.required, field) +
             std::ranges::count(rule.allowed, field) >
         0;
}

std::string Braced(PromptField field) {
  return absl::StrCat("{", PromptFieldName(field), "}");
}

}  // namespace

std::vector<std::string> FindPromptProblems(const PromptsSection& section) {
  std::vector<std::string> problems;
  for (const PromptRule& rule : Rules()) {
    const auto prompt = PromptTemplate::Parse(section.*rule.text);
    if (!prompt.ok()) {
      problems.push_back(
          absl::StrCat(rule.key, ": ", prompt.status().message()));
      continue;
    }
    for (const PromptField field : rule.required) {
      if (prompt->Count(field) > 0) continue;
      problems.push_back(absl::StrCat(
          rule.key, ": ", Braced(field), " is missing; ", rule.why));
    }
    for (size_t i = 0; i < kNumPromptFields; ++i) {
      const auto field = static_cast<PromptField>(i);
      if (prompt->Count(field) == 0 || IsAllowed(field, rule)) continue;
      problems.push_back(absl::StrCat(
          rule.key, ": ", Braced(field), " is not allowed here; ", rule.why));
    }
  }
  return problems;
}

Prompts::Prompts(const PromptsSection& section)
    : none_(PromptTemplate::Parse(section.none).value()),
      privileged_(PromptTemplate::Parse(section.privileged).value()),
      demonstration_(PromptTemplate::Parse(section.demonstration).value()),
      probe_(PromptTemplate::Parse(section.probe).value()),
      sibling_(PromptTemplate::Parse(section.sibling).value()),
      sibling_solution_(
          PromptTemplate::Parse(section.sibling_solution).value()),
      sibling_feedback_(
          PromptTemplate::Parse(section.sibling_feedback).value()),
      feedback_wrong_(PromptTemplate::Parse(section.feedback_wrong).value()),
      feedback_unboxed_(
          PromptTemplate::Parse(section.feedback_unboxed).value()),
      feedback_truncated_(
          PromptTemplate::Parse(section.feedback_truncated).value()) {}

std::string Prompts::None(const std::string& problem) const {
  return none_.Fill({problem});
}

std::string Prompts::Privileged(const std::string& problem,
                                const std::string& shown) const {
  return Fill(privileged_, problem, shown);
}

std::string Prompts::Demonstration(const std::string& problem,
                                   const std::string& shown) const {
  return Fill(demonstration_, problem, shown);
}

std::string Prompts::Probe(const std::string& shown) const {
  return probe_.Fill({"", shown});
}

std::string Prompts::Sibling(const std::string& problem,
                             const std::optional<std::string>& shown,
                             const std::string& feedback) const {
  const std::string solution =
      shown.has_value() ? sibling_solution_.Fill({"", *shown}) : "";
  const std::string verdict =
      feedback.empty() ? ""
                       : sibling_feedback_.Fill({"", "", "", "", feedback});
  return sibling_.Fill({problem, "", None(problem), solution, verdict});
}

std::string Prompts::Feedback(bool correct,
                              const std::optional<std::string>& result,
                              bool truncated) const {
  if (truncated) return feedback_truncated_.Fill({});
  if (result.value_or("").empty()) return feedback_unboxed_.Fill({});
  return correct ? "" : feedback_wrong_.Fill({"", "", "", "", "", *result});
}

std::string Prompts::Fill(const PromptTemplate& prompt,
                          const std::string& problem,
                          const std::string& shown) const {
  return prompt.Fill({problem, shown, None(problem)});
}

size_t Prompts::most_problems() const {
  const size_t of_none = none_.Count(PromptField::kProblem);
  size_t most = of_none;
  for (const PromptTemplate* prompt :
       {&privileged_, &demonstration_, &sibling_}) {
    most = std::max(most,
                    prompt->Count(PromptField::kProblem) +
                        of_none * prompt->Count(PromptField::kPrompt));
  }
  return most;
}

size_t Prompts::most_references() const {
  size_t most = 0;
  for (const PromptTemplate* prompt :
       {&privileged_, &demonstration_, &probe_}) {
    most = std::max(most, prompt->Count(PromptField::kReference));
  }
  return most;
}

size_t Prompts::siblings() const {
  return sibling_.Count(PromptField::kSolution) *
         sibling_solution_.Count(PromptField::kReference);
}

size_t Prompts::feedback_places() const {
  return sibling_.Count(PromptField::kFeedback) *
         sibling_feedback_.Count(PromptField::kFeedback);
}

size_t Prompts::feedbacks() const {
  return feedback_places() * feedback_wrong_.Count(PromptField::kAnswer);
}

int64_t MostAnswersTold(const Config& config) {
  const Prompts prompts(config.prompts);
  // A sample without a group has no siblings.
  const auto siblings = config.rollout.group_size > 1
                            ? static_cast<int64_t>(prompts.siblings())
                            : 0;
  const auto feedbacks =
      config.grader.is_given() ? 0 : static_cast<int64_t>(prompts.feedbacks());
  switch (config.objective.sdpo.feedback) {
    case FeedbackRule::kNever:
      return siblings;
    case FeedbackRule::kWithoutSibling:
      return std::max(siblings, feedbacks);
    case FeedbackRule::kAlways:
      return siblings + feedbacks;
  }
  return siblings;
}

int64_t MostFeedbackTold(const Config& config) {
  if (!config.grader.is_given() ||
      config.objective.sdpo.feedback == FeedbackRule::kNever) {
    return 0;
  }
  return static_cast<int64_t>(Prompts(config.prompts).feedback_places()) *
         config.grader.max_feedback_bytes;
}

}  // namespace dapd
