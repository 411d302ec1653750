#include "common/objective/upload_scores.h"

#include "common/tensor/device_copy.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

TeacherScores Upload(const std::map<std::string, HostTensor>& tensors,
                     at::Device device) {
  TeacherScores scores;
  for (const auto& [name, host] : tensors) {
    const at::Tensor tensor = ToDevice(ToTorch(host), device);
    if (name == "hidden") scores.hidden = tensor;
    if (name == "logits") scores.logits = tensor;
    if (name == "ids") scores.top_ids = tensor.to(at::kLong);
    if (name == "logprobs") scores.top_logprobs = tensor;
  }
  return scores;
}

}  // namespace

TeacherScores UploadScores(const std::map<std::string, HostTensor>& tensors,
                           at::Device device,
                           const MakeRoom& make_room) {
  while (true) {
    try {
      return Upload(tensors, device);
    } catch (const c10::Error& error) {
      if (!IsOutOfMemory(error) || !make_room || !make_room()) throw;
    }
  }
}

}  // namespace dapd
