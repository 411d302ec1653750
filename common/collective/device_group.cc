#include "common/collective/device_group.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "c10/core/impl/VirtualGuardImpl.h"
#include "common/base/status_macros.h"
#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

at::Tensor EmptyParts(const at::Tensor& part, int size) {
  std::vector<int64_t> shape = part.sizes().vec();
  shape.insert(shape.begin(), size);
  return at::empty(shape, part.options());
}

class HostGroup final : public DeviceGroup {
 public:
  explicit HostGroup(Collective& collective) : collective_(collective) {}

  absl::Status Sum(at::Tensor& values) override {
    return collective_.Sum(absl::MakeSpan(values.data_ptr<float>(),
                                          static_cast<size_t>(values.numel())));
  }

  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) override {
    std::vector<at::Tensor> gathered;
    for (const at::Tensor& part : parts) {
      ASSIGN_OR_RETURN(at::Tensor all, GatherOne(part));
      gathered.push_back(std::move(all));
    }
    return gathered;
  }

 private:
  absl::StatusOr<at::Tensor> GatherOne(const at::Tensor& part) {
    const size_t bytes = part.nbytes();
    ASSIGN_OR_RETURN(
        const std::vector<std::string> gathered,
        collective_.Gather(std::string(
            static_cast<const char*>(part.const_data_ptr()), bytes)));
    std::string all;
    for (const std::string& each : gathered) {
      if (collective_.rank() == 0) all += each;
    }
    RETURN_IF_ERROR(collective_.Broadcast(&all));
    at::Tensor parts = EmptyParts(part, collective_.size());
    if (all.size() != parts.nbytes()) {
      return absl::DataLossError(absl::StrCat("the ranks' parts have ",
                                              all.size(),
                                              " bytes, ",
                                              parts.nbytes(),
                                              " were expected"));
    }
    std::memcpy(parts.mutable_data_ptr(), all.data(), all.size());
    return parts;
  }

  Collective& collective_;
};

template <typename Function>
absl::Status Find(const char* name, Function** function) {
  if (FindCudaFunction(name, function)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "libdapd_cuda.so has no ", name, "; build it and the program together"));
}

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(Collective& collective, double timeout_seconds)
      : ranks_{
            .rank = collective.rank(),
            .size = collective.size(),
            .timeout_seconds = timeout_seconds,
            .has_lost_rank =
                [](const void* knows) {
                  return static_cast<const Collective*>(knows)->HasLostRank();
                },
            .knows = &collective} {}
  ~NcclGroup() override {
    if (ranks_.communicator != nullptr) destroy_(ranks_.communicator);
  }

  absl::Status Join(Collective& collective) {
    decltype(DapdNcclUniqueId)* make_id = nullptr;
    decltype(DapdNcclInit)* init = nullptr;
    RETURN_IF_ERROR(Find("DapdNcclUniqueId", &make_id));
    RETURN_IF_ERROR(Find("DapdNcclInit", &init));
    RETURN_IF_ERROR(Find("DapdNcclSum", &sum_));
    RETURN_IF_ERROR(Find("DapdNcclAllGather", &all_gather_));
    RETURN_IF_ERROR(Find("DapdNcclAbort", &abort_));
    RETURN_IF_ERROR(Find("DapdNcclDestroy", &destroy_));
    char error[kNcclErrorBytes] = "";
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
             ranks_.timeout_seconds,
             &ranks_.communicator,
             error) != 0) {
      return absl::AbortedError(error);
    }
    return absl::OkStatus();
  }

  absl::Status Sum(at::Tensor& values) override {
    return Call(sum_, values, values.data_ptr<float>(), values.numel());
  }

  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) override {
    std::vector<at::Tensor> all;
    std::vector<NcclGather> gathers;
    for (const at::Tensor& part : parts) {
      all.push_back(EmptyParts(part, ranks_.size));
      gathers.push_back({.part = part.const_data_ptr(),
                         .all = all.back().mutable_data_ptr(),
                         .bytes = static_cast<int64_t>(part.nbytes())});
    }
    if (parts.empty()) return all;
    RETURN_IF_ERROR(Call(all_gather_,
                         all[0],
                         gathers.data(),
                         static_cast<int64_t>(gathers.size())));
    return all;
  }

  NcclRanks nccl() const override { return ranks_; }

  void Abort() override {
    if (ranks_.communicator != nullptr) abort_(ranks_.communicator);
    ranks_.communicator = nullptr;
  }

 private:
  // Runs an operation on the current stream of the device of `tensor`.
  template <typename Operation, typename... Arguments>
  absl::Status Call(Operation* operation,
                    const at::Tensor& tensor,
                    Arguments... arguments) {
    if (ranks_.communicator == nullptr) {
      return absl::AbortedError("the ranks' communicator was aborted");
    }
    void* const stream = c10::impl::VirtualGuardImpl(tensor.device().type())
                             .getStream(tensor.device())
                             .native_handle();
    char error[kNcclErrorBytes] = "";
    if (operation(&ranks_, arguments..., stream, error) == 0) {
      return absl::OkStatus();
    }
    ranks_.communicator = nullptr;
    return absl::AbortedError(error);
  }

  NcclRanks ranks_;  // no communicator after an abort
  decltype(DapdNcclSum)* sum_ = nullptr;
  decltype(DapdNcclAllGather)* all_gather_ = nullptr;
  decltype(DapdNcclAbort)* abort_ = nullptr;
  decltype(DapdNcclDestroy)* destroy_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceGroup>> DeviceGroup::Join(
    Collective& collective, at::Device device, double timeout_seconds) {
  if (!device.is_cuda() || collective.size() == 1) {
    return std::make_unique<HostGroup>(collective);
  }
  auto group = std::make_unique<NcclGroup>(collective, timeout_seconds);
  RETURN_IF_ERROR(group->Join(collective));
  return group;
}

}  // namespace dapd
