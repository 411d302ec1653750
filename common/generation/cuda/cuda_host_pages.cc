#include "common/generation/cuda/cuda_host_pages.h"

#include "common/generation/available_memory.h"

namespace dapd {

CudaHostPages::CudaHostPages(const CudaDecodeApi& api, int64_t page_bytes)
    : api_(api), page_bytes_(page_bytes), limit_bytes_(AvailableMemory() / 2) {}

CudaHostPages::~CudaHostPages() {
  for (void* page : all_) api_.free_host_memory(page);
}

std::vector<void*> CudaHostPages::Take(int64_t count) {
  const int64_t missing = count - static_cast<int64_t>(unused_.size());
  if (missing > 0 && AvailableMemory() - missing * page_bytes_ < limit_bytes_) {
    return {};
  }
  while (static_cast<int64_t>(unused_.size()) < count) {
    void* page = nullptr;
    char error[kCudaErrorBytes] = "";
    if (api_.take_host_memory(page_bytes_, &page, error) != 0) return {};
    all_.push_back(page);
    unused_.push_back(page);
  }
  const std::vector<void*> pages(unused_.end() - count, unused_.end());
  unused_.resize(unused_.size() - pages.size());
  return pages;
}

void CudaHostPages::Give(const std::vector<void*>& pages) {
  unused_.insert(unused_.end(), pages.begin(), pages.end());
}

}  // namespace dapd
