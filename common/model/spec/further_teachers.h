// The further teachers of a configuration (`teachers`): models other than the
// student's own that the terms read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct FurtherTeacher {
  TeacherModel settings;
  std::string folder;   // the model's
  std::string adapter;  // folder of its adapter; empty: none
  ModelConfig model;
  std::optional<LoraConfig> lora = {};  // of the adapter, if there is one

  const std::string& name() const { return settings.name; }
  int64_t NumAdapterParameters() const;  // 0 without an adapter
};
using FurtherTeachers = std::vector<FurtherTeacher>;

// Finds the models and adapters of the teachers that the terms read
// (TeachersAsked), in the order of the configuration. Reads config.json and
// adapter_config.json alone. An error names the teacher.
absl::StatusOr<FurtherTeachers> FindFurtherTeachers(const Config& config);

// Finds the teacher `name`, whether a term reads it or not. Returns a CONFIG
// error with the known names if there is none.
absl::StatusOr<FurtherTeacher> FindFurtherTeacher(const Config& config,
                                                  const std::string& name);

// Returns `status` with the name of the teacher that it is about; OK stays OK.
absl::Status OfTeacher(const TeacherModel& teacher, const absl::Status& status);

// Returns the configuration of a worker that serves `teacher`: with its model
// and the addresses where it listens. Where the environment or --set gives
// teacher.listen or metrics.teacher_listen, that address counts for it, too.
Config ConfigOfTeacher(const LoadedConfig& loaded,
                       const FurtherTeacher& teacher);

// Returns how many workers of further teachers `dapd run` starts.
int64_t NumFurtherWorkers(const Config& config);

// Returns the rows that every head in use has, the size of the vocabulary of
// all losses. `vocab_size`: of the student's model.
int64_t CommonVocabulary(int64_t vocab_size, const FurtherTeachers& teachers);

// Returns the positions that every model in use has.
int64_t CommonPositions(int64_t max_positions, const FurtherTeachers& teachers);

}  // namespace dapd
