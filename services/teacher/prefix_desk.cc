#include "services/teacher/prefix_desk.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace dapd {
namespace {

// Between two chunks with nothing between them: less than a chunk takes.
constexpr absl::Duration kNoGap = absl::Microseconds(20);

}  // namespace

void PrefixDesk::Update(Stream stream, const PrefixUpdate& update) {
  const Key key = {update.request_id, stream};
  if (update.views.empty()) {
    Close(stream, update.request_id);
    return;
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
  work.spans = std::move(found->second.spans);
  for (auto& [name, view] : found->second.views) {
    work.held.push_back(std::move(view.held));
  }
  requests_.erase(found);
  // Its memory may be what the others wait for.
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
  for (auto& [key, request] : requests_) {
    for (auto& [name, view] : request.views) {
      const absl::Time start = absl::Now();
      const int64_t before = view.held.tokens;
      const absl::StatusOr<bool> advanced =
          scorer.Advance(request.weights, view.ids, &view.held);
      if (!advanced.ok()) {
        requests_.erase(Key(key));
        has_work_ = !requests_.empty();
        return advanced.status();
      }
      if (!*advanced) continue;
      const absl::Time end = absl::Now();
      request.seconds += absl::ToDoubleSeconds(end - start);
      AddSpan({start, end}, &request);
      return view.held.tokens - before;
    }
  }
  has_work_ = false;
  return 0;
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
