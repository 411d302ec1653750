#include "common/kernels/helper_threads.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace dapd {
namespace {

thread_local bool is_in_loop = false;

}  // namespace

HelperThreads& HelperThreads::Instance() {
  // It is never destroyed, because its threads may outlast main.
  static auto* const threads = new HelperThreads;
  return *threads;
}

void HelperThreads::Run(int helpers,
                        int64_t count,
                        int64_t piece,
                        void (*body)(const void* context, int64_t i),
                        const void* context) {
  Loop loop = {.count = count,
               .piece = piece,
               .body = body,
               .context = context,
               .wanted = is_in_loop ? 0 : helpers};
  if (loop.wanted <= 0) {
    for (int64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  {
    MutexLock lock(&mutex_);
    StartThreads(helpers);
    open_.push_back(&loop);
  }
  for (int i = 0; i < helpers; ++i) waiting_.NotifyOne();
  Work(loop);
  {
    MutexLock lock(&mutex_);
    std::erase(open_, &loop);
    while (loop.inside > 0) left_.Wait(&mutex_);
  }
  loop.failure.Rethrow();
}

void HelperThreads::StartThreads(int count) {
  try {
    for (; num_threads_ < count; ++num_threads_) {
      std::thread([this] { Help(); }).detach();
    }
  } catch (const std::system_error&) {
    // The system gives no more threads; the existing ones suffice.
  }
}

void HelperThreads::Help() {
  mutex_.Lock();
  while (true) {
    while (open_.empty()) waiting_.Wait(&mutex_);
    Loop& loop = *open_.front();
    ++loop.inside;
    if (--loop.wanted == 0) open_.pop_front();
    mutex_.Unlock();
    Work(loop);
    mutex_.Lock();
    if (--loop.inside == 0) left_.NotifyAll();
  }
}

void HelperThreads::Work(Loop& loop) {
  is_in_loop = true;
  while (true) {
    const int64_t begin = loop.next.fetch_add(loop.piece);
    if (begin >= loop.count) break;
    const int64_t end = std::min(loop.count, begin + loop.piece);
    try {
      for (int64_t i = begin; i < end; ++i) loop.body(loop.context, i);
    } catch (...) {
      loop.failure.Keep();
    }
  }
  is_in_loop = false;
}

}  // namespace dapd
