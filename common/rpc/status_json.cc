#include "common/rpc/status_json.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const v1::IntervalStatus& interval) {
  return {{"mean", interval.mean()},
          {"low", interval.low()},
          {"high", interval.high()}};
}

Json ToJson(const v1::TeacherDivergence& teacher) {
  return {{"name", teacher.name()},
          {"unclipped", teacher.unclipped()},
          {"tokens", teacher.tokens()}};
}

Json ToJson(const v1::WorkerStatus& worker) {
  Json weights = Json::array();
  for (const v1::WeightVersion& served : worker.weights()) {
    weights.push_back({{"set", served.set()}, {"version", served.version()}});
  }
  return {{"role", worker.role()},
          {"address", worker.address()},
          {"state", worker.state()},
          {"policy_version", worker.policy_version()},
          {"weights", std::move(weights)},
          {"in_flight", worker.in_flight()},
          {"last_error", worker.last_error()},
          {"teacher", worker.teacher()}};
}

Json ToJson(const v1::DivergenceStatus& divergence) {
  return {{"name", divergence.name()},
          {"unclipped", ToJson(divergence.unclipped())}};
}

Json ToJson(const v1::RunWarning& warning) {
  return {{"term", warning.term()},
          {"step", warning.step()},
          {"text", warning.text()}};
}

Json ToJson(const v1::TermStatus& term);
Json ToJson(const v1::EvaluationStatus& evaluation);

template <typename Messages>
Json ToList(const Messages& messages) {
  Json list = Json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  return list;
}

Json ToJson(const v1::TermStatus& term) {
  Json json = {{"name", term.name()},
               {"value", term.value()},
               {"weight", term.weight()},
               {"clipped_fraction", term.clipped_fraction()}};
  if (term.teachers_size() > 0) json["teachers"] = ToList(term.teachers());
  return json;
}

Json ToJson(const v1::EvaluationStatus& evaluation) {
  Json json = {{"when", evaluation.when()},
               {"policy_version", evaluation.policy_version()},
               {"problems", evaluation.problems()},
               {"samples", evaluation.samples()},
               {"graded_problems", evaluation.graded_problems()}};
  if (evaluation.has_accuracy()) {
    json["accuracy"] = ToJson(evaluation.accuracy());
  }
  json["format_rate"] = ToJson(evaluation.format_rate());
  json["mean_tokens"] = evaluation.mean_tokens();
  json["divergences"] = ToList(evaluation.divergences());
  json["seconds"] = evaluation.seconds();
  if (evaluation.has_marker_rate()) {
    json["marker"] = evaluation.marker();
    json["marker_rate"] = ToJson(evaluation.marker_rate());
  }
  if (evaluation.has_truncated()) {
    json["truncated"] = ToJson(evaluation.truncated());
  }
  if (evaluation.has_repeated()) {
    json["repeated"] = ToJson(evaluation.repeated());
  }
  if (evaluation.has_claims_none()) {
    json["claims_none"] = ToJson(evaluation.claims_none());
  }
  if (evaluation.has_claims_cross()) {
    json["claims_cross"] = ToJson(evaluation.claims_cross());
  }
  return json;
}

}  // namespace

Json StatusJson(const v1::GetStatusResponse& status) {
  return {{"run_name", status.run_name()},
          {"run_folder", status.run_folder()},
          {"phase", status.phase()},
          {"phase_done", status.phase_done()},
          {"phase_total", status.phase_total()},
          {"trained_ahead", status.trained_ahead()},
          {"step", status.step()},
          {"start_step", status.start_step()},
          {"total_steps", status.total_steps()},
          {"adapter_digest", status.adapter_digest()},
          {"snapshot_step", status.snapshot_step()},
          {"elapsed_seconds", status.elapsed_seconds()},
          {"seconds_per_step", status.seconds_per_step()},
          {"eta_seconds", status.eta_seconds()},
          {"loss", status.loss()},
          {"gradient_norm", status.gradient_norm()},
          {"learning_rate", status.learning_rate()},
          {"mean_rollout_tokens", status.mean_rollout_tokens()},
          {"generated_tokens_per_second", status.generated_tokens_per_second()},
          {"scored_tokens_per_second", status.scored_tokens_per_second()},
          {"samples_per_second", status.samples_per_second()},
          {"sampler_mismatch_mean", status.sampler_mismatch_mean()},
          {"sampler_mismatch_max", status.sampler_mismatch_max()},
          {"sampler_mismatch_tokens", status.sampler_mismatch_tokens()},
          {"max_gradient_norm", status.max_gradient_norm()},
          {"max_rollout_tokens", status.max_rollout_tokens()},
          {"terms", ToList(status.terms())},
          {"evaluations", ToList(status.evaluations())},
          {"evaluation_count", status.evaluation_count()},
          {"warnings", ToList(status.warnings())},
          {"workers", ToList(status.workers())}};
}

}  // namespace dapd
