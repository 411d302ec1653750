#include "common/model/spec/further_teachers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/peft_config.h"

namespace dapd {
namespace {

absl::StatusOr<FurtherTeacher> FindTeacher(const TeacherModel& settings) {
  FurtherTeacher teacher{.settings = settings};
  ASSIGN_OR_RETURN(teacher.folder, FindModelFolder(settings.path));
  ASSIGN_OR_RETURN(teacher.model, ReadModelConfig(teacher.folder));
  if (!settings.adapter.empty()) {
    ASSIGN_OR_RETURN(teacher.adapter, FindAdapterFolder(settings.adapter));
    ASSIGN_OR_RETURN(const PeftConfig peft,
                     ReadPeftConfig(teacher.adapter, teacher.model));
    teacher.lora = peft.lora;
  }
  return teacher;
}

}  // namespace

int64_t FurtherTeacher::NumAdapterParameters() const {
  return lora.has_value()
             ? NumLoraParameters(model, lora->rank, TargetsOf(*lora, model))
             : 0;
}

absl::Status OfTeacher(const TeacherModel& teacher,
                       const absl::Status& status) {
  if (status.ok()) return status;
  return WithExitCode(absl::Status(status.code(),
                                   absl::StrCat("teachers: '",
                                                teacher.name,
                                                "': ",
                                                std::string(status.message()))),
                      ExitCodeOf(status));
}

absl::StatusOr<FurtherTeachers> FindFurtherTeachers(const Config& config) {
  FurtherTeachers teachers;
  for (const TeacherModel& settings : TeachersAsked(config)) {
    auto teacher = FindTeacher(settings);
    if (!teacher.ok()) return OfTeacher(settings, teacher.status());
    teachers.push_back(*std::move(teacher));
  }
  return teachers;
}

absl::StatusOr<FurtherTeacher> FindFurtherTeacher(const Config& config,
                                                  const std::string& name) {
  std::vector<std::string> names;
  for (const TeacherModel& settings : config.teachers) {
    if (settings.name != name) {
      names.push_back(absl::StrCat("'", settings.name, "'"));
      continue;
    }
    auto teacher = FindTeacher(settings);
    if (!teacher.ok()) return OfTeacher(settings, teacher.status());
    return teacher;
  }
  return ConfigError(absl::StrCat(
      "the configuration has no teacher '",
      name,
      "'; ",
      names.empty()
          ? "`teachers` is empty"
          : absl::StrCat("`teachers` has ", absl::StrJoin(names, ", "))));
}

Config ConfigOfTeacher(const LoadedConfig& loaded,
                       const FurtherTeacher& teacher) {
  Config config = loaded.config;
  config.model.path = teacher.folder;
  config.model.name.clear();
  const auto is_for_this_process = [&](const char* key) {
    const std::string& origin = loaded.origins.at(key);
    return origin == "environment" || origin == "--set";
  };
  if (!is_for_this_process("teacher.listen")) {
    config.teacher.listen = teacher.settings.listen;
  }
  if (!is_for_this_process("metrics.teacher_listen")) {
    config.metrics.teacher_listen = teacher.settings.metrics_listen;
  }
  return config;
}

int64_t NumFurtherWorkers(const Config& config) {
  int64_t workers = 0;
  for (const TeacherModel& teacher : TeachersAsked(config)) {
    workers += teacher.workers;
  }
  return workers;
}

int64_t CommonVocabulary(int64_t vocab_size, const FurtherTeachers& teachers) {
  for (const FurtherTeacher& teacher : teachers) {
    vocab_size = std::min(vocab_size, teacher.model.vocab_size);
  }
  return vocab_size;
}

int64_t CommonPositions(int64_t max_positions,
                        const FurtherTeachers& teachers) {
  for (const FurtherTeacher& teacher : teachers) {
    max_positions = std::min(max_positions, teacher.model.max_positions);
  }
  return max_positions;
}

}  // namespace dapd
