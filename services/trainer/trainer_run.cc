#include "services/trainer/trainer_run.h"

#include <future>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/random_name.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/config/run_settings.h"
#include "common/data/dataset.h"
#include "common/data/expected_answer.h"
#include "common/data/model_text.h"
#include "common/data/teacher_text.h"
#include "common/data/view_limits.h"
#include "common/gpus/rank_device.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/executor_support.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/gpu_memory_wait.h"
#include "common/model/spec/gpu_model.h"
#include "common/model/spec/gpu_shares.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/adapter_check.h"
#include "common/model/weights/base_digest.h"
#include "common/model/weights/device_memory.h"
#include "common/model/weights/placement.h"
#include "common/model/weights/weights.h"
#include "common/objective/teacher_heads.h"
#include "common/sharding/sharded_layers.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"
#include "common/tensor/side_stream.h"
#include "common/tensor/torch_bridge.h"
#include "common/terms/term.h"
#include "common/training/optimizer_options.h"
#include "common/training/policy.h"
#include "common/training/policy_state.h"
#include "services/trainer/copy/run_copier.h"
#include "services/trainer/copy/run_cut.h"
#include "services/trainer/record/checkpoint.h"
#include "services/trainer/record/ledger.h"
#include "services/trainer/record/run_identity.h"
#include "services/trainer/record/run_outcome.h"
#include "services/trainer/record/run_recorder.h"
#include "services/trainer/trainer_loop.h"

namespace dapd {

struct LoadedBase {
  std::shared_ptr<const ModelWeights> weights;
  // This rank's layers, if the ranks share the base (trainer.shard_base);
  // `weights` then gets all ranks' layers once the ranks are connected.
  std::shared_ptr<const ShardedWeights> shard;
};

namespace {

// Returns the adapter of version 0 of the policy.
absl::StatusOr<Adapter> StartAdapter(const Config& config,
                                     const LoraConfig& lora,
                                     const ModelWeights& weights) {
  if (config.lora.start_from.empty()) {
    return MakeFreshAdapter(
        weights.config, lora, config.run.seed, weights.device());
  }
  ASSIGN_OR_RETURN(const std::string folder,
                   FindStartAdapter(config.lora, weights.config));
  LogInfo(absl::StrCat("continuing from the adapter in ", folder));
  return ReadAdapter(folder, weights.config, weights.device());
}

// Refuses a run that has taken more steps than trainer.steps: it would report
// them as finished.
absl::Status CheckSteps(const TrainerSection& trainer,
                        const PolicyState& saved,
                        const RunFolder& folder) {
  if (saved.version <= trainer.steps) return absl::OkStatus();
  return ConfigError(absl::StrCat("trainer.steps is ",
                                  trainer.steps,
                                  ", but the run in ",
                                  folder.path(),
                                  " has taken ",
                                  saved.version,
                                  " steps; set it to ",
                                  saved.version,
                                  " to end the run there, or higher to go on"));
}

// Reads data.path, and evaluation.path if there is one.
absl::Status ReadProblems(const Config& config,
                          Dataset* data,
                          Dataset* held_out) {
  RETURN_IF_ERROR(RequireDataPath(config.data));
  // A grader of the user's own gets the rows, and need not have answers.
  const bool has_grader = config.grader.is_given();
  ASSIGN_OR_RETURN(*data,
                   ReadDataset(config.data.path, MakeDatasetOptions(config)));
  if (!has_grader) {
    WarnOfBadAnswers(config.data.path, "data.answer_column", *data);
  }
  if (!config.evaluation.path.empty()) {
    ASSIGN_OR_RETURN(
        *held_out,
        ReadDataset(config.evaluation.path, MakeHeldOutOptions(config)));
    if (!has_grader) {
      WarnOfBadAnswers(config.evaluation.path, "data.answer_column", *held_out);
    }
    WarnOfUngradedProblems(config, *held_out);
  }
  return ApplyAnswerRule(config, data);
}

absl::StatusOr<std::map<std::string, std::string>> DigestTeachers(
    const FurtherTeachers& teachers) {
  std::map<std::string, std::string> digests;
  for (const FurtherTeacher& teacher : teachers) {
    ASSIGN_OR_RETURN(digests[teacher.name()],
                     TeacherDigest(teacher.folder, teacher.adapter));
  }
  return digests;
}

absl::StatusOr<LoadedBase> LoadBase(const std::string& folder,
                                    at::ScalarType dtype,
                                    at::Device device,
                                    const TrainerSection& trainer) {
  LoadedBase base;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    if (!trainer.shard_base) {
      ASSIGN_OR_RETURN(base.weights, LoadModelWeights(folder, dtype, device));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(
        base.shard,
        LoadShardedWeights(folder,
                           dtype,
                           device,
                           {.rank = static_cast<int>(trainer.rank),
                            .size = static_cast<int>(trainer.ranks)}));
    base.weights = WithLayersFrom(*base.shard, /*source=*/nullptr);
    return absl::OkStatus();
  }));
  return base;
}

// Returns the amount of work that fits on this rank's device beside the model;
// logged for a GPU.
absl::StatusOr<TrainerLimits> PlanLimits(const Config& config,
                                         const ModelWeights& weights,
                                         const FurtherTeachers& teachers) {
  TrainerLimits limits;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(
        limits,
        PlanTrainerLimits(config,
                          weights.config,
                          MemoryOf(weights.device(), config.run.gpu_processes),
                          teachers));
    return absl::OkStatus();
  }));
  if (weights.device().is_cuda()) LogInfo(Describe(limits, weights.config));
  WarnUnlessSupported("training", Executor::kLayerPass, weights.config);
  WarnUnlessSupported("loss", Executor::kHeadKernels, weights.config);
  return limits;
}

// Returns the policy of the run folder's newest checkpoint or, without one, of
// the start. Returns the errors of LoadNewestCheckpoint and, without a
// checkpoint, the errors of CheckIdentity, and DATA_LOSS if the run is
// finished.
absl::StatusOr<std::unique_ptr<Policy>> StartPolicy(
    const Config& config,
    const LoraConfig& lora,
    const ModelWeights& weights,
    const RunFolder& folder,
    const RunIdentity& identity) {
  const OptimizerOptions options = MakeOptimizerOptions(config);
  ASSIGN_OR_RETURN(std::optional<PolicyState> saved,
                   LoadNewestCheckpoint(folder.File("checkpoints"),
                                        identity,
                                        weights.config,
                                        weights.device()));
  if (saved.has_value()) {
    RETURN_IF_ERROR(CheckSteps(config.trainer, *saved, folder));
    LogInfo(absl::StrCat(
        "resuming after step ", saved->version, " of ", folder.path()));
    return Policy::Restore(*std::move(saved), options);
  }
  if (const int64_t finished = FinishedStep(folder.path()); finished > 0) {
    return absl::DataLossError(
        absl::StrCat(folder.path(),
                     " holds a run that finished step ",
                     finished,
                     ", but no checkpoint to resume from; put one back, or "
                     "choose another run.name to start a new run"));
  }
  RETURN_IF_ERROR(CheckIdentity(folder.path(), identity));
  if (folder.resumed()) {
    LogInfo(absl::StrCat(folder.path(),
                         " has no checkpoint yet; starting at step 1"));
  }
  ASSIGN_OR_RETURN(Adapter start, StartAdapter(config, lora, weights));
  // A fresh adapter changes nothing: its snapshot is the base.
  std::optional<Adapter> snapshot;
  if (!config.lora.start_from.empty()) snapshot = start.Clone();
  return std::make_unique<Policy>(
      std::move(start), std::move(snapshot), options);
}

}  // namespace

struct TrainerRun::State {
  LoadedConfig loaded;
  RunDisplays displays;
  std::optional<RunFolder> folder;
  RunIdentity identity;
  LoadedBase base;
  TextPipeline text;
  std::vector<Term> terms;
  FurtherTeachers teachers;
  TeacherHeads heads;  // of the teachers
  Dataset data;
  Dataset held_out;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<RunRecorder> recorder;
  std::unique_ptr<RunCopier> copier;  // null: the run is not copied
};

TrainerRun::TrainerRun(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

TrainerRun::~TrainerRun() = default;

absl::StatusOr<std::unique_ptr<TrainerRun>> TrainerRun::Load(
    const LoadedConfig& loaded,
    const RunDisplays& displays,
    const std::function<bool(absl::Duration)>& wait_for_stop) {
  auto state = std::make_unique<State>();
  state->loaded = loaded;
  state->displays = displays;
  const Config& config = loaded.config;
  // Quick checks come first.
  state->terms = ExpandTerms(config.objective);
  ASSIGN_OR_RETURN(const at::Device device, OpenDevice(config.model));
  const at::ScalarType dtype = TypeOf(config.model.precision);
  RETURN_IF_ERROR(ReadProblems(config, &state->data, &state->held_out));
  ASSIGN_OR_RETURN(ModelText base, ReadModelText(config));
  RETURN_IF_ERROR(CheckTeacherText(base.teachers, base));
  WarnOfAnswerEnds(base);
  const ModelConfig& model = base.model;
  ASSIGN_OR_RETURN(const LoraConfig lora, MakeLoraConfig(config.lora, model));
  ASSIGN_OR_RETURN(state->identity.base_model_path,
                   BaseModelName(config.model.path, config.model.name));
  if (device.is_cuda()) {
    RETURN_IF_ERROR(CheckGpuModel(config.model.precision, model));
    const RoleMemory plan = PlanMemory(config, model, base.teachers).trainer;
    RETURN_IF_ERROR(AwaitGpuMemory([&] { return CheckOwnGpu("trainer", plan); },
                                   absl::Seconds(config.run.gpu_wait_seconds),
                                   wait_for_stop));
  }
  state->text = std::move(base.text);
  RETURN_IF_ERROR(
      ApplyViewLimits(config, base.max_view(), state->text, &state->data));
  RETURN_IF_ERROR(ApplyHeldOutLimits(
      config, model.max_positions, state->text, &state->held_out));
  if (config.trainer.rank == 0) {
    ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Open(config.run));
    // A resumed run has its adapter in its folder.
    if (!folder.resumed()) {
      RETURN_IF_ERROR(FindStartAdapter(config.lora, model).status());
    }
    state->folder.emplace(std::move(folder));
  }
  SetComputeThreads(config.run.num_threads);
  // Both digests read these files.
  auto base_digest =
      std::async(std::launch::async, [&] { return BaseDigest(base.folder); });
  auto teacher_digests = std::async(
      std::launch::async, [&] { return DigestTeachers(base.teachers); });
  ASSIGN_OR_RETURN(state->base,
                   LoadBase(base.folder, dtype, device, config.trainer));
  ASSIGN_OR_RETURN(state->heads,
                   LoadTeacherHeads(base.teachers, model, dtype, device));
  LogInfo(absl::StrCat(state->data.problems.size(),
                       " problems (",
                       state->data.skipped_rows,
                       " rows skipped), ",
                       state->held_out.problems.size(),
                       " held out; ",
                       model.NumParameters(),
                       " parameters, ",
                       NumLoraParameters(model, lora.rank, lora.targets),
                       " trained"));
  ASSIGN_OR_RETURN(state->identity.base_digest, base_digest.get());
  ASSIGN_OR_RETURN(state->identity.teacher_digests, teacher_digests.get());
  state->teachers = std::move(base.teachers);
  state->identity.data_digest = state->data.digest;
  state->identity.settings = ResultSettings(config);
  std::unique_ptr<TrainerRun> run(new TrainerRun(std::move(state)));
  if (config.trainer.rank == 0) RETURN_IF_ERROR(run->OpenFolder(lora));
  return run;
}

absl::Status TrainerRun::OpenFolder(const LoraConfig& lora) {
  State& state = *state_;
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(state.policy,
                     StartPolicy(state.loaded.config,
                                 lora,
                                 *state.base.weights,
                                 *state.folder,
                                 state.identity));
    return absl::OkStatus();
  }));
  ASSIGN_OR_RETURN(state.ledger,
                   Ledger::Open(state.folder->File("ledger.jsonl")));
  ASSIGN_OR_RETURN(state.recorder,
                   RunRecorder::Create(state.loaded,
                                       *state.folder,
                                       state.policy->version(),
                                       state.held_out,
                                       state.displays));
  // The outcome of the previous attempt is no longer valid.
  ForgetOutcome(state.folder->path());
  StartCopier();
  return absl::OkStatus();
}

void TrainerRun::StartCopier() {
  State& state = *state_;
  auto options = CopierOptions(state.loaded.config, state.folder->path());
  if (!options.has_value()) {
    // An earlier attempt that copied may have left cuts.
    DropAllCuts(state.folder->path());
    return;
  }
  options->observer = state.displays.metrics->MakeCopyObserver();
  state.copier = RunCopier::StartOrWarn(*std::move(options));
  if (state.copier == nullptr) return;
  // An attempt that saved the checkpoint may have died before it copied it.
  if (state.policy->version() > 0) state.copier->Add(state.policy->version());
}

void TrainerRun::RecordOutcome(const absl::Status& outcome) const {
  if (!state_->folder.has_value() || !FileExists(state_->folder->path())) {
    return;
  }
  const absl::Status written =
      WriteOutcome(state_->folder->path(), OutcomeOf(outcome));
  if (!written.ok()) LogWarning(std::string(written.message()));
}

std::string TrainerRun::Identity() const {
  return RankIdentity(state_->identity,
                      Version(),
                      state_->base.shard != nullptr,
                      state_->loaded.config.security.insecure);
}

std::string TrainerRun::Device() const {
  return RankDevice(state_->base.weights->device().is_cuda());
}

// Sends rank 0's policy to all ranks.
absl::Status TrainerRun::SharePolicy(Collective& collective) {
  return CatchTorch([&]() -> absl::Status {
    std::string bytes;
    if (collective.rank() == 0) {
      ASSIGN_OR_RETURN(bytes, SerializePolicyState(*state_->policy));
    }
    RETURN_IF_ERROR(collective.Broadcast(&bytes));
    if (collective.rank() == 0) return absl::OkStatus();
    const ModelWeights& weights = *state_->base.weights;
    ASSIGN_OR_RETURN(PolicyState policy,
                     ParsePolicyState(bytes, weights.config, weights.device()));
    ASSIGN_OR_RETURN(
        state_->policy,
        Policy::Restore(std::move(policy),
                        MakeOptimizerOptions(state_->loaded.config)));
    return absl::OkStatus();
  });
}

ExpectedWorker TrainerRun::ExpectedWorkers() const {
  const ModelWeights& weights = *state_->base.weights;
  return {.layout_digest = weights.layout_digest,
          .precision = NameOf(PrecisionOf(weights.dtype())),
          .vocab_size = weights.config.vocab_size,
          .hidden_size = weights.config.hidden_size,
          .end_ids = weights.config.eos_token_ids};
}

std::map<std::string, ExpectedWorker> TrainerRun::ExpectedTeachers() const {
  const ExpectedWorker own = ExpectedWorkers();
  std::map<std::string, ExpectedWorker> expected;
  for (const FurtherTeacher& teacher : state_->teachers) {
    const std::string& name = teacher.name();
    expected[name] = {
        .layout_digest = state_->heads.by_name.at(name).layout_digest,
        .precision = own.precision,
        .vocab_size = teacher.model.vocab_size,
        .hidden_size = teacher.model.hidden_size,
        .teacher = name,
        .teacher_digest = state_->identity.teacher_digests.at(name)};
  }
  return expected;
}

absl::Status TrainerRun::Train(
    RolloutClient& rollouts,
    TeacherClient& teachers,
    Collective& collective,
    Timeline* timeline,
    GradingDesk* grader,
    std::function<bool(absl::Duration)> wait_for_stop) {
  State& state = *state_;
  std::string attempt_key;
  if (collective.size() > 1) {
    RETURN_IF_ERROR(SharePolicy(collective));
    attempt_key = RandomName();
    RETURN_IF_ERROR(collective.Broadcast(&attempt_key));
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<DeviceGroup> devices,
      DeviceGroup::Join(collective,
                        state.base.weights->device(),
                        state.loaded.config.trainer.rank_timeout_seconds));
  std::shared_ptr<ShardedLayers> layers;
  if (state.base.shard != nullptr) {
    layers = std::make_shared<ShardedLayers>(
        state.base.shard,
        collective,
        *devices,
        MakeSideStream(state.base.weights->device()));
    state.base.weights = WithLayersFrom(*state.base.shard, layers);
  }
  ASSIGN_OR_RETURN(
      const TrainerLimits limits,
      PlanLimits(state.loaded.config, *state.base.weights, state.teachers));
  BatchTrainerParts batch{.config = state.loaded.config,
                          .weights = state.base.weights,
                          .tokenizer = *state.text.tokenizer,
                          .views = *state.text.views,
                          .terms = state.terms,
                          .data = state.data,
                          .rollouts = rollouts,
                          .teachers = teachers,
                          .teacher_heads = state.heads,
                          .collective = collective,
                          .devices = *devices,
                          .sharded_layers = layers.get(),
                          .policy = *state.policy,
                          .limits = limits,
                          .attempt_key = std::move(attempt_key),
                          .on_phase = [](TrainerPhase /*phase*/) {},
                          .on_progress = [](int64_t, int64_t) {},
                          .on_ahead = [](int64_t, int64_t) {},
                          .on_served = [](int64_t /*version*/) {},
                          .timeline = timeline,
                          .grader = grader};
  if (collective.rank() != 0) return RunOtherRank(std::move(batch));
  batch.on_phase = [&state](TrainerPhase phase) {
    state.recorder->BeginPhase(phase);
  };
  batch.on_progress = [&state](int64_t done, int64_t total) {
    state.recorder->AdvancePhase(done, total);
  };
  batch.on_ahead = [&state](int64_t micro_batches, int64_t /*tokens*/) {
    state.recorder->RecordTrainedAhead(micro_batches);
  };
  batch.on_served = [&state](int64_t version) {
    state.displays.metrics->RecordServed(version);
  };
  TrainerLoop loop(TrainerParts{.batch = std::move(batch),
                                .identity = state.identity,
                                .held_out = state.held_out,
                                .recorder = *state.recorder,
                                .ledger = *state.ledger,
                                .metrics = *state.displays.metrics,
                                .status = *state.displays.status,
                                .wait_for_stop = wait_for_stop,
                                .on_saved = [&state](int64_t step) {
                                  if (state.copier) state.copier->Add(step);
                                }});
  const absl::Status outcome = loop.Run();
  if (!outcome.ok()) state.recorder->WriteReport(outcome);
  if (state.copier) {
    FinishCopy(*state.copier, state.loaded.config, outcome, wait_for_stop);
  }
  return outcome;
}

}  // namespace dapd
