#include "common/objective/head_loss.h"

#include <algorithm>
#include <utility>

#include "common/model/fast/matrix_product.h"
#include "common/objective/chunk_tokens.h"
#include "common/objective/common_vocabulary.h"
#include "common/objective/target_sources.h"
#include "common/objective/token_passes.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// Values that all chunks of a call share.
struct Call {
  at::Tensor head;  // of the students, [V_c, hidden]
  std::span<const HeadStudent> students;
  std::span<const HeadTerm> terms;
  const TargetSources& sources;
  float scale;  // 1 / temperature
  bool with_gradient;
  int cluster_warps;
  at::Tensor sums;  // DivergenceTokenSums [tokens, terms] on the head's device
  std::vector<at::Tensor> logprobs;  // one per student

  DivergenceTokenSums* SumsAt(int64_t token) const {
    return reinterpret_cast<DivergenceTokenSums*>(sums.mutable_data_ptr()) +
           token * static_cast<int64_t>(terms.size());
  }

  // Returns the dtype in which the gradients of the students are written. On
  // the CPU the product with the head rounds them if necessary.
  at::ScalarType GradientType() const {
    return head.is_cpu() ? at::kFloat : head.scalar_type();
  }
};

// Rounds float32 logits row by row, so that it needs no memory of their size.
void RoundToBFloat16(const at::Tensor& logits) {
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const at::Tensor of_row = logits[row];
    of_row.copy_(of_row.to(at::kBFloat16));
  }
}

void FillLogits(const Call& call, const HeadChunk& chunk) {
  for (const HeadProduct& product : call.sources.ProductsOf(chunk)) {
    ComputeLogits(at::cat(product.hidden), product.head, product.logits);
    if (product.is_rounded) RoundToBFloat16(product.logits);
  }
}

// Returns the passes' arguments, which point into `rows`.
DivergenceChunk PassesOf(const Call& call, const TargetSources::Rows& rows) {
  return {.sources = rows.sources,
          .derived = rows.derived,
          .terms = rows.terms,
          .vocabulary = call.head.size(0),
          .scale = call.scale,
          .with_gradient = call.with_gradient,
          .cluster_warps = call.cluster_warps};
}

// Fills the chunk's part of the sums. If a gradient is asked for, it replaces
// the students' logits.
void RunTokens(const Call& call, const HeadChunk& chunk) {
  const TargetSources::Rows rows =
      call.sources.RowsOf(chunk, call.students, call.terms, call.logprobs);
  RunTokenPasses(call.head.device(),
                 PassesOf(call, rows),
                 chunk.tokens,
                 call.GradientType(),
                 call.SumsAt(chunk.begin));
}

// Returns how many tokens the passes of a call compute at a time.
int64_t TokensAtATime(const Call& call) {
  const TargetSources::Rows rows = call.sources.ShapeOf(call.students);
  return TokenPassesAtATime(
      call.head.device(), PassesOf(call, rows), call.GradientType());
}

void WriteGradients(const Call& call,
                    const HeadChunk& chunk,
                    std::vector<at::Tensor>& grad_hidden) {
  const auto num_students = static_cast<int64_t>(grad_hidden.size());
  // Either all students have narrow rows or none.
  const at::Tensor& logits =
      call.sources.num_narrow() > 0 ? chunk.narrow : chunk.logits;
  const at::Tensor rows = logits.narrow(0, 0, num_students * chunk.tokens)
                              .view(call.GradientType())
                              .narrow(1, 0, call.head.size(0));
  const at::Tensor grads = GradientOfHidden(rows, call.head);
  for (int64_t s = 0; s < num_students; ++s) {
    grad_hidden[s]
        .narrow(0, chunk.begin, chunk.tokens)
        .copy_(grads.narrow(0, s * chunk.tokens, chunk.tokens));
  }
}

// Adds up the tokens in their order, whichever thread they ran on.
std::vector<DivergenceSums> AddUp(const at::Tensor& host,
                                  const TargetSources& sources,
                                  size_t num_terms) {
  const auto* of_token =
      reinterpret_cast<const DivergenceTokenSums*>(host.const_data_ptr());
  const size_t count = host.nbytes() / sizeof(DivergenceTokenSums);
  std::vector<DivergenceSums> total(num_terms);
  for (size_t i = 0; i < count; ++i) {
    const size_t term = i % num_terms;
    const auto token = static_cast<int64_t>(i / num_terms);
    total[term] += {.clipped = of_token[i].clipped,
                    .unclipped = of_token[i].unclipped,
                    .clipped_tokens = of_token[i].any_clipped ? 1 : 0,
                    .tokens = token < sources.skip_tokens(term) ? 0 : 1};
  }
  return total;
}

bool HasFastPath(const LmHead& head,
                 const TargetSources& sources,
                 std::span<const HeadTerm> terms) {
  const auto is_plain = [](const at::Tensor& weight) {
    return (weight.scalar_type() == at::kFloat ||
            weight.scalar_type() == at::kBFloat16) &&
           weight.stride(1) == 1;
  };
  const auto is_capped_or_cut = [](const TeacherScores* scores) {
    return scores != nullptr &&
           (scores->top_ids.defined() ||
            (scores->hidden.defined() && scores->head != nullptr &&
             scores->head->softcap > 0.0));
  };
  return head.softcap <= 0.0 &&
         std::ranges::all_of(sources.heads(), is_plain) &&
         HasTokenPasses(head.weight.device(),
                        {.sources = sources.size(),
                         .derived = sources.num_derived(),
                         .terms = terms.size(),
                         .support = sources.support_size()}) &&
         std::ranges::none_of(terms, [&](const HeadTerm& term) {
           return std::ranges::any_of(term.passes, is_capped_or_cut);
         });
}

// Returns how many tokens a call computes at a time. A GPU needs more rows than
// a CPU to be busy.
int64_t ChunkTokensOf(const Call& call,
                      int64_t tokens,
                      const HeadLossOptions& options) {
  constexpr int64_t kHostBytes = int64_t{336} << 20;
  const int64_t at_a_time = TokensAtATime(call);
  const int64_t vocabulary = call.head.size(0);
  if (call.head.is_cpu() || options.chunk_bytes > 0) {
    return ChunkTokens(
        tokens,
        (2 * call.sources.num_rows() - call.sources.num_narrow()) * vocabulary *
            2,
        options.chunk_bytes > 0 ? options.chunk_bytes : kHostBytes,
        at_a_time);
  }
  const auto students = static_cast<int64_t>(call.students.size());
  const HeadLossShape shape{
      .vocabulary = vocabulary,
      .hidden = call.head.size(1),
      .number_bytes = static_cast<int64_t>(call.head.element_size()),
      .source_bytes = call.sources.hidden_bytes(),
      .rows = call.sources.num_rows(),
      .narrow_rows = call.sources.num_narrow(),
      .gradients = call.with_gradient ? students : 0,
      .supports = call.sources.support_size()};
  int64_t kept = static_cast<int64_t>(call.sums.nbytes());
  for (const at::Tensor& logprobs : call.logprobs) {
    if (logprobs.defined()) kept += static_cast<int64_t>(logprobs.nbytes());
  }
  return ChunkTokens(
      tokens, ChunkBytesOfToken(shape), GpuChunkBytes(kept), at_a_time);
}

}  // namespace

HeadLoss ComputeHeadLoss(const LmHead& lm_head,
                         std::span<const HeadStudent> students,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient) {
  at::NoGradGuard no_grad;
  const int64_t vocabulary =
      CommonVocabulary(lm_head, terms, options.vocabulary);
  const TargetSources sources(
      lm_head, students, terms, vocabulary, options.bfloat16_logits);
  const at::Tensor head = FirstRows(lm_head, vocabulary).weight;
  if (!HasFastPath(lm_head, sources, terms)) {
    // A GPU has no room for both memories.
    if (head.is_cuda() && options.workspace != nullptr) {
      *options.workspace = HeadWorkspace();
    }
    return ComputeHeadLossByTensors(
        lm_head, students, terms, options, with_gradient);
  }
  const int64_t tokens = students[0].hidden.size(0);
  const auto sums_bytes =
      tokens * static_cast<int64_t>(terms.size() * sizeof(DivergenceTokenSums));
  HeadLoss loss;
  for (const HeadStudent& student : students) {
    if (with_gradient) {
      loss.grad_hidden.push_back(student.MakeGradient());
    }
    loss.token_logprobs.push_back(
        student.ids.defined()
            ? at::empty({tokens}, student.hidden.options().dtype(at::kFloat))
            : at::Tensor());
  }
  const Call call{head,
                  students,
                  terms,
                  sources,
                  static_cast<float>(1.0 / options.temperature),
                  with_gradient,
                  options.cluster_warps,
                  at::empty({sums_bytes}, head.options().dtype(at::kByte)),
                  loss.token_logprobs};
  HeadWorkspace own;
  HeadWorkspace& workspace =
      options.workspace != nullptr ? *options.workspace : own;
  const int64_t chunk_tokens = ChunkTokensOf(call, tokens, options);
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    const HeadChunk chunk = sources.ChunkOf(begin, count, workspace);
    FillLogits(call, chunk);
    RunTokens(call, chunk);
    if (with_gradient) WriteGradients(call, chunk, loss.grad_hidden);
  }
  std::vector<at::Tensor> read = loss.token_logprobs;
  read.push_back(call.sums);
  read = ToHost(std::move(read));
  loss.sums = AddUp(read.back(), sources, terms.size());
  read.pop_back();
  loss.token_logprobs = std::move(read);
  return loss;
}

}  // namespace dapd
