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
  // Whether it may show {context}, also in place of {reference}.
  bool may_show_context = false;
};

const std::vector<PromptRule>& Rules() {
  using enum PromptField;
  static const auto& rules = *new std::vector<PromptRule>{
      {"prompts.system",
       &PromptsSection::system,
       {},
       {kProblem},
       "it is the system message of every prompt"},
      {"prompts.none",
       &PromptsSection::none,
       {kProblem},
       {},
       "it is the problem's own prompt, without any answer"},
      {"prompts.privileged",
       &PromptsSection::privileged,
       {kReference},
       {kProblem, kPrompt},
       "it is the prompt that shows an answer, or the row's {context}",
       /*may_show_context=*/true},
      {"prompts.demonstration",
       &PromptsSection::demonstration,
       {kReference},
       {kProblem, kPrompt},
       "it is the prompt that shows an answer, or the row's {context}",
       /*may_show_context=*/true},
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

}  // namespace

std::vector<std::string> FindPromptProblems(const PromptsSection& section) {
  std::vector<std::string> problems;
  for (const PromptRule& rule : Rules()) {
    const PromptTemplate prompt(section.*rule.text);
    const bool shows_context = prompt.Columns().contains(kContextField);
    for (const PromptField field : rule.required) {
      const bool is_replaced = field == PromptField::kReference &&
                               rule.may_show_context && shows_context;
      if (prompt.Count(field) > 0 || is_replaced) continue;
      problems.push_back(absl::StrCat(
          rule.key, ": {", PromptFieldName(field), "} is missing; ", rule.why));
    }
    const auto refuse = [&](absl::string_view field) {
      problems.push_back(absl::StrCat(
          rule.key, ": {", field, "} is not allowed here; ", rule.why));
    };
    for (size_t i = 0; i < kNumPromptFields; ++i) {
      const auto field = static_cast<PromptField>(i);
      if (prompt.Count(field) == 0 || IsAllowed(field, rule)) continue;
      refuse(PromptFieldName(field));
    }
    if (shows_context && !rule.may_show_context) refuse(kContextField);
  }
  return problems;
}

Prompts::Prompts(const PromptsSection& section)
    : system_(section.system),
      has_system_(!section.system.empty()),
      none_(section.none),
      privileged_(section.privileged),
      demonstration_(section.demonstration),
      probe_(section.probe),
      sibling_(section.sibling),
      sibling_solution_(section.sibling_solution),
      sibling_feedback_(section.sibling_feedback),
      feedback_wrong_(section.feedback_wrong),
      feedback_unboxed_(section.feedback_unboxed),
      feedback_truncated_(section.feedback_truncated) {}

std::optional<std::string> Prompts::System(absl::string_view problem,
                                           const PromptColumns& columns) const {
  if (!has_system_) return std::nullopt;
  return system_.Fill({problem}, columns);
}

std::string Prompts::None(absl::string_view problem,
                          const PromptColumns& columns) const {
  return none_.Fill({problem}, columns);
}

std::string Prompts::Privileged(absl::string_view problem,
                                absl::string_view shown,
                                const PromptColumns& columns) const {
  return Fill(privileged_, problem, shown, columns);
}

std::string Prompts::Demonstration(absl::string_view problem,
                                   absl::string_view shown,
                                   const PromptColumns& columns) const {
  return Fill(demonstration_, problem, shown, columns);
}

std::string Prompts::Probe(absl::string_view shown,
                           const PromptColumns& columns) const {
  return probe_.Fill({"", shown}, columns);
}

std::string Prompts::Sibling(absl::string_view problem,
                             const std::optional<std::string>& shown,
                             const std::string& feedback,
                             const PromptColumns& columns) const {
  const std::string solution =
      shown.has_value() ? sibling_solution_.Fill({"", *shown}, columns) : "";
  const std::string verdict =
      feedback.empty()
          ? ""
          : sibling_feedback_.Fill({"", "", "", "", feedback}, columns);
  return sibling_.Fill({problem, "", None(problem, columns), solution, verdict},
                       columns);
}

std::string Prompts::Feedback(bool correct,
                              const std::optional<std::string>& result,
                              bool truncated,
                              const PromptColumns& columns) const {
  if (truncated) return feedback_truncated_.Fill({}, columns);
  if (result.value_or("").empty()) return feedback_unboxed_.Fill({}, columns);
  return correct ? ""
                 : feedback_wrong_.Fill({"", "", "", "", "", *result}, columns);
}

std::string Prompts::Fill(const PromptTemplate& prompt,
                          absl::string_view problem,
                          absl::string_view shown,
                          const PromptColumns& columns) const {
  const std::string of_problem = None(problem, columns);
  return prompt.Fill({problem, shown, of_problem}, columns);
}

std::vector<const PromptTemplate*> Prompts::All() const {
  return {&system_,
          &none_,
          &privileged_,
          &demonstration_,
          &probe_,
          &sibling_,
          &sibling_solution_,
          &sibling_feedback_,
          &feedback_wrong_,
          &feedback_unboxed_,
          &feedback_truncated_};
}

std::set<std::string> Prompts::Columns() const {
  std::set<std::string> all;
  for (const PromptTemplate* prompt : All()) all.merge(prompt->Columns());
  return all;
}

size_t Prompts::most_columns() const {
  // Parts of prompts.sibling may occur several times in it.
  const size_t times =
      std::max({size_t{1},
                sibling_.Count(PromptField::kSolution),
                sibling_.Count(PromptField::kFeedback) *
                    sibling_feedback_.Count(PromptField::kFeedback)});
  size_t most = 0;
  for (const PromptTemplate* prompt : All()) {
    most += prompt->CountColumns() +
            prompt->Count(PromptField::kPrompt) * none_.CountColumns();
  }
  return times * most;
}

std::set<std::string> Prompts::QuestionColumns() const {
  std::set<std::string> columns = system_.Columns();
  columns.merge(none_.Columns());
  return columns;
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
  return most + system_.Count(PromptField::kProblem);
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
