#include "services/teacher/prefix_desk.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/steady_time.h"

namespace dapd {
namespace {

// A shorter gap between two chunks does not count; a chunk takes longer.
constexpr absl::Duration kNoGap = absl::Microseconds(20);

// Converts spans by SteadyNow to the machine's clock, for the timeline only.
std::vector<TimeSpan> OnTheClock(std::vector<TimeSpan> spans) {
  const absl::Duration offset = absl::Now() - SteadyNow();
  for (TimeSpan& span : spans) {
    span.begin += offset;
    span.end += offset;
  }
  return spans;
}

}  // namespace

void PrefixDesk::Update(Stream stream, const PrefixUpdate& update) {
  const Key key = {update.request_id, stream};
  if (update.views.empty()) {
    Close(stream, update.request_id);
    return;
  }
  if (const auto found = requests_.find(key);
      found != requests_.end() && found->second.weights != update.weights) {
    // Chunks of other weights cannot be continued.
    requests_.erase(found);
  }
  if (!requests_.contains(key) && requests_.size() >= kMaxOpenPrefixes) return;
  Request& request = requests_[key];
  request.weights = update.weights;
  for (const PrefixUpdate::View& news : update.views) {
    View& view = request.views[news.name];
    if (news.first_index == 0) view = {};
    if (news.first_index != static_cast<int64_t>(view.ids.size())) {
      Close(stream, update.request_id);
      return;
    }
    view.ids.insert(view.ids.end(), news.ids.begin(), news.ids.end());
  }
  has_work_ = true;
}

AheadWork PrefixDesk::Close(Stream stream, uint64_t request_id) {
  AheadWork work;
  const auto found = requests_.find({request_id, stream});
  if (found == requests_.end()) return work;
  work.seconds = found->second.seconds;
  work.spans = OnTheClock(std::move(found->second.spans));
  for (auto& [name, view] : found->second.views) {
    work.held.push_back(std::move(view.held));
  }
  requests_.erase(found);
  // The other requests may wait for its memory.
  has_work_ = !requests_.empty();
  return work;
}

void PrefixDesk::CloseStream(Stream stream) {
  std::erase_if(requests_,
                [&](const auto& r) { return r.first.second == stream; });
  has_work_ = !requests_.empty();
}

void PrefixDesk::CloseSet(WeightSet weights) {
  std::erase_if(requests_,
                [&](const auto& r) { return r.second.weights == weights; });
  has_work_ = !requests_.empty();
}

absl::StatusOr<int64_t> PrefixDesk::Advance(Scorer& scorer) {
  std::vector<AheadSequence> sequences;
  std::vector<Key> keys;  // of each sequence's request
  std::vector<int64_t> before;
  for (auto& [key, request] : requests_) {
    for (auto& [name, view] : request.views) {
      if (static_cast<int64_t>(view.ids.size()) <
          view.held.tokens + scorer.chunk_tokens()) {
        continue;
      }
      sequences.push_back({request.weights, &view.ids, &view.held});
      keys.push_back(key);
      before.push_back(view.held.tokens);
    }
  }
  const absl::Time start = SteadyNow();
  const absl::StatusOr<int64_t> advanced = sequences.empty()
                                               ? absl::StatusOr<int64_t>(0)
                                               : scorer.Advance(sequences);
  const absl::Duration taken = SteadyNow() - start;
  if (!advanced.ok()) {
    requests_.erase(keys.front());
    has_work_ = !requests_.empty();
    return advanced.status();
  }
  if (*advanced == 0) has_work_ = false;
  // The pass's time is divided in proportion to the tokens.
  int64_t done = 0;
  const auto time_of = [&](int64_t tokens) {
    return start + taken * (static_cast<double>(tokens) /
                            static_cast<double>(*advanced));
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = sequences[i].prefix->tokens - before[i];
    if (tokens == 0) continue;
    const TimeSpan span = {time_of(done), time_of(done + tokens)};
    done += tokens;
    Request& request = requests_.at(keys[i]);
    request.seconds += absl::ToDoubleSeconds(span.end - span.begin);
    AddSpan(span, &request);
  }
  return advanced;
}

void PrefixDesk::AddSpan(const TimeSpan& span, Request* request) {
  std::vector<TimeSpan>& spans = request->spans;
  if (!spans.empty() && span.begin - spans.back().end < kNoGap) {
    spans.back().end = span.end;
  } else if (spans.size() < kMaxAheadSpans) {
    spans.push_back(span);
  }
}

}  // namespace dapd
