#include "common/generation/cuda/cuda_decoder.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/generation/cuda/cuda_bursts.h"
#include "common/generation/cuda/cuda_decode_step.h"
#include "common/generation/cuda/cuda_decoder_memory.h"
#include "common/generation/cuda/cuda_outcome.h"
#include "common/generation/cuda/cuda_page_copies.h"
#include "common/generation/cuda/cuda_step_graphs.h"
#include "common/kernels/decode_attention_math.h"

namespace dapd {
namespace {

class CudaDecoder {
 public:
  CudaDecoder(const CudaDecoderSpec& spec, void* workspace)
      : spec_(spec),
        memory_(spec, workspace),
        step_(spec, memory_),
        graphs_(step_),
        bursts_(memory_, spec.ranks),
        row_slots_(static_cast<size_t>(spec.max_rows), -1),
        running_(static_cast<size_t>(spec.slots), false),
        prompt_tokens_(static_cast<size_t>(spec.slots), 0),
        max_tokens_(static_cast<size_t>(spec.slots), 0),
        num_pages_(static_cast<size_t>(spec.slots), 0),
        seen_(static_cast<size_t>(spec.slots), 0),
        last_token_(static_cast<size_t>(spec.slots), 0) {}
  ~CudaDecoder();

  CudaOutcome Prepare();
  CudaOutcome Start(std::span<const CudaPrompt> prompts, const float* logits);
  CudaOutcome Extend(int64_t slot, const CudaSlotPages& pages);
  CudaOutcome Stop(int64_t slot);
  CudaOutcome Pause(int64_t slot,
                    CudaPaused* paused,
                    CudaDecodedToken* tokens,
                    int64_t* num_tokens);
  CudaOutcome Continue(const CudaContinued& continued);
  CudaOutcome CopyPages(std::span<void* const> to,
                        std::span<void* const> from,
                        size_t page_bytes) {
    return copies_.Copy(to, from, page_bytes, stream_);
  }
  CudaOutcome Launch(int64_t steps);
  CudaOutcome Collect(CudaDecodedToken* tokens, int64_t* num_tokens);
  void DropGraphs() { graphs_.Clear(); }
  int64_t launched() const { return bursts_.size(); }
  int64_t num_running() const {
    return std::count(running_.begin(), running_.end(), true);
  }

 private:
  // Maps rows to the running sequences and chooses a graph that holds them for
  // `steps` more steps. No launched work may be under way. It may be called
  // again after a failure.
  CudaOutcome MapRows(int64_t steps);
  // Captures the bucket's graph while no row belongs to a sequence, so that the
  // capture's own step changes no sequence. Of several ranks all have the graph
  // then, or none.
  CudaOutcome Capture(const DecodeBucket& bucket);
  // Returns the tokens of the longest running sequence when each has `steps`
  // more steps after the launched ones.
  int64_t LongestAfter(int64_t steps) const;
  // Returns the tokens of a slot at that time.
  int64_t TokensAfter(int64_t slot, int64_t steps) const;
  CudaOutcome UploadRows(const std::vector<int32_t>& row_slots);
  // Returns whether every sequence has pages for `steps` steps after the
  // launched ones.
  bool HavePages(int64_t steps) const;
  // Takes over a snapshot's new tokens and which sequences have ended.
  void Read(const CudaDecoderSnapshot& snapshot);
  // Waits for the oldest launch and reads it.
  CudaOutcome ReadOldest();
  // Waits for all launches and reads them.
  CudaOutcome Drain();

  const CudaDecoderSpec spec_;
  const CudaDecoderMemory memory_;
  CudaDecodeStep step_;
  cudaStream_t stream_ = nullptr;
  CudaStepGraphs graphs_;
  CudaBursts bursts_;
  CudaPageCopies copies_;
  DecodeBucket bucket_;  // of the graph that runs
  // True if the device has row_slots_ and graphs_ has bucket_. Only Launch maps
  // rows, so a graph that finds no memory does not undo a first token.
  bool mapped_ = false;
  // Graphs that found no memory, remembered as long as sequences run: another
  // attempt takes some milliseconds.
  std::set<DecodeBucket> without_memory_;
  std::vector<int32_t> row_slots_;
  std::vector<bool> running_;
  std::vector<int64_t> prompt_tokens_;     // by slot
  std::vector<int64_t> max_tokens_;        // prompt and answer, by slot
  std::vector<int64_t> num_pages_;         // by slot
  std::vector<int32_t> seen_;              // tokens read, by slot
  std::vector<int32_t> last_token_;        // the last of them, by slot
  std::vector<CudaDecodedToken> drained_;  // read, not yet returned
};

CudaDecoder::~CudaDecoder() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

CudaOutcome CudaDecoder::Prepare() {
  CudaOutcome outcome;
  // The stream is blocking: LibTorch's default stream and this stream wait for
  // each other, so a prompt's keys are written before a step reads them.
  outcome.Cuda("cudaStreamCreate", cudaStreamCreate(&stream_));
  if (outcome.ok()) outcome = bursts_.Prepare();
  if (outcome.ok()) outcome = copies_.Prepare();
  if (outcome.ok()) {
    outcome.Cuda("clear",
                 cudaMemsetAsync(memory_.base, 0, memory_.bytes, stream_));
  }
  // The step of a capture would wait for a rank that does not come to it.
  outcome.Agree(spec_.agree);
  if (!outcome.ok()) return outcome;
  // Captures the largest graph for short contexts: if the device has no memory
  // for it, that shows before there is work.
  outcome = Capture(BucketFor(spec_, spec_.max_rows, 0));
  // Also after a failure, since destroying the decoder would wait for other
  // ranks without a time limit.
  const CudaOutcome waited = bursts_.WaitForAll("prepare", stream_);
  return outcome.ok() || waited.ranks_are_lost() ? waited : outcome;
}

void CudaDecoder::Read(const CudaDecoderSnapshot& snapshot) {
  for (int64_t slot = 0; slot < spec_.slots; ++slot) {
    if (!running_[slot]) continue;
    for (; seen_[slot] < snapshot.sequences[slot].num_sampled; ++seen_[slot]) {
      drained_.push_back(
          {static_cast<int32_t>(slot),
           snapshot.sampled[slot * kSampledRing + seen_[slot] % kSampledRing]});
      last_token_[slot] = drained_.back().sampled.token;
    }
  }
  for (int64_t row = 0; row < bucket_.rows; ++row) {
    if (row_slots_[row] >= 0 && snapshot.slot_of_row[row] < 0) {
      running_[row_slots_[row]] = false;
      row_slots_[row] = -1;
    }
  }
}

CudaOutcome CudaDecoder::ReadOldest() {
  CudaDecoderSnapshot snapshot;
  CudaOutcome outcome = bursts_.TakeOldest(&snapshot);
  if (outcome.ok()) Read(snapshot);
  return outcome;
}

CudaOutcome CudaDecoder::Drain() {
  CudaOutcome outcome;
  while (outcome.ok() && bursts_.size() > 0) outcome = ReadOldest();
  return outcome;
}

int64_t CudaDecoder::TokensAfter(int64_t slot, int64_t steps) const {
  return std::min(prompt_tokens_[slot] + seen_[slot] + bursts_.steps() + steps,
                  max_tokens_[slot]);
}

int64_t CudaDecoder::LongestAfter(int64_t steps) const {
  int64_t longest = 0;
  for (const int32_t slot : row_slots_) {
    if (slot >= 0) longest = std::max(longest, TokensAfter(slot, steps));
  }
  return longest;
}

CudaOutcome CudaDecoder::MapRows(int64_t steps) {
  mapped_ = false;
  std::fill(row_slots_.begin(), row_slots_.end(), -1);
  int64_t num_rows = 0;
  const int64_t first = running_.back() ? spec_.slots - 1 : 0;
  for (int64_t slot = first; slot < spec_.slots; ++slot) {
    if (!running_[slot]) continue;
    row_slots_[num_rows++] = static_cast<int32_t>(slot);
  }
  const DecodeBucket bucket = BucketFor(spec_, num_rows, LongestAfter(steps));
  std::optional<DecodeBucket> held = graphs_.Holding(bucket);
  if (held != bucket && !(held && without_memory_.contains(bucket))) {
    const CudaOutcome captured = Capture(bucket);
    // A larger graph gives the same tokens, but later.
    if (captured.ok()) {
      held = bucket;
    } else if (!held || captured.ranks_are_lost()) {
      return captured;
    } else {
      without_memory_.insert(bucket);
    }
  }
  bucket_ = *held;
  const CudaOutcome uploaded = UploadRows(row_slots_);
  mapped_ = uploaded.ok();
  return uploaded;
}

CudaOutcome CudaDecoder::Capture(const DecodeBucket& bucket) {
  const CudaOutcome unmapped =
      UploadRows(std::vector<int32_t>(row_slots_.size(), -1));
  if (!unmapped.ok()) return unmapped;
  CudaOutcome outcome = graphs_.Capture(bucket, stream_);
  const bool has_graph = outcome.ok();
  outcome.Agree(spec_.agree);
  if (has_graph && !outcome.ok()) graphs_.Drop(bucket);
  return outcome;
}

CudaOutcome CudaDecoder::UploadRows(const std::vector<int32_t>& row_slots) {
  CudaOutcome outcome;
  // The source is pageable memory, which the call has read when it returns.
  outcome.Cuda("map rows",
               cudaMemcpyAsync(memory_.slot_of_row,
                               row_slots.data(),
                               sizeof(int32_t) * row_slots.size(),
                               cudaMemcpyHostToDevice,
                               stream_));
  return outcome;
}

CudaOutcome CudaDecoder::Start(std::span<const CudaPrompt> prompts,
                               const float* logits) {
  CudaOutcome outcome = Drain();
  if (!outcome.ok()) return outcome;
  if (static_cast<int64_t>(prompts.size()) > spec_.max_rows) {
    outcome.Text("[cuda_decoder] more prompts than rows");
    return outcome;
  }
  const auto set = [&](void* to, const void* from, size_t bytes) {
    outcome.Cuda(
        "start",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  };
  mapped_ = false;
  std::fill(row_slots_.begin(), row_slots_.end(), -1);
  for (size_t row = 0; row < prompts.size(); ++row) {
    const CudaPrompt& prompt = prompts[row];
    const int64_t slot = prompt.slot;
    // The sampler increments the position when it samples a token.
    const auto position = static_cast<int32_t>(prompt.num_tokens - 1);
    set(memory_.sequences + slot, &prompt.sequence, sizeof(prompt.sequence));
    set(memory_.positions + slot, &position, sizeof(position));
    if (!outcome.ok()) return outcome;
    outcome = Extend(slot, prompt.pages);
    if (!outcome.ok()) return outcome;
    row_slots_[row] = static_cast<int32_t>(slot);
    seen_[slot] = 0;
    prompt_tokens_[slot] = prompt.num_tokens;
    max_tokens_[slot] = prompt.num_tokens + prompt.sequence.max_new_tokens;
  }
  bucket_.rows = static_cast<int64_t>(prompts.size());
  outcome = UploadRows(row_slots_);
  if (!outcome.ok()) return outcome;
  outcome = step_.Sample(bucket_.rows, logits, stream_);
  if (!outcome.ok()) return outcome;
  CudaDecoderSnapshot snapshot;
  outcome = bursts_.ReadNow("start", stream_, &snapshot);
  if (!outcome.ok()) return outcome;
  // From here on nothing fails, so a prompt either runs or was never started.
  for (const CudaPrompt& prompt : prompts) running_[prompt.slot] = true;
  Read(snapshot);
  return outcome;
}

// Steps that are already launched read none of the new pages.
CudaOutcome CudaDecoder::Extend(int64_t slot, const CudaSlotPages& pages) {
  CudaOutcome outcome;
  // The source is pageable memory, which the call has read when it returns.
  outcome.Cuda("pages",
               cudaMemcpyAsync(
                   memory_.pages + slot * memory_.pages_per_slot + pages.first,
                   pages.pages,
                   sizeof(void*) * static_cast<size_t>(pages.num_pages),
                   cudaMemcpyHostToDevice,
                   stream_));
  num_pages_[slot] = pages.first + pages.num_pages;
  return outcome;
}

bool CudaDecoder::HavePages(int64_t steps) const {
  for (int64_t row = 0; row < bucket_.rows; ++row) {
    const int32_t slot = row_slots_[row];
    if (slot < 0) continue;
    // The last token's keys and values are not computed yet.
    if (NumPages(TokensAfter(slot, steps) - 1) > num_pages_[slot]) return false;
  }
  return true;
}

CudaOutcome CudaDecoder::Stop(int64_t slot) {
  CudaOutcome outcome = Drain();
  if (!outcome.ok()) return outcome;
  std::erase_if(drained_, [slot](const CudaDecodedToken& token) {
    return token.slot == slot;
  });
  running_[slot] = false;
  mapped_ = false;
  if (num_running() == 0) without_memory_.clear();
  return outcome;
}

CudaOutcome CudaDecoder::Pause(int64_t slot,
                               CudaPaused* paused,
                               CudaDecodedToken* tokens,
                               int64_t* num_tokens) {
  CudaOutcome outcome = Drain();
  if (!outcome.ok()) return outcome;
  *paused = {.num_sampled = seen_[slot],
             .last_token = last_token_[slot],
             .has_ended = !running_[slot]};
  const auto end = std::ranges::copy_if(
      drained_, tokens, [slot](const CudaDecodedToken& token) {
        return token.slot == slot;
      });
  *num_tokens = end.out - tokens;
  return Stop(slot);
}

CudaOutcome CudaDecoder::Continue(const CudaContinued& continued) {
  // A snapshot of an earlier launch would be read as this sequence's.
  CudaOutcome outcome = Drain();
  if (!outcome.ok()) return outcome;
  const int64_t slot = continued.slot;
  const int32_t num_sampled = continued.sequence.num_sampled;
  const auto position =
      static_cast<int32_t>(continued.num_tokens - 1) + num_sampled;
  const auto set = [&](auto* array, const auto& value) {
    // The source is pageable memory, which the call has read when it returns.
    outcome.Cuda("continue",
                 cudaMemcpyAsync(array + slot,
                                 &value,
                                 sizeof(value),
                                 cudaMemcpyHostToDevice,
                                 stream_));
  };
  set(memory_.sequences, continued.sequence);
  set(memory_.positions, position);
  set(memory_.tokens, continued.last_token);
  if (!outcome.ok()) return outcome;
  outcome = Extend(slot, continued.pages);
  if (!outcome.ok()) return outcome;
  seen_[slot] = num_sampled;
  last_token_[slot] = continued.last_token;
  prompt_tokens_[slot] = continued.num_tokens;
  max_tokens_[slot] = continued.num_tokens + continued.sequence.max_new_tokens;
  running_[slot] = true;
  mapped_ = false;
  return outcome;
}

CudaOutcome CudaDecoder::Launch(int64_t steps) {
  CudaOutcome outcome;
  if (bursts_.is_full() || steps > kMaxBurst) {
    outcome.Text("[cuda_decoder] too many launches or steps at a time");
    return outcome;
  }
  if (!mapped_ || LongestAfter(steps) > bucket_.max_tokens) {
    // The sequences have changed, or the graph is too short. Launched steps may
    // end sequences, and the rows must reflect that, so they are read first. A
    // longer graph is needed once each time the longest sequence doubles.
    outcome = Drain();
    if (outcome.ok()) outcome = MapRows(steps);
    if (!outcome.ok()) return outcome;
  }
  if (!HavePages(steps)) {
    outcome.Text("[cuda_decoder] a sequence would outgrow its pages");
    return outcome;
  }
  int64_t launched = 0;
  while (outcome.ok() && launched < steps) {
    outcome = graphs_.Launch(bucket_, stream_);
    if (outcome.ok()) ++launched;
  }
  if (launched == 0) return outcome;
  // The steps before a failed one count too, because Stop has to wait for them.
  const CudaOutcome added = bursts_.Add(launched, stream_);
  return outcome.ok() ? added : outcome;
}

CudaOutcome CudaDecoder::Collect(CudaDecodedToken* tokens,
                                 int64_t* num_tokens) {
  CudaOutcome outcome;
  if (bursts_.size() > 0) outcome = ReadOldest();
  if (!outcome.ok()) return outcome;
  *num_tokens = static_cast<int64_t>(drained_.size());
  std::copy(drained_.begin(), drained_.end(), tokens);
  drained_.clear();
  return outcome;
}

CudaDecoder& DecoderAt(void* decoder) {
  return *static_cast<CudaDecoder*>(decoder);
}

}  // namespace

extern "C" int64_t DapdCudaDecoderWorkspace(const CudaDecoderSpec* spec) {
  return static_cast<int64_t>(CudaDecoderMemory(*spec, nullptr).bytes);
}

extern "C" int DapdCudaDecoderCreate(const CudaDecoderSpec* spec,
                                     void* workspace,
                                     void** decoder,
                                     char* error) {
  auto* made = new CudaDecoder(*spec, workspace);
  *decoder = made;
  return made->Prepare().Give(error);
}

extern "C" void DapdCudaDecoderDestroy(void* decoder) {
  delete static_cast<CudaDecoder*>(decoder);
}

extern "C" void DapdCudaDecoderDropGraphs(void* decoder) {
  DecoderAt(decoder).DropGraphs();
}

extern "C" int DapdCudaDecoderStart(void* decoder,
                                    const CudaPrompt* prompts,
                                    int64_t num_prompts,
                                    const float* logits,
                                    char* error) {
  return DecoderAt(decoder)
      .Start({prompts, static_cast<size_t>(num_prompts)}, logits)
      .Give(error);
}

extern "C" int DapdCudaDecoderExtend(void* decoder,
                                     int64_t slot,
                                     const CudaSlotPages* pages,
                                     char* error) {
  return DecoderAt(decoder).Extend(slot, *pages).Give(error);
}

extern "C" int DapdCudaDecoderStop(void* decoder, int64_t slot, char* error) {
  return DecoderAt(decoder).Stop(slot).Give(error);
}

extern "C" int DapdCudaDecoderPause(void* decoder,
                                    int64_t slot,
                                    CudaPaused* paused,
                                    CudaDecodedToken* tokens,
                                    int64_t* num_tokens,
                                    char* error) {
  return DecoderAt(decoder).Pause(slot, paused, tokens, num_tokens).Give(error);
}

extern "C" int DapdCudaDecoderContinue(void* decoder,
                                       const CudaContinued* sequence,
                                       char* error) {
  return DecoderAt(decoder).Continue(*sequence).Give(error);
}

extern "C" int DapdCudaDecoderCopyPages(void* decoder,
                                        void* const* to,
                                        void* const* from,
                                        int64_t num_pages,
                                        int64_t page_bytes,
                                        char* error) {
  const auto count = static_cast<size_t>(num_pages);
  return DecoderAt(decoder)
      .CopyPages({to, count}, {from, count}, static_cast<size_t>(page_bytes))
      .Give(error);
}

extern "C" int DapdCudaDecoderLaunch(void* decoder,
                                     int64_t steps,
                                     char* error) {
  return DecoderAt(decoder).Launch(steps).Give(error);
}

extern "C" int DapdCudaDecoderCollect(void* decoder,
                                      CudaDecodedToken* tokens,
                                      int64_t* num_tokens,
                                      char* error) {
  return DecoderAt(decoder).Collect(tokens, num_tokens).Give(error);
}

extern "C" int64_t DapdCudaDecoderLaunched(const void* decoder) {
  return static_cast<const CudaDecoder*>(decoder)->launched();
}

extern "C" int64_t DapdCudaDecoderRunning(const void* decoder) {
  return static_cast<const CudaDecoder*>(decoder)->num_running();
}

}  // namespace dapd
