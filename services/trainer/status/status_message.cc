#include "services/trainer/status/status_message.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "absl/strings/str_split.h"

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/training/metric_table.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

void AddWorkers(const std::string& role,
                const std::vector<WorkerState>& workers,
                v1::GetStatusResponse* message) {
  for (const WorkerState& worker : workers) {
    v1::WorkerStatus& added = *message->add_workers();
    added.set_role(role);
    added.set_address(worker.address);
    added.set_state(NameOf(worker.stage));
    added.set_policy_version(worker.policy_version);
    for (const auto& [set, version] : worker.weights) {
      v1::WeightVersion& served = *added.add_weights();
      served.set_set(NameOf(set));
      served.set_version(version);
    }
    added.set_in_flight(static_cast<uint32_t>(worker.in_flight));
    added.set_last_error(Printable(worker.last_error));
    added.set_teacher(worker.teacher);
  }
}

void SetInterval(const Interval& interval, v1::IntervalStatus* message) {
  message->set_mean(interval.mean);
  message->set_low(interval.low);
  message->set_high(interval.high);
}

v1::EvaluationStatus EvaluationMessage(const std::string& when,
                                       const EvaluationReport& report) {
  v1::EvaluationStatus message;
  message.set_when(when);
  message.set_policy_version(report.policy_version);
  message.set_problems(report.problems);
  message.set_samples(report.samples);
  message.set_graded_problems(report.graded_problems);
  if (report.accuracy.has_value()) {
    SetInterval(*report.accuracy, message.mutable_accuracy());
  }
  SetInterval(report.format_rate, message.mutable_format_rate());
  if (report.marker_rate.has_value()) {
    message.set_marker(report.marker);
    SetInterval(*report.marker_rate, message.mutable_marker_rate());
  }
  if (report.truncated.has_value()) {
    SetInterval(*report.truncated, message.mutable_truncated());
  }
  if (report.repeated.has_value()) {
    SetInterval(*report.repeated, message.mutable_repeated());
  }
  message.set_mean_tokens(report.mean_tokens);
  for (const TermDivergence& term : report.divergences) {
    v1::DivergenceStatus& divergence = *message.add_divergences();
    divergence.set_name(term.name);
    SetInterval(term.unclipped, divergence.mutable_unclipped());
  }
  if (report.claims.has_value()) {
    SetInterval(report.claims->none, message.mutable_claims_none());
    if (report.claims->cross.has_value()) {
      SetInterval(*report.claims->cross, message.mutable_claims_cross());
    }
  }
  message.set_seconds(report.seconds);
  return message;
}

// JSON cannot express a number that is not finite.
double DoubleOf(const Json& number) {
  return number.is_null() ? std::numeric_limits<double>::quiet_NaN()
                          : number.get<double>();
}

// Sets the field `name`, a double or an int64.
void SetField(google::protobuf::Message* message,
              const std::string& name,
              const Json& number) {
  using google::protobuf::FieldDescriptor;
  const FieldDescriptor* const field =
      message->GetDescriptor()->FindFieldByName(name);
  const auto* const reflection = message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    reflection->SetInt64(message, field, number.get<int64_t>());
  } else {
    reflection->SetDouble(message, field, DoubleOf(number));
  }
}

// Returns the value at `levels` of a line; null if there is none.
const Json* Find(const Json& line, const std::vector<std::string>& levels) {
  const Json* place = &line;
  for (const std::string& level : levels) {
    if (!place->contains(level)) return nullptr;
    place = &place->at(level);
  }
  return place;
}

void RemoveWarnings(const std::function<bool(const std::string& term)>& of,
                    v1::GetStatusResponse* message) {
  auto& warnings = *message->mutable_warnings();
  warnings.erase(std::remove_if(warnings.begin(),
                                warnings.end(),
                                [&](const v1::RunWarning& warning) {
                                  return of(warning.term());
                                }),
                 warnings.end());
}

double SumSeconds(const Json& line) {
  double sum = 0.0;
  for (const auto& [phase, seconds] : line.at("seconds").items()) {
    sum += seconds.get<double>();
  }
  return sum;
}

}  // namespace

v1::GetStatusResponse StatusMessage(const TrainerStatus& status) {
  v1::GetStatusResponse message = status.Get();
  const TrainerStatus::WorkersByRole workers = status.GetWorkers();
  AddWorkers("rollout", workers.rollout, &message);
  AddWorkers("teacher", workers.teacher, &message);
  return message;
}

void ShowStepLine(const Json& line, v1::GetStatusResponse* message) {
  message->set_step(line.at("step"));
  message->set_adapter_digest(line.at("adapter_digest").get<std::string>());
  message->clear_terms();
  if (const Json* const terms = Find(line, {"terms"})) {
    for (const auto& [name, term] : terms->items()) {
      v1::TermStatus& added = *message->add_terms();
      added.set_name(name);
      const Json* const teachers = Find(term, {"teachers"});
      if (teachers == nullptr) continue;
      for (const auto& [teacher, divergence] : teachers->items()) {
        added.add_teachers()->set_name(teacher);
      }
    }
  }
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.status.empty()) continue;
    std::vector<std::string> levels = absl::StrSplit(metric.path, '/');
    if (metric.label().empty()) {
      const Json* const number = Find(line, levels);
      if (number != nullptr) SetField(message, metric.status, *number);
      continue;
    }
    for (v1::TermStatus& term : *message->mutable_terms()) {
      levels[1] = term.name();
      if (!metric.IsByTeacher()) {
        const Json* const number = Find(line, levels);
        if (number != nullptr) SetField(&term, metric.status, *number);
        continue;
      }
      for (v1::TeacherDivergence& teacher : *term.mutable_teachers()) {
        levels[3] = teacher.name();
        const Json* const number = Find(line, levels);
        if (number != nullptr) SetField(&teacher, metric.status, *number);
      }
    }
  }
  const double seconds = SumSeconds(line);
  const auto per_second = [&](const char* count) {
    return seconds > 0.0 ? line.at(count).get<double>() / seconds : 0.0;
  };
  message->set_generated_tokens_per_second(per_second("generated_tokens"));
  message->set_scored_tokens_per_second(per_second("scored_tokens"));
  message->set_samples_per_second(per_second("samples"));
}

void ShowClipFindings(const std::vector<ClipFinding>& findings,
                      v1::GetStatusResponse* message) {
  RemoveWarnings(
      [](const std::string& term) {
        return !term.empty() && term != kClaimWarning;
      },
      message);
  for (const ClipFinding& finding : findings) {
    v1::RunWarning& warning = *message->add_warnings();
    warning.set_term(finding.term);
    warning.set_step(finding.step);
    warning.set_text(Describe(finding));
  }
}

void ShowDiskWait(const std::string& text, v1::GetStatusResponse* message) {
  RemoveWarnings([](const std::string& term) { return term.empty(); }, message);
  if (text.empty()) return;
  v1::RunWarning& warning = *message->add_warnings();
  warning.set_step(message->step());
  warning.set_text(text);
}

void ShowClaimRise(const std::optional<ClaimRise>& rise,
                   v1::GetStatusResponse* message) {
  RemoveWarnings([](const std::string& term) { return term == kClaimWarning; },
                 message);
  if (!rise.has_value()) return;
  v1::RunWarning& warning = *message->add_warnings();
  warning.set_term(kClaimWarning);
  warning.set_step(rise->step);
  warning.set_text(Describe(*rise));
}

void ShowEvaluation(const std::string& when,
                    const EvaluationReport& report,
                    v1::GetStatusResponse* message) {
  for (v1::EvaluationStatus& known : *message->mutable_evaluations()) {
    if (known.when() != when) continue;
    known = EvaluationMessage(when, report);
    return;
  }
  auto& listed = *message->mutable_evaluations();
  const auto is_within = [](const v1::EvaluationStatus& evaluation) {
    return IsWithinRun(evaluation.when());
  };
  if (IsWithinRun(when) &&
      std::ranges::count_if(listed, is_within) == kMaxListedEvaluations) {
    const auto oldest = std::ranges::find_if(listed, is_within);
    // A run that was resumed from an earlier step measured it again. It was
    // counted before it was dropped.
    if (report.policy_version < oldest->policy_version()) return;
    listed.erase(oldest);
  }
  *listed.Add() = EvaluationMessage(when, report);
  message->set_evaluation_count(message->evaluation_count() + 1);
}

}  // namespace dapd
