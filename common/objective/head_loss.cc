#include "common/objective/head_loss.h"

#include <algorithm>

#include "common/objective/head_products.h"
#include "common/objective/token_passes.h"

namespace dapd {
namespace {

// What gives a token its logits: a student, or a teacher of any number of
// terms.
struct Source {
  at::Tensor hidden;  // [n, hidden], or
  at::Tensor logits;  // [n, V] float32 as a teacher sent them
};

bool IsSame(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.is_same(b);
}

// The sources of a call: students first, then each teacher once.
struct Sources {
  std::vector<Source> all;
  std::vector<KlTerm> terms;  // by index of source
  size_t num_students = 0;

  Sources(std::span<const at::Tensor> students,
          std::span<const HeadTerm> head_terms)
      : num_students(students.size()) {
    for (const at::Tensor& student : students) all.push_back({student, {}});
    for (const HeadTerm& term : head_terms) {
      terms.push_back({.student = static_cast<int>(term.student),
                       .teacher = static_cast<int>(Find(*term.teacher)),
                       .clip = static_cast<float>(term.clip),
                       .weight = static_cast<float>(term.token_weight)});
    }
  }

  // Those whose logits are computed here.
  int64_t CountHidden() const {
    return std::count_if(all.begin(), all.end(), [](const Source& source) {
      return source.hidden.defined();
    });
  }

 private:
  size_t Find(const TeacherScores& teacher) {
    for (size_t i = num_students; i < all.size(); ++i) {
      if (IsSame(all[i].hidden, teacher.hidden) ||
          IsSame(all[i].logits, teacher.logits)) {
        return i;
      }
    }
    if (teacher.logits.defined()) {
      all.push_back({{}, teacher.logits.to(at::kFloat).contiguous()});
    } else {
      all.push_back({teacher.hidden, {}});
    }
    return all.size() - 1;
  }
};

// What all chunks of a call share.
struct Call {
  const at::Tensor& head;
  const Sources& sources;
  float scale;  // 1 / temperature
  bool with_gradient;
  at::Tensor sums;  // KlSums [tokens, terms] on the head's device

  KlSums* SumsAt(int64_t token) const {
    return reinterpret_cast<KlSums*>(sums.mutable_data_ptr()) +
           token * static_cast<int64_t>(sources.terms.size());
  }

  // What the students' gradients are written as. A CPU's product with the head
  // rounds where it has to.
  at::ScalarType GradientType() const {
    return head.is_cpu() ? at::kFloat : head.scalar_type();
  }
};

// A chunk of `tokens` tokens from `begin` on, with the students' logits in the
// first rows of `logits` [sources with hidden states * tokens, V].
struct Chunk {
  int64_t begin;
  int64_t tokens;
  at::Tensor logits;
};

void FillLogits(const Call& call, const Chunk& chunk) {
  std::vector<at::Tensor> stacked;
  for (const Source& source : call.sources.all) {
    if (!source.hidden.defined()) continue;
    stacked.push_back(source.hidden.narrow(0, chunk.begin, chunk.tokens));
  }
  ComputeLogits(at::cat(stacked), call.head, chunk.logits);
}

// Fills the chunk's part of the sums; the students' logits become their
// gradient if asked for.
void RunTokens(const Call& call, const Chunk& chunk) {
  const int64_t vocabulary = chunk.logits.size(1);
  float* next = chunk.logits.mutable_data_ptr<float>();
  std::vector<KlSource> rows;
  for (size_t s = 0; s < call.sources.all.size(); ++s) {
    const Source& source = call.sources.all[s];
    if (source.hidden.defined()) {
      rows.push_back({next, vocabulary, s < call.sources.num_students});
      next += chunk.tokens * vocabulary;
    } else {
      // Only students' logits are written.
      auto* given = const_cast<float*>(source.logits.const_data_ptr<float>());
      rows.push_back({given + chunk.begin * vocabulary, vocabulary, false});
    }
  }
  RunTokenPasses(call.head.device(),
                 {.sources = rows,
                  .terms = call.sources.terms,
                  .vocabulary = vocabulary,
                  .scale = call.scale,
                  .with_gradient = call.with_gradient},
                 chunk.tokens,
                 call.GradientType(),
                 call.SumsAt(chunk.begin));
}

void WriteGradients(const Call& call,
                    const Chunk& chunk,
                    std::vector<at::Tensor>& grad_hidden) {
  const auto num_students = static_cast<int64_t>(grad_hidden.size());
  const at::Tensor rows = chunk.logits.narrow(0, 0, num_students * chunk.tokens)
                              .view(call.GradientType())
                              .narrow(1, 0, chunk.logits.size(1));
  const at::Tensor grads = GradientOfHidden(rows, call.head);
  for (int64_t s = 0; s < num_students; ++s) {
    grad_hidden[s]
        .narrow(0, chunk.begin, chunk.tokens)
        .copy_(grads.narrow(0, s * chunk.tokens, chunk.tokens));
  }
}

// Sums over the tokens in their order, whichever thread they ran on.
std::vector<DivergenceSums> AddUp(const at::Tensor& sums, size_t num_terms) {
  const at::Tensor host = sums.cpu();
  const auto* of_token = reinterpret_cast<const KlSums*>(host.const_data_ptr());
  const size_t count = host.nbytes() / sizeof(KlSums);
  std::vector<DivergenceSums> total(num_terms);
  for (size_t i = 0; i < count; ++i) {
    total[i % num_terms] += {.clipped = of_token[i].clipped,
                             .unclipped = of_token[i].unclipped,
                             .clipped_tokens = of_token[i].any_clipped ? 1 : 0,
                             .tokens = 1};
  }
  return total;
}

bool HasFastPath(const at::Tensor& head,
                 const Sources& sources,
                 std::span<const HeadTerm> terms) {
  const bool known_dtype =
      head.scalar_type() == at::kFloat || head.scalar_type() == at::kBFloat16;
  return known_dtype && head.stride(1) == 1 &&
         HasTokenPasses(
             head.device(), sources.all.size(), sources.terms.size()) &&
         std::none_of(terms.begin(), terms.end(), [](const HeadTerm& term) {
           return term.teacher->top_ids.defined();
         });
}

// A GPU needs more rows than a CPU to be busy.
int64_t ChunkBytes(const HeadLossOptions& options, at::Device device) {
  if (options.chunk_bytes > 0) return options.chunk_bytes;
  return int64_t{device.is_cpu() ? 336 : 896} << 20;
}

// Tokens of each chunk: as many as the memory allows, in chunks of about the
// same size.
int64_t ChunkTokens(int64_t tokens, int64_t row_bytes, int64_t chunk_bytes) {
  const int64_t most = std::max<int64_t>(1, chunk_bytes / row_bytes);
  const int64_t chunks = (tokens + most - 1) / most;
  return (tokens + chunks - 1) / chunks;
}

}  // namespace

HeadLoss ComputeHeadLoss(const at::Tensor& head,
                         std::span<const at::Tensor> students,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient) {
  at::NoGradGuard no_grad;
  const Sources sources(students, terms);
  if (!HasFastPath(head, sources, terms)) {
    return ComputeHeadLossByTensors(
        head, students, terms, options, with_gradient);
  }
  const int64_t tokens = students[0].size(0);
  const int64_t vocabulary = head.size(0);
  const int64_t num_hidden = sources.CountHidden();
  const auto sums_bytes =
      tokens * static_cast<int64_t>(terms.size() * sizeof(KlSums));
  const Call call{head,
                  sources,
                  static_cast<float>(1.0 / options.temperature),
                  with_gradient,
                  at::empty({sums_bytes}, head.options().dtype(at::kByte))};
  HeadLoss loss;
  if (with_gradient) {
    for (const at::Tensor& student : students) {
      loss.grad_hidden.push_back(at::empty_like(student));
    }
  }
  HeadWorkspace own;
  HeadWorkspace& workspace =
      options.workspace != nullptr ? *options.workspace : own;
  const int64_t chunk_tokens = ChunkTokens(
      tokens, num_hidden * vocabulary * 4, ChunkBytes(options, head.device()));
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    const Chunk chunk{
        begin,
        count,
        workspace.Take(num_hidden * count, vocabulary, head.device())};
    FillLogits(call, chunk);
    RunTokens(call, chunk);
    if (with_gradient) WriteGradients(call, chunk, loss.grad_hidden);
  }
  loss.sums = AddUp(call.sums, terms.size());
  return loss;
}

}  // namespace dapd
