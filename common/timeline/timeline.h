// Timeline: what a trainer and its workers were busy with during the first
// steps of a process, for the run folder's timeline.json.
//
// Whoever has something to record holds a pointer to it, null where
// trainer.timeline_steps is 0: then nothing is measured at all. Workers record
// nothing of their own. Their answers say when they were computed, by the
// worker's clock, and the conversation with a worker adds that here. Thread-
// safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/timeline/clock_map.h"
#include "common/timeline/trace_events.h"

namespace dapd {

class Timeline {
 public:
  // The process that this is; the others are peers.
  static constexpr int kOwn = 0;
  // Of all tracks together: some 60 MB, and half of that in the file. What
  // comes behind them is counted and left out.
  static constexpr int64_t kMaxSlices = 200'000;

  struct Options {
    std::string path;   // of the file
    int64_t steps = 1;  // to record
    int64_t rank = 0;   // of this trainer, for process ids that differ
    int64_t max_slices = kMaxSlices;
  };
  explicit Timeline(Options options);
  // Writes what there is of a run that ended before.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Whether slices are taken: from the first step's begin to the last one's
  // end.
  bool recording() const { return state_ == State::kRecording; }
  // Whether clocks are worth reading: until the last step's end.
  bool wanted() const { return state_ != State::kDone; }

  // Another process, by its name ("rollout 10.0.0.7:7001"); the same for the
  // same name.
  int AddPeer(const std::string& name);
  void AddReading(int peer, const ClockReading& reading);

  // What `process` did, in times of its own clock. Dropped while nothing is
  // recorded; a slice that ends before it begins, or lasts more than a day, is
  // no measurement and dropped as well.
  void Add(int process, const std::string& track, Slice slice);
  // The same of this process; the fact "step" is added. With `joins` a slice
  // that follows one of the same name at once makes that one longer.
  void AddOwn(const std::string& track, Slice slice, bool joins = false);

  // A step begins: its problems go to the workers; may be called more than once
  // for it.
  void BeginStep(int64_t step);
  // It is done. Behind the last one the file is written; a disk that refuses is
  // a warning.
  void EndStep();

 private:
  enum class State { kWaiting, kRecording, kDone };
  struct Process {
    std::string name;
    ClockMap clock;
    std::map<std::string, std::vector<Slice>> tracks;
  };

  bool MayAdd(const Slice& slice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::atomic<State> state_ = State::kWaiting;
  mutable Mutex mutex_;
  std::vector<Process> processes_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t steps_done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_slices_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The time that it lives, as a slice of this process.
class ScopedSlice {
 public:
  // `timeline` null: none.
  ScopedSlice(Timeline* timeline,
              const char* track,
              const char* name,
              bool joins = false)
      : timeline_(timeline != nullptr && timeline->recording() ? timeline
                                                               : nullptr),
        track_(track),
        name_(name),
        joins_(joins) {
    if (timeline_ != nullptr) begin_ = absl::Now();
  }
  ~ScopedSlice() {
    if (timeline_ == nullptr) return;
    timeline_->AddOwn(track_, {name_, begin_, absl::Now(), {}}, joins_);
  }
  ScopedSlice(const ScopedSlice&) = delete;
  ScopedSlice& operator=(const ScopedSlice&) = delete;

  // It turned out that nothing was done.
  void Drop() { timeline_ = nullptr; }

 private:
  Timeline* timeline_;
  const char* const track_;
  const char* const name_;
  const bool joins_;
  absl::Time begin_;
};

// Tracks of a trainer.
inline constexpr char kStepsTrack[] = "steps";
inline constexpr char kPhasesTrack[] = "phases";
inline constexpr char kComputeTrack[] = "compute";

}  // namespace dapd
