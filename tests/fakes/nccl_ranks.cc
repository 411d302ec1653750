#include "tests/fakes/nccl_ranks.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/cuda_on_host.h"

namespace dapd {
namespace {

enum class Kind { kGather, kExchange, kSum, kBroadcast };

// Describes a buffer of an operation, or of an operation in a group.
struct Transfer {
  const char* from = nullptr;
  char* to = nullptr;
  size_t bytes = 0;  // size of one rank's part
};

struct Operation {
  Kind kind = Kind::kGather;
  std::vector<Transfer> transfers;
};

[[noreturn]] void End(const char* why) {
  std::fprintf(stderr, "[nccl_ranks] %s\n", why);
  std::abort();
}

// Holds the state that the ranks of a communicator share.
class Meeting {
 public:
  explicit Meeting(int size) : operations_(static_cast<size_t>(size)) {}

  // Returns every rank's operation, by rank, when all ranks are here; null if a
  // rank has ended.
  const std::vector<const Operation*>* Bring(int rank,
                                             const Operation& operation) {
    operations_[static_cast<size_t>(rank)] = &operation;
    if (!WaitForAll()) return nullptr;
    for (const Operation* other : operations_) {
      if (!IsSame(*other, operation)) End("the ranks do different things");
    }
    return &operations_;
  }

  // Returns false if a rank has ended.
  bool WaitForAll() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == operations_.size()) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
      return true;
    }
    if (!changed_.wait_for(lock, std::chrono::minutes(1), [&] {
          return round_ != round || has_ended_;
        })) {
      End("a rank did not come");
    }
    return round_ != round;
  }

  void EndOne(bool is_noticed) {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    is_noticed_ = is_noticed;
    changed_.notify_all();
  }
  bool is_noticed() {
    const std::lock_guard lock(mutex_);
    return is_noticed_;
  }

 private:
  static bool IsSame(const Operation& a, const Operation& b) {
    if (a.kind != b.kind || a.transfers.size() != b.transfers.size()) {
      return false;
    }
    for (size_t i = 0; i < a.transfers.size(); ++i) {
      if (a.transfers[i].bytes != b.transfers[i].bytes) return false;
    }
    return true;
  }

  std::vector<const Operation*> operations_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t here_ = 0;
  int64_t round_ = 0;
  bool has_ended_ = false;
  bool is_noticed_ = false;
};

constexpr size_t kLongBytes = 1 << 20;

struct Communicator {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
  int size = 1;
  bool is_captured = false;  // the last launch was
  // Kinds of operations that have run, and whether they were long.
  std::set<std::pair<Kind, bool>> connected = {};
};

std::function<bool()>& TakeMemory() {
  static auto& take = *new std::function<bool()>;
  return take;
}

bool FindsMemory(Communicator& communicator, const Operation& operation) {
  size_t bytes = 0;
  for (const Transfer& each : operation.transfers) bytes += each.bytes;
  if (!communicator.connected.emplace(operation.kind, bytes >= kLongBytes)
           .second) {
    return true;
  }
  return !TakeMemory() || TakeMemory()();
}

thread_local NcclRankWork rank_work;
thread_local bool in_group = false;
thread_local Operation group;  // the group that is being put together
thread_local Communicator* group_of = nullptr;

Communicator& Of(ncclComm_t comm) {
  return *reinterpret_cast<Communicator*>(comm);
}

void Count(const Operation& operation, int rank, int size) {
  switch (operation.kind) {
    case Kind::kGather:
      ++rank_work.gathers;
      break;
    case Kind::kExchange:
      ++rank_work.exchanges;
      break;
    case Kind::kSum:
      ++rank_work.sums;
      break;
    case Kind::kBroadcast:
      ++rank_work.broadcasts;
      break;
  }
  for (const Transfer& each : operation.transfers) {
    const int senders = operation.kind != Kind::kBroadcast ? size - 1
                        : rank == 0                        ? 0
                                                           : 1;
    rank_work.bytes_received += static_cast<int64_t>(each.bytes) * senders;
  }
}

// Returns the result of a transfer for rank `own` when all ranks have
// contributed.
std::string ResultOf(const std::vector<const Operation*>& ranks,
                     size_t transfer,
                     int own) {
  const Transfer& mine = ranks[static_cast<size_t>(own)]->transfers[transfer];
  if (ranks[0]->kind == Kind::kSum) {
    std::vector<float> sum(mine.bytes / sizeof(float), 0.0F);
    for (const Operation* rank : ranks) {
      const auto* part =
          reinterpret_cast<const float*>(rank->transfers[transfer].from);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return {reinterpret_cast<const char*>(sum.data()), mine.bytes};
  }
  if (ranks[0]->kind == Kind::kBroadcast) {
    return {ranks[0]->transfers[transfer].from, mine.bytes};
  }
  std::string all;
  for (const Operation* rank : ranks) {
    const Transfer& theirs = rank->transfers[transfer];
    const bool for_all = rank->kind == Kind::kGather;
    all.append(theirs.from + (for_all ? 0 : own * theirs.bytes), theirs.bytes);
  }
  return all;
}

void Run(const Communicator& communicator, const Operation& operation) {
  Meeting& meeting = *communicator.meeting;
  const auto* ranks = meeting.Bring(communicator.rank, operation);
  if (ranks == nullptr) {
    CudaHostIsStuck() = true;
    return;
  }
  std::vector<std::string> results;
  for (size_t i = 0; i < operation.transfers.size(); ++i) {
    results.push_back(ResultOf(*ranks, i, communicator.rank));
  }
  // A buffer that one rank reads may be overwritten in place by another.
  meeting.WaitForAll();
  for (size_t i = 0; i < results.size(); ++i) {
    std::memcpy(
        operation.transfers[i].to, results[i].data(), results[i].size());
  }
  Count(operation, communicator.rank, communicator.size);
}

ncclResult_t Launch(Communicator& communicator, Operation operation) {
  if (!FindsMemory(communicator, operation)) return ncclUnhandledCudaError;
  // NCCL orders the work in a graph by events, which are nodes, too: a wait at
  // its beginning and an event behind each launch.
  if (!CudaHostIsCapturing()) {
    communicator.is_captured = false;
  } else if (!std::exchange(communicator.is_captured, true)) {
    LaunchOnCudaHost([] {});
  }
  LaunchOnCudaHost([&communicator, operation = std::move(operation)] {
    Run(communicator, operation);
  });
  if (CudaHostIsCapturing()) LaunchOnCudaHost([] {});
  return ncclInProgress;  // the answer of a non-blocking communicator
}

Transfer TransferOf(const void* from, void* to, size_t bytes) {
  return {static_cast<const char*>(from), static_cast<char*>(to), bytes};
}

// All operations of a group are of one kind here.
ncclResult_t AddToGroup(Kind kind,
                        const Transfer& transfer,
                        ncclDataType_t type,
                        ncclComm_t comm) {
  const bool is_first = group.transfers.empty();
  if (type != ncclUint8 || !in_group || (!is_first && group.kind != kind)) {
    return ncclInvalidUsage;
  }
  group_of = &Of(comm);
  group.kind = kind;
  group.transfers.push_back(transfer);
  return ncclSuccess;
}

}  // namespace

NcclRankWork& WorkOfNcclRank() { return rank_work; }

void OnNcclMemory(std::function<bool()> take) {
  TakeMemory() = std::move(take);
}

void EndNcclRank(void* communicator, bool is_noticed) {
  Of(static_cast<ncclComm_t>(communicator)).meeting->EndOne(is_noticed);
}

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an NCCL error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::mutex mutex;
  static int32_t made = 0;
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof(*id));
  ++made;
  std::memcpy(id, &made, sizeof(made));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Meeting>> meetings;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Meeting>& meeting =
      meetings[std::string(id.internal, sizeof(id.internal))];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>(size);
  *comm = reinterpret_cast<ncclComm_t>(new Communicator{meeting, rank, size});
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = Of(comm).meeting->is_noticed() ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  CudaHostIsStuck() = false;  // aborting ends its kernels
  return ncclCommDestroy(comm);
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  // NCCL waits without a limit until no graph is left (commDestroySync), also
  // in an abort.
  if (GraphsOfCudaHost() > 0) End("a graph still has operations of NCCL's");
  delete &Of(comm);
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from,
                           void* to,
                           size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t,
                           ncclComm_t comm,
                           cudaStream_t) {
  if (type != ncclFloat32 || in_group) return ncclInvalidUsage;
  return Launch(Of(comm),
                {Kind::kSum, {TransferOf(from, to, count * sizeof(float))}});
}
ncclResult_t ncclAllGather(const void* part,
                           void* all,
                           size_t bytes,
                           ncclDataType_t type,
                           ncclComm_t comm,
                           cudaStream_t) {
  return AddToGroup(Kind::kGather, TransferOf(part, all, bytes), type, comm);
}
ncclResult_t ncclBroadcast(const void* from,
                           void* to,
                           size_t bytes,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t) {
  if (root != 0) return ncclInvalidUsage;
  return AddToGroup(Kind::kBroadcast, TransferOf(from, to, bytes), type, comm);
}
ncclResult_t ncclAlltoAll(const void* parts,
                          void* received,
                          size_t bytes,
                          ncclDataType_t type,
                          ncclComm_t comm,
                          cudaStream_t) {
  if (type != ncclUint8 || in_group) return ncclInvalidUsage;
  return Launch(Of(comm),
                {Kind::kExchange, {TransferOf(parts, received, bytes)}});
}
ncclResult_t ncclGroupStart() {
  in_group = true;
  group = {};
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  if (group.transfers.empty()) return ncclSuccess;
  return Launch(*group_of, std::exchange(group, {}));
}

}  // extern "C"
}  // namespace dapd
