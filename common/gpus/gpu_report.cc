#include "common/gpus/gpu_report.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/printable.h"
#include "common/base/visible_gpus.h"
#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

bool IsIdOf(const std::string& entry) {
  return absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-");
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", Printable(text), "'");
}

std::string DriverText(const DriverFacts& facts) {
  return facts.kernel_module.empty()
             ? "the NVIDIA driver"
             : absl::StrCat("the NVIDIA driver ", facts.kernel_module);
}

// Identifies a GPU in a message by its number in `gpus`.
std::string GpuText(const std::vector<Gpu>& gpus, size_t i) {
  return absl::StrCat("GPU ", i, " (", Printable(gpus[i].name), ")");
}

int Capability(const Gpu& gpu) { return 10 * gpu.major + gpu.minor; }

// CUDA reads the list up to the first entry that it does not accept, without a
// message. If an entry occurs twice, it accepts none.
absl::Status CheckEntries(const std::vector<std::string>& entries,
                          const std::string& setting,
                          const std::vector<std::string>& all_uuids) {
  const auto wrong = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat(kVisibleGpusVariable, " is ", Quoted(setting), ": ", why));
  };
  std::set<std::string> seen;
  for (const std::string& entry : entries) {
    if (!seen.insert(entry).second) {
      return wrong(absl::StrCat(Quoted(entry),
                                " is listed twice, and CUDA then sees no GPU"));
    }
    if (IsIdOf(entry) != IsIdOf(entries.front())) {
      return wrong(
          "it mixes numbers and ids, and CUDA sees no GPU from the first entry "
          "of the other kind on");
    }
    const size_t count = all_uuids.size();
    if (IsIdOf(entry)) {
      // all_uuids has no parts of GPUs.
      if (count == 0 || absl::StartsWith(entry, "MIG-")) continue;
      const auto matches =
          std::ranges::count_if(all_uuids, [&](const std::string& uuid) {
            return absl::StartsWith(uuid, entry);
          });
      if (matches != 1) {
        return wrong(absl::StrCat(Quoted(entry),
                                  " begins the ids of ",
                                  matches,
                                  " GPUs of this machine (nvidia-smi -L lists "
                                  "them) and must begin exactly one"));
      }
      continue;
    }
    int64_t number = 0;
    if (!absl::SimpleAtoi(entry, &number) || number < 0 ||
        (count > 0 && number >= static_cast<int64_t>(count))) {
      return wrong(absl::StrCat(
          Quoted(entry),
          " is not a GPU of this machine",
          count == 0   ? std::string()
          : count == 1 ? ", which has only GPU 0"
                       : absl::StrCat(", which has GPUs 0 to ", count - 1),
          "; CUDA only sees the GPUs listed before it"));
    }
  }
  return absl::OkStatus();
}

absl::Status NoLibrary(const DriverFacts& facts) {
  if (facts.kernel_module.empty() && facts.device_nodes.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no NVIDIA driver on this machine (",
        facts.library_error,
        "); install version ",
        kLeastDriver,
        " or newer; a container gets the machine's driver through NVIDIA's "
        "container toolkit"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the machine has ",
      DriverText(facts),
      ", but its library cannot be loaded (",
      facts.library_error,
      "); in a container, NVIDIA's container toolkit provides it: with docker, "
      "use --gpus and NVIDIA_DRIVER_CAPABILITIES=compute,utility"));
}

absl::Status InitFailed(const DriverFacts& facts) {
  switch (facts.init_code) {
    case kCudaNoDevice:
      if (facts.device_nodes.empty()) {
        return absl::NotFoundError(absl::StrCat(
            DriverText(facts), " finds no GPU, and there is none in /dev"));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          DriverText(facts),
          " finds no GPU, though /dev has ",
          absl::StrJoin(facts.device_nodes, ", "),
          "; is this process allowed to open them? nvidia-smi says more"));
    case kCudaNotReady:
      return absl::FailedPreconditionError(
          absl::StrCat(DriverText(facts),
                       " is not ready yet; where GPUs are joined by NVSwitch, "
                       "nvidia-fabricmanager must be running"));
    case kCudaDriverMismatch:
      return absl::FailedPreconditionError(absl::StrCat(
          "the loaded kernel module (",
          facts.kernel_module.empty() ? "unknown" : facts.kernel_module,
          ") and libcuda.so.1 belong to different drivers: after an update of "
          "the driver, restart the machine and then the containers"));
    case kCudaNotCompatible:
      return absl::FailedPreconditionError(absl::StrCat(
          "libcuda.so.1 is from CUDA's compatibility package, which does not "
          "work with this GPU and the loaded kernel module (",
          facts.kernel_module.empty() ? "unknown" : facts.kernel_module,
          "); take it out of LD_LIBRARY_PATH and install driver ",
          kLeastDriver,
          " or newer"));
    default:
      return absl::FailedPreconditionError(absl::StrCat(
          DriverText(facts),
          " cannot be used: cuInit returns ",
          facts.init_name.empty() ? "" : absl::StrCat(facts.init_name, ", "),
          "code ",
          facts.init_code,
          "; run nvidia-smi, and check that /dev/nvidia-uvm exists"));
  }
}

// Returns why this project's kernels cannot use some or all of the GPUs.
absl::Status CheckCapabilities(const DriverFacts& facts) {
  const std::vector<Gpu>& gpus = facts.gpus;
  std::vector<std::string> old;
  std::vector<std::string> others;  // as CUDA_VISIBLE_DEVICES would name them
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (Capability(gpus[i]) < kLeastCapability) {
      old.push_back(absl::StrCat(GpuText(gpus, i),
                                 " has compute capability ",
                                 gpus[i].major,
                                 ".",
                                 gpus[i].minor));
    } else {
      others.push_back(gpus[i].uuid);
    }
  }
  if (old.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrCat(absl::StrJoin(old, ", "),
                   ", but at least 8.0 (sm_80, an A100's) is needed");
  if (others.empty()) return absl::FailedPreconditionError(text);
  return absl::InvalidArgumentError(absl::StrCat(text,
                                                 "; leave it out with ",
                                                 kVisibleGpusVariable,
                                                 "=",
                                                 absl::StrJoin(others, ",")));
}

absl::Status Judge(const DriverFacts& facts) {
  if (!facts.library_error.empty()) return NoLibrary(facts);
  std::vector<std::string> entries;
  if (facts.visible.has_value()) {
    entries = NamedGpus(*facts.visible);
    // Hiding all GPUs by an empty list is not an error: this is the way to hide
    // them.
    if (entries.empty()) {
      return absl::NotFoundError(absl::StrCat(kVisibleGpusVariable,
                                              " is ",
                                              Quoted(*facts.visible),
                                              ", which hides all GPUs"));
    }
  }
  if (facts.cuda_version > 0 && facts.cuda_version < kLeastCudaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(DriverText(facts),
                     " is too old: it is for CUDA ",
                     CudaVersionText(facts.cuda_version),
                     ", and CUDA ",
                     CudaVersionText(kLeastCudaVersion),
                     " needs driver ",
                     kLeastDriver,
                     " or newer, or on GPUs of data centers the compatibility "
                     "package cuda-compat-13-0 with its folder first in "
                     "LD_LIBRARY_PATH"));
  }
  if (facts.visible.has_value()) {
    const absl::Status status =
        CheckEntries(entries, *facts.visible, facts.all_uuids);
    if (!status.ok()) return status;
  }
  if (facts.init_code != 0) return InitFailed(facts);
  if (facts.gpus.empty()) {
    return absl::NotFoundError(
        absl::StrCat(DriverText(facts), " finds no GPU"));
  }
  const bool names_parts =
      !entries.empty() && absl::StartsWith(entries.front(), "MIG-");
  if (!names_parts && facts.gpus.size() < entries.size()) {
    return absl::InvalidArgumentError(absl::StrCat(kVisibleGpusVariable,
                                                   " is ",
                                                   Quoted(*facts.visible),
                                                   ", but CUDA sees only ",
                                                   facts.gpus.size(),
                                                   " of these ",
                                                   entries.size()));
  }
  return CheckCapabilities(facts);
}

}  // namespace

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

GpuReport JudgeGpus(DriverFacts facts) {
  GpuReport report;
  report.usable = Judge(facts);
  report.driver = std::move(facts.kernel_module);
  report.cuda_version = facts.cuda_version;
  report.gpus = std::move(facts.gpus);
  return report;
}

GpuReport FindGpus(const DriverSources& sources) {
  return JudgeGpus(ReadDriverFacts(sources));
}

std::vector<std::string> GpuNames(const GpuReport& report) {
  const bool are_named = std::getenv(kVisibleGpusVariable) != nullptr;
  if (are_named || report.gpus.empty()) return VisibleGpus();
  std::vector<std::string> names;
  while (names.size() < report.gpus.size()) {
    names.push_back(absl::StrCat(names.size()));
  }
  return names;
}

std::vector<std::string> GpusToComputeOn(DeviceChoice device) {
  if (device == DeviceChoice::kCpu) return {};
  const GpuReport report = FindGpus();
  const bool is_usable = report.usable.ok() && CudaBackendPath().ok();
  if (device == DeviceChoice::kAuto && !is_usable) return {};
  return GpuNames(report);
}

std::vector<std::string> DescribeGpus(const std::vector<Gpu>& gpus) {
  std::vector<std::string> lines;
  const auto is_alike = [](const Gpu& a, const Gpu& b) {
    return a.name == b.name && a.total_bytes == b.total_bytes;
  };
  std::vector<Gpu> rest = gpus;
  while (!rest.empty()) {
    const Gpu first = rest.front();
    std::optional<int64_t> least_free = first.free_bytes;
    int64_t count = 0;
    std::erase_if(rest, [&](const Gpu& gpu) {
      if (!is_alike(gpu, first)) return false;
      ++count;
      least_free = std::min(least_free, gpu.free_bytes);
      return true;
    });
    std::string free = "free memory unknown";
    if (least_free.has_value()) {
      free = absl::StrFormat("%s%.1f GiB free",
                             count > 1 ? "at least " : "",
                             static_cast<double>(*least_free) / kGiB);
    }
    lines.push_back(
        absl::StrFormat("%d of %.1f GiB, %s: %s (sm_%d)",
                        count,
                        static_cast<double>(first.total_bytes) / kGiB,
                        free,
                        Printable(first.name),
                        Capability(first)));
  }
  return lines;
}

}  // namespace dapd
