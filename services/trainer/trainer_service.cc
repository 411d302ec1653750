#include "services/trainer/trainer_service.h"

#include <utility>

namespace dapd {
namespace {

void AddWorkers(const std::string& role,
                const std::vector<WorkerState>& workers,
                v1::GetStatusResponse* response) {
  for (const WorkerState& worker : workers) {
    v1::WorkerStatus& message = *response->add_workers();
    message.set_role(role);
    message.set_address(worker.address);
    message.set_state(worker.state);
    message.set_policy_version(worker.policy_version);
    message.set_in_flight(static_cast<uint32_t>(worker.in_flight));
    message.set_last_error(worker.last_error);
  }
}

}  // namespace

TrainerService::TrainerService(const TrainerStatus* status,
                               Workers rollout_workers,
                               Workers teacher_workers)
    : status_(status),
      rollout_workers_(std::move(rollout_workers)),
      teacher_workers_(std::move(teacher_workers)) {}

grpc::Status TrainerService::GetStatus(grpc::ServerContext*,
                                       const v1::GetStatusRequest*,
                                       v1::GetStatusResponse* response) {
  const TrainerState state = status_->Get();
  response->set_run_name(state.run_name);
  response->set_run_folder(state.run_folder);
  response->set_phase(state.phase);
  response->set_step(state.step);
  response->set_total_steps(state.total_steps);
  response->set_adapter_digest(state.adapter_digest);
  response->set_snapshot_step(state.snapshot_step);
  response->set_seconds_per_step(state.seconds_per_step);
  response->set_eta_seconds(state.eta_seconds);
  response->set_loss(state.loss);
  response->set_gradient_norm(state.gradient_norm);
  response->set_learning_rate(state.learning_rate);
  response->set_mean_rollout_tokens(state.mean_rollout_tokens);
  for (const TrainerState::Term& term : state.terms) {
    v1::TermStatus& message = *response->add_terms();
    message.set_name(term.name);
    message.set_value(term.value);
    message.set_weight(term.weight);
    message.set_clipped_fraction(term.clipped_fraction);
  }
  AddWorkers("rollout", rollout_workers_(), response);
  AddWorkers("teacher", teacher_workers_(), response);
  return grpc::Status::OK;
}

}  // namespace dapd
