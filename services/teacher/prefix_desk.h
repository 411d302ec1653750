// PrefixDesk: the prefixes that clients announced ahead of their requests, and
// how far they are computed.
//
// While no request waits, it gives the compute thread one pass of chunks at a
// time, first the chunks of the request with the lowest id, since the trainer
// needs the answers in this order. Not thread-safe: the compute thread owns it.
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
  int64_t policy_version = 0;  // of `weights`; 0 for the base
  std::string adapter_digest;  // of `weights`; empty for the base
  std::vector<View> views;     // empty: the request will not come
};

// The most requests with announced prefixes; further requests are ignored.
inline constexpr size_t kMaxOpenPrefixes = 1024;

struct TimeSpan {
  absl::Time begin;
  absl::Time end;
};

// The most spans of one request; later spans are dropped.
inline constexpr size_t kMaxAheadSpans = 64;

// The work that was done ahead of one request. Holds its chunks.
struct AheadWork {
  double seconds = 0.0;
  // By the machine's clock; consecutive chunks are one span.
  std::vector<TimeSpan> spans;
  std::vector<HeldPrefix> held;
};

class PrefixDesk {
 public:
  // The identity of a stream, which is only compared.
  using Stream = const void*;

  // Closes the request if a view does not continue its earlier tokens, or if
  // the weights are different.
  void Update(Stream stream, const PrefixUpdate& update);

  // Must be called when the request has arrived or will not arrive. Returns the
  // work that was done ahead of it.
  AheadWork Close(Stream stream, uint64_t request_id);
  void CloseStream(Stream stream);
  // A set of weights has changed: releases the chunks of the old weights.
  void CloseSet(WeightSet weights);

  // Returns whether Advance may find something to do.
  bool has_work() const { return has_work_; }
  // Computes one pass and returns the number of its tokens; returns 0 if
  // nothing is left to do before the next update or close. On error, closes the
  // first request of the pass.
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
