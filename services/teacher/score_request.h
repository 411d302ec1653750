// ScoreRequest -> TeacherRequest, with every limit checked at the edge.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "common/rpc/transfer/served_policy.h"
#include "dapd/v1/teacher.pb.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {

// INVALID_ARGUMENT names the view and field. It is returned for no or too many
// views, an unknown or repeated name, a view longer than the model's positions,
// an id outside the vocabulary, a scored range outside the view, unknown
// weights or payload, top_k outside 1..vocab, and a temperature that is not
// above 0.
absl::StatusOr<TeacherRequest> ParseScoreRequest(
    const v1::ScoreRequest& message, const WorkerDescription& limits);

// Converts a message with `prefix`. Returns INVALID_ARGUMENT for too many
// views, an unknown view, a view that cannot fit, an id outside the vocabulary,
// and unknown weights.
absl::StatusOr<PrefixUpdate> ParsePrefixUpdate(const v1::ScoreRequest& message,
                                               const WorkerDescription& limits);

}  // namespace dapd
