#include "common/training/gradient_sum.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/collective/nccl_api.h"
#include "common/model/placement.h"

namespace dapd {
namespace {

class HostGradientSum : public GradientSum {
 public:
  explicit HostGradientSum(Collective& collective) : collective_(collective) {}

  absl::Status Add(at::Tensor& gradient) override {
    return collective_.Sum(absl::MakeSpan(
        gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())));
  }

 private:
  Collective& collective_;
};

template <typename Function>
absl::Status Find(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(CudaSymbol(name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "libdapd_cuda.so has no ", name, "; build it and the program together"));
}

class NcclGradientSum : public GradientSum {
 public:
  explicit NcclGradientSum(double timeout_seconds)
      : timeout_seconds_(timeout_seconds) {}
  ~NcclGradientSum() override {
    if (communicator_ != nullptr) destroy_(communicator_);
  }

  absl::Status Join(Collective& collective) {
    decltype(DapdNcclUniqueId)* make_id = nullptr;
    decltype(DapdNcclInit)* init = nullptr;
    RETURN_IF_ERROR(Find("DapdNcclUniqueId", &make_id));
    RETURN_IF_ERROR(Find("DapdNcclInit", &init));
    RETURN_IF_ERROR(Find("DapdNcclSum", &sum_));
    RETURN_IF_ERROR(Find("DapdNcclDestroy", &destroy_));
    char error[256] = "";
    std::string id(kNcclIdBytes, '\0');
    if (collective.rank() == 0 && make_id(id.data(), error) != 0) {
      return absl::AbortedError(error);
    }
    RETURN_IF_ERROR(collective.Broadcast(&id));
    if (id.size() != kNcclIdBytes) {
      return absl::DataLossError("rank 0 sent no NCCL identifier");
    }
    if (init(id.data(),
             collective.rank(),
             collective.size(),
             &communicator_,
             error) != 0) {
      return absl::AbortedError(error);
    }
    return absl::OkStatus();
  }

  absl::Status Add(at::Tensor& gradient) override {
    char error[256] = "";
    if (sum_(communicator_,
             gradient.data_ptr<float>(),
             gradient.numel(),
             timeout_seconds_,
             error) == 0) {
      return absl::OkStatus();
    }
    communicator_ = nullptr;  // aborted
    return absl::AbortedError(error);
  }

 private:
  const double timeout_seconds_;
  void* communicator_ = nullptr;
  decltype(DapdNcclSum)* sum_ = nullptr;
  decltype(DapdNcclDestroy)* destroy_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSum>> GradientSum::Create(
    Collective& collective, at::Device device, double timeout_seconds) {
  if (!device.is_cuda() || collective.size() == 1) {
    return std::make_unique<HostGradientSum>(collective);
  }
  auto sum = std::make_unique<NcclGradientSum>(timeout_seconds);
  RETURN_IF_ERROR(sum->Join(collective));
  return sum;
}

}  // namespace dapd
