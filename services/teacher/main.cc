// dapd-teacher CONFIG [--set key=value]... [--teacher NAME] [--listen ADDR]
//              [--port-file FILE]
//
// A teacher worker: listens, reads the base model, waits for an adapter, and
// scores until SIGTERM or SIGINT. With --teacher it serves that further teacher
// of the configuration (`teachers`) and waits for nothing. Exit code 0 after a
// signal, or 130 with run.stopped_worker.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "common/base/command_line.h"
#include "common/base/crash_report.h"
#include "common/base/cuda_environment.h"
#include "common/base/end_for_restart.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/return_freed_memory.h"
#include "common/base/status_macros.h"
#include "common/base/this_program.h"
#include "common/config/load_config.h"
#include "common/config/set_up_log.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/further_teachers.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server/worker_program.h"
#include "services/teacher/load_scorer.h"
#include "services/teacher/teacher_metrics.h"
#include "services/teacher/teacher_service.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {
namespace {

struct TeacherFlags : WorkerFlags {
  std::string teacher;  // empty: the student's own model
};

absl::Status Run(const TeacherFlags& flags) {
  TeacherService service;  // must outlive the program's server
  WorkerProgram program("teacher", Role::kTeacher);
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.config, flags.Overrides()));
  Config config = loaded.config;
  std::optional<FurtherTeacher> teacher;
  MetricLabels labels;
  if (flags.teacher.empty()) {
    ASSIGN_OR_RETURN(config.model.path, FindModelFolder(config.model.path));
  } else {
    ASSIGN_OR_RETURN(teacher, FindFurtherTeacher(config, flags.teacher));
    config = ConfigOfTeacher(loaded, *teacher);
    labels["teacher"] = flags.teacher;
  }
  RETURN_IF_ERROR(
      program.Start(config,
                    {.grpc = config.teacher.listen,
                     .metrics = config.metrics.teacher_listen,
                     .port_file = flags.port_file,
                     .labels = std::move(labels)},
                    {&service, v1::TeacherService::service_full_name()}));
  ASSIGN_OR_RETURN(LoadedScorer model,
                   teacher.has_value()
                       ? LoadTeacherScorer(loaded.config, *teacher)
                       : LoadModelScorer(config));
  ReturnFreedMemory();
  TeacherWorker worker(std::move(model.scorer),
                       MakeTeacherMetrics(program.metrics()),
                       EndForRestart);
  service.Attach(&worker, model.description);
  return program.ServeUntilSignal(
      [&worker](absl::Duration grace) { worker.Shutdown(grace); },
      /*takes_adapters=*/!teacher.has_value());
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  NameThisProcess();
  ReportCrashes();
  TeacherFlags flags;
  CommandLine line("A DAPD teacher worker: scores views with frozen weights.");
  flags.AddTo(line, "teacher.listen");
  line.AddOption("--teacher",
                 flags.teacher,
                 "serves this teacher of `teachers` instead of the student's "
                 "own model")
      .NotEmpty();
  if (const auto code = line.Parse(argc, argv)) return *code;
  const Config config = PeekConfig(flags.config, flags.Overrides());
  SetCudaEnvironment(config.model.deterministic);
  GiveWayOnSharedGpu(config.teacher.mps_percentage);
  SetUpLog("teacher", config);
  LogWhatGrpcSays();
  const absl::Status status = Run(flags);
  if (!status.ok()) LogError(std::string(status.message()));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
