// Runs ranks as threads of one process, with a Collective over shared memory
// that sums in the order of the ranks.
#pragma once

#include <atomic>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/collective/collective.h"

namespace dapd {

// Runs `body` once per rank and returns when all are done. A rank whose `body`
// has ended is lost to the others.
inline void RunThreadRanks(
    int size, const std::function<void(Collective& collective)>& body) {
  struct Shared {
    explicit Shared(int ranks)
        : barrier(ranks), parts(static_cast<size_t>(ranks)) {}
    std::barrier<> barrier;
    std::atomic<bool> has_lost = false;
    std::vector<std::string> parts;
  };
  class ThreadRank : public Collective {
   public:
    ThreadRank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(shared_.parts.size()); }

    absl::Status Sum(absl::Span<float> values) override {
      RETURN_IF_ERROR(Share({reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(float)}));
      std::vector<float> sum(values.size(), 0.0F);
      for (const std::string& part : shared_.parts) {
        const auto* floats = reinterpret_cast<const float*>(part.data());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += floats[i];
      }
      shared_.barrier.arrive_and_wait();
      std::copy(sum.begin(), sum.end(), values.begin());
      return absl::OkStatus();
    }
    absl::Status Broadcast(std::string* bytes) override {
      RETURN_IF_ERROR(Share(rank_ == 0 ? *bytes : std::string()));
      *bytes = shared_.parts[0];
      shared_.barrier.arrive_and_wait();
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<std::string>> Gather(
        std::string bytes) override {
      RETURN_IF_ERROR(Share(std::move(bytes)));
      std::vector<std::string> all;
      if (rank_ == 0) all = shared_.parts;
      shared_.barrier.arrive_and_wait();
      return all;
    }
    absl::Status AwaitAll() override {
      shared_.barrier.arrive_and_wait();
      return absl::OkStatus();
    }
    bool HasLostRank() const override { return shared_.has_lost; }
    void Cancel() override {}

   private:
    absl::Status Share(std::string part) {
      shared_.parts[static_cast<size_t>(rank_)] = std::move(part);
      shared_.barrier.arrive_and_wait();
      return shared_.has_lost ? absl::AbortedError("a rank has ended")
                              : absl::OkStatus();
    }
    Shared& shared_;
    const int rank_;
  };
  Shared shared(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&shared, &body, rank] {
      ThreadRank collective(shared, rank);
      body(collective);
      shared.has_lost = true;
      shared.barrier.arrive_and_drop();
    });
  }
}

}  // namespace dapd
