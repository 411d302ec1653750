#include "tests/fakes/cuda/grid_run.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace dapd::fake {
namespace {

// What a block has without asking for more.
constexpr size_t kSharedBytes = size_t{48} << 10;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksAside = 65535;  // of a grid's y and z

CheckedMemory& ASharedMemory() {
  static auto* memory = new CheckedMemory(size_t{4} << 20);
  return *memory;
}

// As many as the largest block so far had.
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

std::string ToString(Site site) {
  return absl::StrCat(site.file, ":", site.line);
}

}  // namespace

bool GridRun::IsValid(dim3 grid, dim3 block) {
  return NumThreads(grid) > 0 && NumThreads(block) > 0 &&
         NumThreads(block) <= kMostThreads && grid.y <= kMostBlocksAside &&
         grid.z <= kMostBlocksAside && grid.x <= 0x7FFFFFFFU && block.z <= 64;
}

GridRun::GridRun(const KernelCall& call, CheckedMemory& global, uint32_t seed)
    : call_(call),
      global_(global),
      shared_(ASharedMemory()),
      random_(seed),
      threads_(NumThreads(call.block)),
      warp_phases_(threads_.size() / kWarpSize + 1) {}

std::string GridRun::Run() {
  toucher_.launch_epoch = NewEpoch();
  std::vector<uint64_t> blocks(NumThreads(call_.grid));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random_);
  for (const uint64_t block : blocks) {
    block_index_ = IndexOf(block, call_.grid);
    RunBlock();
    if (!failure_.empty()) break;
  }
  return failure_;
}

void GridRun::RunBlock() {
  toucher_.block_epoch = NewEpoch();
  toucher_.epoch = toucher_.block_epoch;
  toucher_.before = &before_;
  behind_.clear();
  before_.clear();
  has_fenced_ = false;
  std::fill(warp_phases_.begin(), warp_phases_.end(), 0);
  ready_.clear();
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    thread = {.grid = this,
              .number = static_cast<int>(i),
              .index = IndexOf(i, call_.block),
              .fiber = FiberOf(i)};
    thread.fiber->Prepare(&RunThread, &thread);
    ready_.push_back(thread.number);
  }
  do {
    RunReadyThreads();
  } while (failure_.empty() && PassBarrier());
  shared_variables_.clear();
  shared_.GiveAllBack();
}

void GridRun::RunReadyThreads() {
  while (!ready_.empty() && failure_.empty()) {
    const size_t drawn = random_() % ready_.size();
    std::swap(ready_[drawn], ready_.back());
    current_ = &threads_[static_cast<size_t>(ready_.back())];
    ready_.pop_back();
    current_->fiber->Resume();
    current_ = nullptr;
  }
}

void GridRun::RunThread(void* opaque) {
  auto* thread = static_cast<Thread*>(opaque);
  thread->grid->call_.call(thread->grid->call_.arguments);
  thread->grid->Wait(State::kEnded);
}

void GridRun::Wait(State state) {
  current_->state = state;
  current_->fiber->Pause();
}

void GridRun::Fence() {
  has_fenced_ = true;
  before_ = behind_;
}

void GridRun::CountBlock(const void* place) {
  std::vector<EpochRange>& published = published_[place];
  behind_ = published;
  if (has_fenced_) {
    published.push_back({toucher_.block_epoch, toucher_.epoch});
  }
}

int GridRun::MeetBlock(bool predicate, Site site) {
  current_->predicate = predicate;
  current_->site = site;
  Wait(State::kAtBarrier);
  return static_cast<int>(current_->result);
}

bool GridRun::PassBarrier() {
  const auto ended = [](const Thread& thread) {
    return thread.state == State::kEnded;
  };
  if (std::all_of(threads_.begin(), threads_.end(), ended)) return false;
  const Site site = threads_[0].site;
  const bool all_there =
      std::all_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
        return thread.state == State::kAtBarrier && thread.site == site;
      });
  if (!all_there) {
    failure_ = Named(WhyStuck(), nullptr);
    return false;
  }
  const auto holds =
      std::count_if(threads_.begin(), threads_.end(), [](const Thread& thread) {
        return thread.predicate;
      });
  for (Thread& thread : threads_) {
    thread.state = State::kReady;
    thread.result = static_cast<uint64_t>(holds);
    ready_.push_back(thread.number);
  }
  toucher_.epoch = NewEpoch();
  return true;
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
  // Who comes last lets all of them go on.
  FinishMeeting(meeting);
  current_->fiber->Pause();
  return current_->result;
}

void GridRun::FinishMeeting(const LaneMeeting& meeting) {
  const size_t first =
      static_cast<size_t>(current_->number / kWarpSize * kWarpSize);
  const auto for_each = [&](const auto& body) {
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      if ((meeting.mask >> lane & 1U) == 0) continue;
      if (first + lane >= threads_.size()) return false;
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
    ready_.push_back(thread.number);
    return true;
  });
  // What a part of a warp agrees on says nothing of the others.
  const auto lanes = std::min<size_t>(threads_.size() - first, kWarpSize);
  const auto all = static_cast<unsigned>((uint64_t{1} << lanes) - 1);
  if (meeting.operation == WarpOperation::kSync &&
      (meeting.mask & all) == all) {
    ++warp_phases_[first / kWarpSize];
  }
}

void* GridRun::SharedMemory(const char* name,
                            const void* declaration,
                            size_t bytes,
                            size_t alignment) {
  void*& variable = shared_variables_[declaration];
  if (variable == nullptr) {
    if (shared_.bytes_taken() + bytes > kSharedBytes) {
      Fail(absl::StrCat("'", name, "' is more shared memory than a block has"));
    }
    variable = shared_.Take(name, bytes, alignment);
  }
  return variable;
}

void GridRun::Touch(const void* address, size_t bytes, Access access) {
  if (current_->fiber->OnStack(address)) return;
  CheckedMemory& memory = shared_.Contains(address) ? shared_ : global_;
  const char* verb = access == Access::kRead    ? "reads "
                     : access == Access::kWrite ? "writes "
                                                : "adds to ";
  if (!memory.Contains(address)) {
    Fail(absl::StrCat(verb,
                      bytes,
                      " bytes at ",
                      absl::Hex(reinterpret_cast<uintptr_t>(address)),
                      ", which is not the device's memory"));
  }
  toucher_.thread = static_cast<uint16_t>(current_->number);
  toucher_.warp_phase =
      warp_phases_[static_cast<size_t>(current_->number / kWarpSize)];
  const std::string fault = memory.Touch(address, bytes, access, toucher_);
  if (!fault.empty()) Fail(absl::StrCat(verb, fault));
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
      ToString(block_index_),
      thread == nullptr ? "" : absl::StrCat(", thread ", thread->number),
      ": ",
      reason);
}

std::string GridRun::Describe(const Thread& thread) const {
  const std::string name = absl::StrCat("thread ", thread.number);
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
    case State::kEnded:
      return absl::StrCat(name, " has ended");
    case State::kReady:
      break;
  }
  return name;
}

// Names two threads that do not do the same.
std::string GridRun::WhyStuck() const {
  const auto same = [](const Thread& a, const Thread& b) {
    if (a.state != b.state) return false;
    return a.state == State::kAtBarrier ? a.site == b.site
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
