#include "common/data/epoch_order.h"

#include <numeric>
#include <random>
#include <utility>

namespace dapd {

std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  // LibTorch seeds its Mersenne twister with the low 32 bits.
  std::mt19937 twister(
      static_cast<uint32_t>(seed + static_cast<uint64_t>(epoch)));
  for (int64_t i = 0; i + 1 < size; ++i) {
    const auto offset =
        static_cast<int64_t>(twister() % static_cast<uint64_t>(size - i));
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(i + offset)]);
  }
  return order;
}

std::vector<int64_t> StepRows::Of(int64_t step, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t position = step * count; position < (step + 1) * count;
       ++position) {
    const int64_t epoch = position / size_;
    if (epoch != epoch_) {
      order_ = EpochOrder(size_, seed_, epoch);
      epoch_ = epoch;
    }
    rows.push_back(order_[static_cast<size_t>(position % size_)]);
  }
  return rows;
}

}  // namespace dapd
