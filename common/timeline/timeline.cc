#include "common/timeline/timeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/log.h"

namespace dapd {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24);
// Two slices with a smaller gap are joined into one.
constexpr absl::Duration kNoGap = absl::Microseconds(500);
// Each trainer rank has this number of process ids; a run has fewer workers.
constexpr int64_t kIdsOfRank = 10'000;

// Orders "slot 2" before "slot 10".
bool ComesBefore(const TraceTrack& a, const TraceTrack& b) {
  return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
}

}  // namespace

Timeline::Timeline(Options options) : options_(std::move(options)) {
  processes_.push_back({.name = absl::StrCat("trainer rank ", options_.rank)});
}

Timeline::~Timeline() {
  MutexLock lock(&mutex_);
  if (state_ == State::kRecording) Write();
}

int Timeline::AddPeer(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto found = std::ranges::find(processes_, name, &Process::name);
  if (found == processes_.end()) {
    processes_.push_back({.name = name});
    return static_cast<int>(processes_.size()) - 1;
  }
  return static_cast<int>(found - processes_.begin());
}

void Timeline::AddReading(int peer, const ClockReading& reading) {
  MutexLock lock(&mutex_);
  processes_[static_cast<size_t>(peer)].clock.Add(reading);
}

bool Timeline::MayAdd(const Slice& slice) {
  if (state_ != State::kRecording) return false;
  if (slice.end < slice.begin || slice.end - slice.begin > kLongest) {
    return false;
  }
  if (num_slices_ == options_.max_slices) {
    ++left_out_;
    return false;
  }
  ++num_slices_;
  return true;
}

void Timeline::Add(int process, const std::string& track, Slice slice) {
  MutexLock lock(&mutex_);
  if (!MayAdd(slice)) return;
  processes_[static_cast<size_t>(process)].tracks[track].push_back(
      std::move(slice));
}

void Timeline::AddOwn(const std::string& track, Slice slice, bool joins) {
  MutexLock lock(&mutex_);
  slice.facts.emplace_back("step", step_);
  if (joins && state_ == State::kRecording) {
    std::vector<Slice>& slices = processes_[kOwn].tracks[track];
    if (!slices.empty() && slices.back().name == slice.name &&
        slices.back().facts == slice.facts &&
        slice.begin - slices.back().end < kNoGap) {
      slices.back().end = std::max(slices.back().end, slice.end);
      return;
    }
  }
  if (!MayAdd(slice)) return;
  processes_[kOwn].tracks[track].push_back(std::move(slice));
}

void Timeline::BeginStep(int64_t step) {
  MutexLock lock(&mutex_);
  step_ = step;
  if (state_ == State::kWaiting) state_ = State::kRecording;
}

void Timeline::EndStep() {
  MutexLock lock(&mutex_);
  if (state_ != State::kRecording || ++steps_done_ < options_.steps) return;
  Write();
}

void Timeline::Write() {
  state_ = State::kDone;
  std::vector<TraceProcess> trace;
  absl::Duration error;
  for (Process& process : processes_) {
    const auto index = static_cast<int64_t>(trace.size());
    TraceProcess& traced = trace.emplace_back();
    traced.pid = options_.rank * kIdsOfRank + index + 1;
    traced.name = process.name;
    if (index != kOwn && !process.clock.empty()) {
      const absl::Duration own = process.clock.error();
      traced.label = absl::StrFormat("clock within %.3f ms",
                                     absl::ToDoubleMilliseconds(own));
      error = std::max(error, own);
    }
    for (auto& [name, slices] : process.tracks) {
      for (Slice& slice : slices) {
        slice.begin = process.clock.ToOwn(slice.begin);
        slice.end = process.clock.ToOwn(slice.end);
      }
      traced.tracks.push_back({name, std::move(slices)});
    }
    std::ranges::sort(traced.tracks, ComesBefore);
  }
  for (Process& process : processes_) process.tracks.clear();
  const absl::Status written =
      WriteTrace(options_.path,
                 trace,
                 {{"steps", absl::StrCat(steps_done_)},
                  {"clock_error_ms",
                   absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(error))},
                  {"slices_left_out", absl::StrCat(left_out_)}});
  if (!written.ok()) {
    LogWarning(absl::StrCat("the timeline is lost, the run continues: ",
                            std::string(written.message())));
    return;
  }
  LogInfo(absl::StrCat("timeline of ",
                       steps_done_,
                       " steps: ",
                       options_.path,
                       "; open it at https://ui.perfetto.dev"));
  if (left_out_ > 0) {
    LogWarning(absl::StrCat("the timeline lacks its last ",
                            left_out_,
                            " slices; lower trainer.timeline_steps"));
  }
}

}  // namespace dapd
