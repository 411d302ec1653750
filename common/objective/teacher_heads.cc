#include "common/objective/teacher_heads.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/spec/layer_recipe.h"
#include "common/model/weights/weights.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {

absl::StatusOr<TeacherHeads> LoadTeacherHeads(const FurtherTeachers& teachers,
                                              const ModelConfig& student,
                                              at::ScalarType dtype,
                                              at::Device device) {
  TeacherHeads heads{
      .vocabulary = CommonVocabulary(student.vocab_size, teachers),
      .positions = CommonPositions(student.max_positions, teachers)};
  RETURN_IF_ERROR(CatchTorch([&]() -> absl::Status {
    for (const FurtherTeacher& teacher : teachers) {
      ASSIGN_OR_RETURN(HeadWeights read,
                       LoadHeadWeights(teacher.folder, dtype, device));
      heads.by_name.emplace(
          teacher.name(),
          TeacherHead{LmHead(std::move(read.head),
                             ModelRecipeOf(read.config).logit_softcap),
                      std::move(read.layout_digest)});
    }
    return absl::OkStatus();
  }));
  return heads;
}

}  // namespace dapd
