#include "common/data/sample_rows.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/data/expected_answer.h"
#include "common/data/grade_answer.h"
#include "common/data/json_text.h"
#include "common/data/unread_row_keys.h"

namespace dapd {
namespace {

// A run records some of these keys only for people to see (run_recorder.h).
constexpr std::initializer_list<const char*> kSampleKeys = {
    "id",
    "problem",
    "reference",
    "rollout_ids",
    "reference_ids",
    "sampler_logprobs",
    "left_out",
    "answer",
    "correct",
    "feedback",
    "teacher",
    "score",
    "ungraded",
    "rollout",
    "finish_reason",
    "has_box",
    "material",
    "reference_approved",
    "sibling"};

absl::StatusOr<std::vector<float>> ParseLogprobs(const nlohmann::json& list,
                                                 size_t tokens) {
  const auto logprobs = list.get<std::vector<float>>();
  bool is_whole = logprobs.empty() || logprobs.size() == tokens;
  for (const float value : logprobs) is_whole &= std::isfinite(value);
  if (is_whole) return logprobs;
  return absl::InvalidArgumentError(absl::StrCat(
      "sampler_logprobs: one finite number is expected for each of the ",
      tokens,
      " rollout_ids"));
}

// Treats null as absent; writes a value that is not a text as JSON does.
absl::StatusOr<std::string> TextAt(const nlohmann::json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return "";
  return JsonText(*found, key);
}

bool Has(const nlohmann::json& row, const char* key) {
  return row.contains(key) && !row.at(key).is_null();
}

// Takes an object, or its text, in which the order of its keys is known.
absl::StatusOr<std::shared_ptr<const RowMaterial>> MaterialAt(
    const nlohmann::json& material) {
  if (!material.is_string()) {
    return ParseMaterial(nlohmann::ordered_json(material));
  }
  ASSIGN_OR_RETURN(const nlohmann::ordered_json parsed,
                   ParseOrderedJson(material.get<std::string>(), "material"));
  return ParseMaterial(parsed);
}

absl::Status ParseOptional(const nlohmann::json& row,
                           int64_t vocab_size,
                           SampleRow* parsed) {
  if (Has(row, "reference_ids")) {
    ASSIGN_OR_RETURN(
        parsed->sample.reference_ids,
        JsonTokenIds(row.at("reference_ids"), "reference_ids", vocab_size));
  }
  if (Has(row, "sampler_logprobs")) {
    ASSIGN_OR_RETURN(parsed->sampler_logprobs,
                     ParseLogprobs(row.at("sampler_logprobs"),
                                   parsed->sample.rollout_ids.size()));
  }
  if (Has(row, "correct")) parsed->correct = row.at("correct").get<bool>();
  if (Has(row, "left_out"))
    parsed->is_left_out = row.at("left_out").get<bool>();
  parsed->has_given_grade = Has(row, "score") || Has(row, "ungraded");
  ASSIGN_OR_RETURN(parsed->answer, TextAt(row, "answer"));
  if (Has(row, "material")) {
    ASSIGN_OR_RETURN(parsed->sample.material, MaterialAt(row.at("material")));
  }
  ASSIGN_OR_RETURN(parsed->feedback, TextAt(row, "feedback"));
  ASSIGN_OR_RETURN(parsed->teacher, TextAt(row, "teacher"));
  ASSIGN_OR_RETURN(const std::string finish_reason,
                   TextAt(row, "finish_reason"));
  parsed->was_truncated = finish_reason == "length";
  return absl::OkStatus();
}

absl::StatusOr<SampleRow> ParseRow(const nlohmann::json& row,
                                   const std::string& where,
                                   int64_t vocab_size) {
  SampleRow parsed;
  Sample& sample = parsed.sample;
  try {
    ASSIGN_OR_RETURN(sample.id,
                     JsonText(row.at("id"), absl::StrCat(where, ": id")));
    sample.problem = row.at("problem").get<std::string>();
    sample.reference = row.at("reference").get<std::string>();
    auto ids = JsonTokenIds(row.at("rollout_ids"), "rollout_ids", vocab_size);
    if (!ids.ok()) {
      return DataError(absl::StrCat(where, ": ", ids.status().message()));
    }
    sample.rollout_ids = *std::move(ids);
    const absl::Status rest = ParseOptional(row, vocab_size, &parsed);
    if (!rest.ok()) {
      return DataError(absl::StrCat(where, ": ", rest.message()));
    }
  } catch (const nlohmann::json::exception& error) {
    return DataError(absl::StrCat(
        where,
        ": a sample needs id, problem, reference and rollout_ids: ",
        JsonProblem(error)));
  }
  return parsed;
}

absl::StatusOr<GradedAnswer> Graded(const SampleRow& row,
                                    const ViewBuilder& builder) {
  GradedAnswer graded;
  ASSIGN_OR_RETURN(graded.text, builder.TextOf(row.sample.rollout_ids));
  const std::string expected = ExpectedAnswer(row.answer, row.sample.reference);
  graded.correct =
      row.correct.value_or(GradeAnswer(graded.text, expected).correct);
  graded.feedback =
      row.feedback.empty() && !row.has_given_grade
          ? builder.prompts().Feedback(graded.correct,
                                       ExtractBoxed(graded.text),
                                       row.was_truncated,
                                       row.sample.source().columns())
          : row.feedback;
  return graded;
}

}  // namespace

absl::StatusOr<std::vector<SampleRow>> ReadSampleRows(const std::string& path,
                                                      int64_t vocab_size) {
  std::vector<SampleRow> rows;
  UnreadRowKeys unread;
  RETURN_IF_ERROR(ForEachJsonLine(
      path, [&](const nlohmann::json& row, int line) -> absl::Status {
        const std::string where = absl::StrCat(path, ":", line);
        ASSIGN_OR_RETURN(SampleRow parsed, ParseRow(row, where, vocab_size));
        unread.Add(row, kSampleKeys, where);
        rows.push_back(std::move(parsed));
        return absl::OkStatus();
      }));
  unread.Report(path);
  if (rows.empty()) {
    return DataError(absl::StrCat(path, " holds no sample"));
  }
  return rows;
}

absl::Status FillContexts(const Config& config,
                          const ViewBuilder& builder,
                          std::vector<SampleRow>* rows) {
  if (!ReadsView(ExpandTerms(config.objective), ViewName::kSiblingRollout)) {
    return absl::OkStatus();
  }
  const auto size = static_cast<size_t>(config.rollout.group_size);
  if (rows->size() % size != 0) {
    return DataError(absl::StrCat(rows->size(),
                                  " samples do not make whole groups of "
                                  "rollout.group_size (",
                                  size,
                                  ") answers to a problem"));
  }
  const FeedbackRule rule = config.objective.sdpo.feedback;
  for (size_t begin = 0; begin < rows->size(); begin += size) {
    std::vector<GradedAnswer> group;
    for (size_t i = begin; i < begin + size; ++i) {
      const SampleRow& row = (*rows)[i];
      if (row.sample.source().Key() != (*rows)[begin].sample.source().Key()) {
        return DataError(absl::StrCat(
            "sample '",
            Printable(row.sample.id),
            "' answers a different problem from the others in its group: ",
            size,
            " consecutive rows (rollout.group_size) must belong to one "
            "problem"));
      }
      ASSIGN_OR_RETURN(GradedAnswer graded, Graded(row, builder));
      group.push_back(std::move(graded));
    }
    const std::vector<TeacherContext> contexts = TeacherContexts(group, rule);
    for (size_t i = 0; i < size; ++i) {
      (*rows)[begin + i].sample.context = contexts[i];
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Views> BuildViewsOf(const ViewBuilder& builder,
                                   const Sample& sample) {
  auto views = builder.Build(sample);
  if (views.ok()) return views;
  return DataError(absl::StrCat(
      "sample '", sample.id, "': ", std::string(views.status().message())));
}

absl::StatusOr<Views> BuildViewsWithin(const ViewBuilder& builder,
                                       const Sample& sample,
                                       int64_t context) {
  ASSIGN_OR_RETURN(Views views, BuildViewsOf(builder, sample));
  for (const View& view : views) {
    const auto length = static_cast<int64_t>(view.input_ids.size());
    if (length <= context) continue;
    return DataError(
        absl::StrCat("sample '",
                     sample.id,
                     "': a view has ",
                     length,
                     " tokens, the model's context is ",
                     context,
                     "; shorten the problem, the reference or the rollout"));
  }
  return views;
}

}  // namespace dapd
