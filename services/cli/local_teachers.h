// The further teachers of a configuration in this process, for `replay` and
// `probe compatibility`. Unlike a trainer, it holds their whole models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/objective/head_loss.h"
#include "common/terms/target.h"
#include "common/terms/view.h"
#include "common/training/policy.h"

namespace dapd {

class LocalTeachers {
 public:
  // Reads the models and adapters of `teachers` for a student on the same
  // device and in the same precision.
  static absl::StatusOr<LocalTeachers> Load(const FurtherTeachers& teachers,
                                            const ModelWeights& student);

  // Returns the scores of `passes` over one sample, whose row names the teacher
  // `row_teacher` (empty or "base": the student's own base): by the student's
  // own model with the sets of `policy`, and by these teachers. The scores
  // refer to this object's heads. Returns an error (exit code kData) if a pass
  // needs the row's teacher and it is not here.
  absl::StatusOr<std::map<TeacherPass, TeacherScores>> Score(
      const ModelWeights& student,
      const Policy& policy,
      const std::vector<TeacherPass>& passes,
      const std::string& row_teacher,
      const Views& views) const;

  // Returns HeadLossOptions::vocabulary.
  int64_t vocabulary() const { return vocabulary_; }
  // Returns the longest view that every model takes.
  int64_t max_view() const { return max_view_; }

 private:
  struct Teacher {
    std::shared_ptr<const ModelWeights> weights;
    std::optional<Adapter> adapter;
    LmHead head;
  };

  std::map<std::string, Teacher> teachers_;
  int64_t vocabulary_ = 0;
  int64_t max_view_ = 0;
};

}  // namespace dapd
