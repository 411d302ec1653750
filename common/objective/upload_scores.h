// UploadScores copies a teacher's tensors from the network to the device that
// trains.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/objective/head_loss.h"
#include "common/tensor/aten.h"
#include "common/tensor/host_tensor.h"

namespace dapd {

// Drops what is kept only to save time. Returns false if there was nothing to
// drop.
using MakeRoom = std::function<bool()>;

// Uploads `tensors`, named as in the Payload of teacher.proto. The host does
// not wait for copies to a GPU. If the memory of the device runs out,
// `make_room` is called, if given, and everything is tried again. Throws
// c10::OutOfMemoryError if that does not help.
TeacherScores UploadScores(const std::map<std::string, HostTensor>& tensors,
                           at::Device device,
                           const MakeRoom& make_room);

}  // namespace dapd
