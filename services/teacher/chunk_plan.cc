#include "services/teacher/chunk_plan.h"

#include <algorithm>
#include <set>

namespace dapd {
namespace {

int64_t TokensOf(const PrefixChunk& chunk) {
  return static_cast<int64_t>(chunk.ids.size());
}

}  // namespace

PrefixChunkPtr ChunkPlan::Find(const PrefixChunkPtr& parent,
                               std::span<const int32_t> ids) {
  const auto found = planned_.find({parent.get(), {ids.begin(), ids.end()}});
  return found != planned_.end() ? found->second : cache_.Find(parent, ids);
}

PrefixChunkPtr ChunkPlan::Add(const PrefixChunkPtr& parent,
                              std::span<const int32_t> ids) {
  auto chunk = std::make_shared<PrefixChunk>();
  chunk->parent = parent;
  chunk->ids.assign(ids.begin(), ids.end());
  chunk->end = parent->end + TokensOf(*chunk);
  tokens_ += TokensOf(*chunk);
  if (TokensOf(*chunk) == chunk_tokens_) {
    planned_[{parent.get(), chunk->ids}] = chunk;
  }
  open_.push_back(chunk);
  return chunk;
}

PrefixChunkPtr ChunkPlan::AddPath(const PrefixChunkPtr& root,
                                  std::span<const int32_t> ids) {
  PrefixChunkPtr chunk = root;
  while (!ids.empty()) {
    const auto next =
        ids.first(std::min(static_cast<size_t>(chunk_tokens_), ids.size()));
    ids = ids.subspan(next.size());
    PrefixChunkPtr there = Find(chunk, next);
    chunk = there != nullptr ? std::move(there) : Add(chunk, next);
  }
  return chunk;
}

std::vector<ChunkPlan::Open> ChunkPlan::TakePass(int64_t rows) {
  planned_.clear();
  std::vector<Open> pass;
  std::set<const PrefixChunk*> left;  // did not fit
  int64_t taken = 0;
  std::erase_if(open_, [&](const Open& chunk) {
    const int64_t tokens = TokensOf(*chunk);
    if ((!pass.empty() && taken + tokens > rows) ||
        left.contains(chunk->parent.get())) {
      left.insert(chunk.get());
      return false;
    }
    taken += tokens;
    pass.push_back(chunk);
    return true;
  });
  tokens_ -= taken;
  return pass;
}

void ChunkPlan::KeepOnly(std::span<const PrefixChunkPtr> ends) {
  std::set<const PrefixChunk*> needed;
  for (const PrefixChunkPtr& end : ends) {
    for (const PrefixChunk* chunk = end.get(); chunk != nullptr;
         chunk = chunk->parent.get()) {
      needed.insert(chunk);
    }
  }
  std::erase_if(open_, [&](const Open& chunk) {
    if (needed.contains(chunk.get())) return false;
    tokens_ -= TokensOf(*chunk);
    return true;
  });
}

}  // namespace dapd
