#include "services/trainer/status/status_message.h"

#include <string>
#include <vector>

namespace dapd {
namespace {

void AddWorkers(const std::string& role,
                const std::vector<WorkerState>& workers,
                v1::GetStatusResponse* message) {
  for (const WorkerState& worker : workers) {
    v1::WorkerStatus& added = *message->add_workers();
    added.set_role(role);
    added.set_address(worker.address);
    added.set_state(worker.state);
    added.set_policy_version(worker.policy_version);
    for (const auto& [set, version] : worker.weights) {
      v1::WeightVersion& served = *added.add_weights();
      served.set_set(WeightSetName(set));
      served.set_version(version);
    }
    added.set_in_flight(static_cast<uint32_t>(worker.in_flight));
    added.set_last_error(worker.last_error);
  }
}

void SetInterval(const Interval& interval, v1::IntervalStatus* message) {
  message->set_mean(interval.mean);
  message->set_low(interval.low);
  message->set_high(interval.high);
}

void AddEvaluation(const TrainerState::Evaluation& evaluation,
                   v1::GetStatusResponse* message) {
  const EvaluationReport& report = evaluation.report;
  v1::EvaluationStatus& added = *message->add_evaluations();
  added.set_when(evaluation.when);
  added.set_policy_version(report.policy_version);
  added.set_problems(report.problems);
  added.set_samples(report.samples);
  SetInterval(report.accuracy, added.mutable_accuracy());
  SetInterval(report.format_rate, added.mutable_format_rate());
  added.set_mean_tokens(report.mean_tokens);
  for (const TermDivergence& term : report.divergences) {
    v1::DivergenceStatus& divergence = *added.add_divergences();
    divergence.set_name(term.name);
    SetInterval(term.unclipped, divergence.mutable_unclipped());
  }
  added.set_seconds(report.seconds);
}

}  // namespace

v1::GetStatusResponse StatusMessage(const TrainerStatus& status) {
  const TrainerState state = status.Get();
  v1::GetStatusResponse message;
  message.set_run_name(state.run_name);
  message.set_run_folder(state.run_folder);
  message.set_phase(state.phase);
  message.set_phase_done(state.phase_done);
  message.set_phase_total(state.phase_total);
  message.set_step(state.step);
  message.set_start_step(state.start_step);
  message.set_total_steps(state.total_steps);
  message.set_adapter_digest(state.adapter_digest);
  message.set_snapshot_step(state.snapshot_step);
  message.set_elapsed_seconds(state.elapsed_seconds);
  message.set_seconds_per_step(state.seconds_per_step);
  message.set_eta_seconds(state.eta_seconds);
  message.set_loss(state.loss);
  message.set_gradient_norm(state.gradient_norm);
  message.set_learning_rate(state.learning_rate);
  message.set_mean_rollout_tokens(state.mean_rollout_tokens);
  message.set_generated_tokens_per_second(state.generated_tokens_per_second);
  message.set_scored_tokens_per_second(state.scored_tokens_per_second);
  message.set_samples_per_second(state.samples_per_second);
  message.set_max_gradient_norm(state.max_gradient_norm);
  message.set_max_rollout_tokens(state.max_rollout_tokens);
  for (const TrainerState::Term& term : state.terms) {
    v1::TermStatus& added = *message.add_terms();
    added.set_name(term.name);
    added.set_value(term.value);
    added.set_weight(term.weight);
    added.set_clipped_fraction(term.clipped_fraction);
  }
  for (const TrainerState::Evaluation& evaluation : state.evaluations) {
    AddEvaluation(evaluation, &message);
  }
  const TrainerStatus::WorkersByRole workers = status.GetWorkers();
  AddWorkers("rollout", workers.rollout, &message);
  AddWorkers("teacher", workers.teacher, &message);
  return message;
}

}  // namespace dapd
