// UploadTurns: if several streams bring a worker the same update, like the
// streams of a trainer's ranks, one stream is read while the others wait.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/terms/weight_set.h"

namespace dapd {

// Thread-safe.
class UploadTurns {
 public:
  // A stream that moves nothing for `stall` loses its turn to the next stream,
  // which may have the faster connection.
  explicit UploadTurns(absl::Duration stall = absl::Seconds(5))
      : stall_(stall) {}

  // The turn of a stream; it ends with the object. Only one thread may use it.
  class Turn {
   public:
    Turn(Turn&& other) noexcept
        : turns_(std::exchange(other.turns_, nullptr)),
          name_(std::move(other.name_)),
          number_(other.number_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

    // Says that some bytes have arrived.
    void Advance() const;
    // Says that all bytes have arrived: the others wait for the result, however
    // long it takes.
    void Complete() const;

   private:
    friend class UploadTurns;
    using Name = std::pair<WeightSet, std::string>;
    Turn(UploadTurns* turns, Name name, uint64_t number)
        : turns_(turns), name_(std::move(name)), number_(number) {}

    UploadTurns* turns_;  // null: moved from
    Name name_;
    uint64_t number_;
  };

  // Blocks until no other stream with this set and key has its turn, or until
  // the stream in turn stalls. Returns CANCELLED once `cancelled`, asked ten
  // times a second, is true.
  absl::StatusOr<Turn> Take(WeightSet set,
                            const std::string& key,
                            const std::function<bool()>& cancelled);

 private:
  struct Present {
    uint64_t number = 0;  // of its turn
    absl::Time loses_it_at;
  };

  void Extend(const Turn& turn, absl::Time until);
  void End(const Turn& turn);

  const absl::Duration stall_;
  Mutex mutex_;
  CondVar ended_;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Turn::Name, Present> present_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
