#include "common/collective/device_group.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "c10/core/impl/VirtualGuardImpl.h"
#include "common/base/status_macros.h"
#include "common/gpus/cuda_backend.h"
#include "common/tensor/torch_bridge.h"

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

  absl::Status Broadcast(std::span<const at::Tensor> tensors) override {
    size_t total = 0;
    for (const at::Tensor& tensor : tensors) total += tensor.nbytes();
    std::string bytes;
    if (collective_.rank() == 0) {
      bytes.reserve(total);
      for (const at::Tensor& tensor : tensors) {
        bytes.append(static_cast<const char*>(tensor.const_data_ptr()),
                     tensor.nbytes());
      }
    }
    RETURN_IF_ERROR(collective_.Broadcast(&bytes));
    if (bytes.size() != total) {
      return absl::DataLossError(absl::StrCat(
          "rank 0 shares ", bytes.size(), " bytes, ", total, " were expected"));
    }
    if (collective_.rank() == 0) return absl::OkStatus();
    const char* from = bytes.data();
    for (const at::Tensor& tensor : tensors) {
      std::memcpy(tensor.mutable_data_ptr(), from, tensor.nbytes());
      from += tensor.nbytes();
    }
    return absl::OkStatus();
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

absl::StatusOr<NcclApi> FindNcclApi() {
  NcclApi api;
  RETURN_IF_ERROR(Find("DapdNcclUniqueId", &api.make_id));
  RETURN_IF_ERROR(Find("DapdNcclInit", &api.init));
  RETURN_IF_ERROR(Find("DapdNcclSum", &api.sum));
  RETURN_IF_ERROR(Find("DapdNcclAllGather", &api.all_gather));
  RETURN_IF_ERROR(Find("DapdNcclBroadcast", &api.broadcast));
  RETURN_IF_ERROR(Find("DapdNcclAbort", &api.abort));
  RETURN_IF_ERROR(Find("DapdNcclDestroy", &api.destroy));
  return api;
}

// NCCL chooses one of several algorithms by the size of an operation, and
// connects the ranks for an algorithm when it is first chosen. So these numbers
// of floats reach from the shortest operations to the longest ones.
constexpr int64_t kWarmUpFloats[] = {1 << 10, 1 << 16, 1 << 20, 1 << 24};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(Collective& collective, double timeout_seconds, const NcclApi& api)
      : api_(api),
        ranks_{
            .rank = collective.rank(),
            .size = collective.size(),
            .timeout_seconds = timeout_seconds,
            .has_lost_rank =
                [](const void* knows) {
                  return static_cast<const Collective*>(knows)->HasLostRank();
                },
            .knows = &collective} {}
  ~NcclGroup() override {
    if (ranks_.communicator != nullptr) api_.destroy(ranks_.communicator);
  }

  absl::Status Join(Collective& collective) {
    char error[kNcclErrorBytes] = "";
    std::string id(kNcclIdBytes, '\0');
    if (collective.rank() == 0 && api_.make_id(id.data(), error) != 0) {
      return absl::AbortedError(error);
    }
    RETURN_IF_ERROR(collective.Broadcast(&id));
    if (id.size() != kNcclIdBytes) {
      return absl::DataLossError("rank 0 sent no NCCL identifier");
    }
    if (api_.init(id.data(),
                  collective.rank(),
                  collective.size(),
                  ranks_.timeout_seconds,
                  &ranks_.communicator,
                  error) != 0) {
      return absl::AbortedError(error);
    }
    return absl::OkStatus();
  }

  // Runs each operation at several sizes, so that NCCL takes its memory now.
  absl::Status WarmUp(at::Device device) {
    for (const int64_t floats : kWarmUpFloats) {
      at::Tensor values =
          at::zeros({floats}, at::TensorOptions().device(device));
      RETURN_IF_ERROR(Sum(values));
      RETURN_IF_ERROR(Broadcast({&values, 1}));
      const at::Tensor part =
          values.narrow(0, 0, std::max<int64_t>(1, floats / ranks_.size));
      RETURN_IF_ERROR(AllGather({&part, 1}).status());
    }
    return absl::OkStatus();
  }

  absl::Status Sum(at::Tensor& values) override {
    return Call(api_.sum, values, values.data_ptr<float>(), values.numel());
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
    RETURN_IF_ERROR(Call(api_.all_gather,
                         all[0],
                         gathers.data(),
                         static_cast<int64_t>(gathers.size())));
    return all;
  }

  absl::Status Broadcast(std::span<const at::Tensor> tensors) override {
    std::vector<NcclShared> shared;
    for (const at::Tensor& tensor : tensors) {
      shared.push_back({.data = tensor.mutable_data_ptr(),
                        .bytes = static_cast<int64_t>(tensor.nbytes())});
    }
    if (tensors.empty()) return absl::OkStatus();
    return Call(api_.broadcast,
                tensors.front(),
                shared.data(),
                static_cast<int64_t>(shared.size()));
  }

  NcclRanks nccl() const override { return ranks_; }

  void Abort() override {
    if (ranks_.communicator != nullptr) api_.abort(ranks_.communicator);
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

  const NcclApi api_;
  NcclRanks ranks_;  // no communicator after an abort
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceGroup>> JoinNccl(Collective& collective,
                                                      at::Device device,
                                                      double timeout_seconds,
                                                      const NcclApi& api) {
  auto group = std::make_unique<NcclGroup>(collective, timeout_seconds, api);
  RETURN_IF_ERROR(group->Join(collective));
  RETURN_IF_ERROR(CatchTorch([&] { return group->WarmUp(device); }));
  return group;
}

absl::StatusOr<std::unique_ptr<DeviceGroup>> DeviceGroup::Join(
    Collective& collective, at::Device device, double timeout_seconds) {
  if (!device.is_cuda() || collective.size() == 1) {
    return std::make_unique<HostGroup>(collective);
  }
  ASSIGN_OR_RETURN(const NcclApi api, FindNcclApi());
  return JoinNccl(collective, device, timeout_seconds, api);
}

}  // namespace dapd
