// The heads of further teachers: the trainer gets hidden states of their size
// and computes their logits itself, exactly over the whole vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "common/model/spec/further_teachers.h"
#include "common/objective/head_loss.h"
#include "common/tensor/aten.h"

namespace dapd {

struct TeacherHead {
  LmHead head;
  std::string layout_digest;  // of its model, as in ModelWeights
};

struct TeacherHeads {
  std::map<std::string, TeacherHead> by_name;
  int64_t vocabulary = 0;  // HeadLossOptions::vocabulary
  int64_t positions = 0;   // CommonPositions

  // Returns null for the student's own model, whose name is empty. Any other
  // name must be here.
  const LmHead* Find(const std::string& name) const {
    return name.empty() ? nullptr : &by_name.at(name).head;
  }
};

// Reads the heads of `teachers` alone (LoadHeadWeights). `student`: the model
// in training. Without teachers nothing is read, and the vocabulary is the
// student's.
absl::StatusOr<TeacherHeads> LoadTeacherHeads(const FurtherTeachers& teachers,
                                              const ModelConfig& student,
                                              at::ScalarType dtype,
                                              at::Device device);

}  // namespace dapd
