#include "tests/fakes/cuda/grid_run.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace dapd::fake {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksAside = 65535;  // of a grid's y and z

// Returns memory with room for the variables of the largest cluster and for the
// gaps between them.
CheckedMemory& ASharedMemory() {
  static auto* memory = new CheckedMemory(size_t{64} << 20);
  return *memory;
}

// Returns a fiber; there are as many as the largest block so far had threads.
Fiber* FiberOf(size_t thread) {
  static auto* fibers = new std::vector<std::unique_ptr<Fiber>>;
  while (fibers->size() <= thread) fibers->push_back(std::make_unique<Fiber>());
  return (*fibers)[thread].get();
}

uint32_t NewEpoch() {
  static uint32_t last = kFirstEpoch;
  return ++last;
}

uint64_t NumThreads(dim3 size) { return uint64_t{size.x} * size.y * size.z; }

dim3 IndexOf(uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x),
          static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

std::string ToString(dim3 index) {
  return absl::StrCat("(", index.x, ", ", index.y, ", ", index.z, ")");
}

}  // namespace

std::string ToString(Site site) {
  return absl::StrCat(site.file, ":", site.line);
}

bool GridRun::IsValid(const LaunchShape& shape) {
  const auto& [grid, block, bytes, cluster, early, kernel] = shape;
  return NumThreads(grid) > 0 && NumThreads(block) > 0 &&
         NumThreads(block) <= kMostThreads && grid.y <= kMostBlocksAside &&
         grid.z <= kMostBlocksAside && grid.x <= 0x7FFFFFFFU && block.z <= 64 &&
         cluster > 0 && grid.x % cluster == 0;
}

GridRun::GridRun(const KernelCall& call, CheckedMemory& global, uint32_t seed)
    : call_(call),
      global_(global),
      shared_(ASharedMemory()),
      random_(seed),
      block_threads_(NumThreads(call.shape.block)),
      threads_(block_threads_ * call.shape.cluster),
      blocks_(call.shape.cluster) {}

std::string GridRun::Run() {
  blocks_of_epochs_.clear();
  toucher_.blocks = &blocks_of_epochs_;
  toucher_.launch_epoch = NewEpoch();
  blocks_of_epochs_.push_back(0);
  const uint64_t cluster = call_.shape.cluster;
  std::vector<uint64_t> clusters(NumThreads(call_.shape.grid) / cluster);
  std::iota(clusters.begin(), clusters.end(), 0);
  std::shuffle(clusters.begin(), clusters.end(), random_);
  for (const uint64_t number : clusters) {
    RunCluster(number * cluster);
    if (!failure_.empty()) break;
  }
  return failure_;
}

uint32_t GridRun::TakeEpoch(const Block& block) {
  const uint32_t epoch = NewEpoch();
  blocks_of_epochs_.push_back(block.number);
  return epoch;
}

std::vector<GridRun::Thread>::iterator GridRun::ThreadsOf(size_t block) {
  return threads_.begin() + static_cast<std::ptrdiff_t>(block * block_threads_);
}

unsigned GridRun::cluster_rank() const {
  return static_cast<unsigned>(current_->block - blocks_.data());
}

void GridRun::RunCluster(uint64_t first) {
  ready_.clear();
  for (size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    block = {.index = IndexOf(first + b, call_.shape.grid),
             .number = static_cast<uint32_t>(first + b)};
    block.warp_phases.resize(block_threads_ / kWarpSize + 1);
    block.epoch = TakeEpoch(block);
    if (b == 0) toucher_.cluster_epoch = toucher_.phase_epoch = block.epoch;
    for (size_t i = 0; i < block_threads_; ++i) {
      const size_t place = b * block_threads_ + i;
      Thread& thread = threads_[place];
      thread = {.grid = this,
                .block = &block,
                .place = place,
                .number = static_cast<int>(i),
                .index = IndexOf(i, call_.shape.block),
                .fiber = FiberOf(place)};
      thread.fiber->Prepare(&RunThread, &thread);
      ready_.push_back(static_cast<int>(place));
    }
  }
  do {
    RunReadyThreads();
  } while (failure_.empty() && PassBarriers());
  for (const auto& [place, count] : counts_) {
    if (failure_.empty() && (count.is_expected || count.missing != 0)) {
      failure_ = Named("ends in the midst of a phase of messages", nullptr);
    }
  }
  counts_.clear();
  messages_.clear();
  shared_.GiveAllBack();
}

void GridRun::RunReadyThreads() {
  while (!ready_.empty() && failure_.empty()) {
    if (!messages_.empty() && random_() % 4 == 0) {
      DeliverMessage();
      continue;
    }
    const size_t drawn = random_() % ready_.size();
    std::swap(ready_[drawn], ready_.back());
    current_ = &threads_[static_cast<size_t>(ready_.back())];
    ready_.pop_back();
    current_->fiber->Resume();
    current_ = nullptr;
  }
}

// After this the next launch begins while the launch before this one may still
// run, and memory that the next launch takes for constant may be written by it.
void GridRun::LetNextLaunchBegin() {
  if (call_.shape.early && !current_->has_waited) {
    Fail(
        "lets the next launch begin before it waited for the launch before it");
  }
}

void GridRun::RunThread(void* opaque) {
  auto* thread = static_cast<Thread*>(opaque);
  GridRun* grid = thread->grid;
  grid->call_.call(grid->call_.arguments);
  if (!thread->copies.empty()) {
    grid->Fail("ends while copies that it started are under way");
  }
  // A launch that waits for this one would not have waited for the launch
  // before it.
  if (grid->call_.shape.early && !thread->has_waited) {
    grid->Fail("ends without having waited for the launch before it");
  }
  grid->Wait(State::kEnded);
}

void GridRun::Wait(State state) {
  current_->state = state;
  current_->fiber->Pause();
}

int GridRun::MeetBlock(bool predicate, Site site) {
  current_->predicate = predicate;
  current_->site = site;
  Wait(State::kAtBarrier);
  return static_cast<int>(current_->result);
}

bool GridRun::PassBarriers() {
  const auto ended = [](const Thread& thread) {
    return thread.state == State::kEnded;
  };
  if (std::all_of(threads_.begin(), threads_.end(), ended)) return false;
  if (!messages_.empty()) {
    DeliverMessage();
    return failure_.empty();
  }
  bool passed = PassClusterBarrier();
  for (size_t block = 0; block < blocks_.size(); ++block) {
    passed = PassBlockBarrier(block) || passed;
  }
  if (!passed) failure_ = Named(WhyStuck(), nullptr);
  return passed;
}

bool GridRun::PassBlockBarrier(size_t block) {
  const auto begin = ThreadsOf(block);
  const auto end = begin + static_cast<std::ptrdiff_t>(block_threads_);
  const Site site = begin->site;
  const bool all_there = std::all_of(begin, end, [&](const Thread& thread) {
    return thread.state == State::kAtBarrier && thread.site == site;
  });
  if (!all_there) return false;
  const auto holds = std::count_if(
      begin, end, [](const Thread& thread) { return thread.predicate; });
  for (auto thread = begin; thread != end; ++thread) {
    thread->state = State::kReady;
    thread->result = static_cast<uint64_t>(holds);
    ready_.push_back(static_cast<int>(thread->place));
  }
  blocks_[block].epoch = TakeEpoch(blocks_[block]);
  TakeLearned(blocks_[block]);
  return true;
}

bool GridRun::PassClusterBarrier() {
  const Site site = threads_[0].site;
  const bool all_there =
      std::all_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
        return thread.state == State::kAtCluster && thread.site == site;
      });
  if (!all_there) return false;
  for (Thread& thread : threads_) {
    thread.state = State::kReady;
    thread.has_arrived = false;
    ready_.push_back(static_cast<int>(thread.place));
  }
  for (Block& block : blocks_) block.epoch = TakeEpoch(block);
  toucher_.phase_epoch = blocks_[0].epoch;
  return true;
}

void GridRun::ArriveAtCluster(Site /*site*/) {
  if (current_->has_arrived) Fail("arrives twice at the cluster's barrier");
  current_->has_arrived = true;
}

void GridRun::WaitForCluster(Site site) {
  if (!current_->has_arrived) {
    Fail("waits at the cluster's barrier without having arrived");
  }
  current_->site = site;
  Wait(State::kAtCluster);
}

uint64_t GridRun::MeetLanes(const LaneMeeting& meeting) {
  if ((meeting.mask >> lane() & 1U) == 0) {
    Fail(absl::StrCat("lane ",
                      lane(),
                      " is not in the mask 0x",
                      absl::Hex(meeting.mask, absl::kZeroPad8),
                      " that it gives at ",
                      ToString(meeting.site)));
  }
  if (meeting.operation == WarpOperation::kShuffle &&
      (meeting.mask >> meeting.source & 1U) == 0) {
    Fail(absl::StrCat("lane ",
                      lane(),
                      " asks lane ",
                      meeting.source,
                      ", which is not in the mask 0x",
                      absl::Hex(meeting.mask, absl::kZeroPad8),
                      ", at ",
                      ToString(meeting.site)));
  }
  current_->meeting = meeting;
  current_->state = State::kAtLanes;
  // The last lane that comes lets all of them continue.
  FinishMeeting(meeting);
  current_->fiber->Pause();
  return current_->result;
}

void GridRun::FinishMeeting(const LaneMeeting& meeting) {
  const auto warp = static_cast<size_t>(current_->number / kWarpSize);
  const size_t lanes_before = warp * kWarpSize;
  const size_t first =
      current_->place - static_cast<size_t>(current_->number) + lanes_before;
  const auto warp_lanes =
      std::min<size_t>(block_threads_ - lanes_before, kWarpSize);
  const auto for_each = [&](const auto& body) {
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      if ((meeting.mask >> lane & 1U) == 0) continue;
      if (lane >= warp_lanes) return false;
      if (!body(threads_[first + lane])) return false;
    }
    return true;
  };
  const bool all_there = for_each([&](const Thread& thread) {
    return thread.state == State::kAtLanes &&
           thread.meeting.operation == meeting.operation &&
           thread.meeting.mask == meeting.mask &&
           thread.meeting.site == meeting.site;
  });
  if (!all_there) return;
  uint64_t ballot = 0;
  for_each([&](Thread& thread) {
    if (thread.meeting.bits != 0) {
      ballot |= uint64_t{1} << (thread.number % kWarpSize);
    }
    return true;
  });
  for_each([&](Thread& thread) {
    const auto source = static_cast<size_t>(thread.meeting.source);
    thread.result = meeting.operation == WarpOperation::kShuffle
                        ? threads_[first + source].meeting.bits
                        : ballot;
    thread.state = State::kReady;
    ready_.push_back(static_cast<int>(thread.place));
    return true;
  });
  // A vote of a part of a warp says nothing about the other lanes.
  const auto all = static_cast<unsigned>((uint64_t{1} << warp_lanes) - 1);
  if (meeting.operation == WarpOperation::kSync &&
      (meeting.mask & all) == all) {
    ++current_->block->warp_phases[warp];
  }
}

void GridRun::Fail(const std::string& reason) {
  failure_ = Named(reason, current_);
  Wait(State::kEnded);
  std::abort();  // nobody resumes it
}

std::string GridRun::Named(const std::string& reason,
                           const Thread* thread) const {
  return absl::StrCat(
      call_.kernel,
      ", block ",
      ToString(thread == nullptr ? blocks_[0].index : thread->block->index),
      thread == nullptr ? "" : absl::StrCat(", thread ", thread->number),
      ": ",
      reason);
}

std::string GridRun::Describe(const Thread& thread) const {
  const std::string name = blocks_.size() == 1
                               ? absl::StrCat("thread ", thread.number)
                               : absl::StrCat("thread ",
                                              thread.number,
                                              " of block ",
                                              ToString(thread.block->index));
  switch (thread.state) {
    case State::kAtBarrier:
      return absl::StrCat(
          name, " waits at the barrier ", ToString(thread.site));
    case State::kAtLanes:
      return absl::StrCat(name,
                          " waits for the lanes 0x",
                          absl::Hex(thread.meeting.mask, absl::kZeroPad8),
                          " at ",
                          ToString(thread.meeting.site));
    case State::kAtCluster:
      return absl::StrCat(
          name, " waits at the cluster's barrier ", ToString(thread.site));
    case State::kAtBytes:
      return absl::StrCat(name, " waits for the bytes of messages");
    case State::kEnded:
      return absl::StrCat(name, " has ended");
    case State::kReady:
      break;
  }
  return name;
}

// Names two threads that do different things.
std::string GridRun::WhyStuck() const {
  const auto same = [](const Thread& a, const Thread& b) {
    if (a.state != b.state) return false;
    return a.state == State::kAtBarrier || a.state == State::kAtCluster
               ? a.site == b.site
           : a.state == State::kAtLanes ? a.meeting.site == b.meeting.site &&
                                              a.meeting.mask == b.meeting.mask
                                        : true;
  };
  for (const Thread& thread : threads_) {
    if (!same(thread, threads_[0])) {
      return absl::StrCat(
          "stuck: ", Describe(threads_[0]), ", ", Describe(thread));
    }
  }
  return absl::StrCat("stuck: all of it ", Describe(threads_[0]));
}

}  // namespace dapd::fake
