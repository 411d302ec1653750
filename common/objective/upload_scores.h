// UploadScores: a teacher's tensors, from the network to the device that
// trains.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/objective/head_loss.h"
#include "common/tensor/aten.h"
#include "common/tensor/host_tensor.h"

namespace dapd {

// Drops what is only kept to save time; false: there was nothing.
using MakeRoom = std::function<bool()>;

// `tensors` by the names of teacher.proto's Payload. The host waits for no copy
// to a GPU. Where memory has run out there, `make_room`, if given, is called
// and all is tried again. c10::OutOfMemoryError if that does not help.
TeacherScores UploadScores(const std::map<std::string, HostTensor>& tensors,
                           at::Device device,
                           const MakeRoom& make_room);

}  // namespace dapd
