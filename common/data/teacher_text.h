// Checks that further teachers can read the student's tokens.
#pragma once

#include "absl/status/status.h"

#include "common/data/model_text.h"
#include "common/model/spec/further_teachers.h"

namespace dapd {

// Returns an error (exit code kData) that names the teacher unless its
// tokenizer has the student's tokens (CompareTokenizers) and its head a row for
// each of them, so that no token that a rollout worker samples lies beyond. The
// chat template is the student's, whatever the teacher's.
absl::Status CheckTeacherText(const FurtherTeachers& teachers,
                              const ModelText& student);

}  // namespace dapd
