// Timeline records the work of a trainer and its workers during the first steps
// of a process, for the run folder's timeline.json.
//
// Code that records holds a pointer to it, which is null if
// trainer.timeline_steps is 0: nothing is measured then. Workers record nothing
// themselves. Their answers say when they were computed, by the worker's clock,
// and the client of a worker adds that here. Thread-safe.
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
  // This process has the index 0; the others are peers.
  static constexpr int kOwn = 0;
  // Limit for all tracks together: about 60 MB, and half of it in the file.
  // Later slices are counted and dropped.
  static constexpr int64_t kMaxSlices = 200'000;

  struct Options {
    std::string path;   // path of the file
    int64_t steps = 1;  // number of steps to record
    int64_t rank = 0;   // rank of this trainer; makes process ids differ
    int64_t max_slices = kMaxSlices;
  };
  explicit Timeline(Options options);
  // Writes the file if the run ended before the last step to record.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Returns whether slices are recorded: from the beginning of the first step
  // to the end of the last one.
  bool recording() const { return state_ == State::kRecording; }
  // Returns whether clock readings are still useful: until the end of the last
  // step.
  bool wanted() const { return state_ != State::kDone; }

  // Returns the index of another process by its name ("rollout 10.0.0.7:7001");
  // equal names have the same index.
  int AddPeer(const std::string& name);
  void AddReading(int peer, const ClockReading& reading);

  // Adds work of `process`, in times of its own clock. The slice is dropped if
  // nothing is recorded, and if it is invalid: it ends before it begins, or
  // lasts more than a day.
  void Add(int process, const std::string& track, Slice slice);
  // Adds work of this process, with the fact "step". With `joins`, a slice
  // directly behind a slice of the same name extends that slice.
  void AddOwn(const std::string& track, Slice slice, bool joins = false);

  // Begins a step: its problems are sent to the workers. May be called several
  // times for a step.
  void BeginStep(int64_t step);
  // Ends the step. After the last step the file is written; if this fails, a
  // warning is logged.
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

// Records its own lifetime as a slice of this process.
class ScopedSlice {
 public:
  // Records nothing if `timeline` is null.
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

  // Drops the slice if nothing was done.
  void Drop() { timeline_ = nullptr; }

 private:
  Timeline* timeline_;
  const char* const track_;
  const char* const name_;
  const bool joins_;
  absl::Time begin_;
};

// Names of a trainer's tracks.
inline constexpr char kStepsTrack[] = "steps";
inline constexpr char kPhasesTrack[] = "phases";
inline constexpr char kComputeTrack[] = "compute";

}  // namespace dapd
