#include "common/objective/head_workspace.h"

#include <sys/mman.h>
#include <unistd.h>

namespace dapd {
namespace {

// Asks for huge pages. With pages of 4 KiB the first touch of 400 MB is 100,000
// page faults, and every pass misses the address cache. The answer is ignored,
// since without huge pages everything works, only more slowly.
void AdviseHugePages(const at::Tensor& memory) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory.data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + memory.nbytes()) / page * page;
  if (first >= last) return;
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

at::Tensor HeadWorkspace::Take(int64_t rows,
                               int64_t columns,
                               at::Device device) {
  const int64_t size = rows * columns;
  if (!memory_.defined() || memory_.device() != device ||
      memory_.numel() < size) {
    memory_ = at::Tensor();  // released before the larger one is allocated
    memory_ = at::empty({size}, at::TensorOptions(at::kFloat).device(device));
    if (device.is_cpu()) AdviseHugePages(memory_);
  }
  return memory_.narrow(0, 0, size).view({rows, columns});
}

}  // namespace dapd
