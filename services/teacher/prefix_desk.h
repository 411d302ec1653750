// PrefixDesk: what clients told ahead of their requests, and how far it is
// computed.
//
// It gives the compute thread one pass of chunks at a time to do when nothing
// else waits: first those of the request with the lowest id, for the trainer
// needs the answers in that order. Not thread-safe: owned by the compute
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "services/teacher/scorer.h"

namespace dapd {

// News about the prefixes of a request's views.
struct PrefixUpdate {
  struct View {
    ViewName name = ViewName::kNoneRollout;
    int64_t first_index = 0;  // of `ids` in the view; 0: from the start
    std::vector<int32_t> ids;
  };
  uint64_t request_id = 0;
  WeightSet weights = WeightSet::kBase;
  int64_t policy_version = 0;  // of that set; 0 for the base
  std::string adapter_digest;  // likewise; empty for the base
  std::vector<View> views;     // none: the request will not come
};

// Requests of which something may be known ahead; more are left out.
inline constexpr size_t kMaxOpenPrefixes = 1024;

struct TimeSpan {
  absl::Time begin;
  absl::Time end;
};

// Of one request; later ones are not kept.
inline constexpr size_t kMaxAheadSpans = 64;

// What was computed ahead of one request; keeps it.
struct AheadWork {
  double seconds = 0.0;
  // When, by the machine's clock; chunk after chunk is one.
  std::vector<TimeSpan> spans;
  std::vector<HeldPrefix> held;
};

class PrefixDesk {
 public:
  // A stream's name: it is only compared.
  using Stream = const void*;

  // A view that does not continue what was told before closes its request, as
  // one of other weights does.
  void Update(Stream stream, const PrefixUpdate& update);

  // The request came, or will not come.
  AheadWork Close(Stream stream, uint64_t request_id);
  void CloseStream(Stream stream);
  // A set of weights changed: what was computed with the old ones is let go.
  void CloseSet(WeightSet weights);

  // Whether Advance may find something to do.
  bool has_work() const { return has_work_; }
  // Computes one pass. The tokens computed; 0 if nothing is left to do before
  // the next update or close. On error the first request of it is closed.
  absl::StatusOr<int64_t> Advance(Scorer& scorer);

  size_t open() const { return requests_.size(); }

 private:
  struct View {
    std::vector<int32_t> ids;
    HeldPrefix held;
  };
  struct Request {
    WeightSet weights = WeightSet::kBase;
    double seconds = 0.0;
    std::vector<TimeSpan> spans;  // by SteadyNow
    std::map<ViewName, View> views;
  };
  using Key = std::pair<uint64_t, Stream>;  // the lowest request id first

  static void AddSpan(const TimeSpan& span, Request* request);

  std::map<Key, Request> requests_;
  bool has_work_ = false;
};

}  // namespace dapd
