#include <algorithm>

#include "common/objective/head_loss.h"
#include "common/objective/head_products.h"

namespace dapd {
namespace {

// log softmax(logits / T) in float32.
at::Tensor TemperedLogprobs(const at::Tensor& logits, double temperature) {
  return at::log_softmax(logits.to(at::kFloat).div(temperature), -1);
}

at::Tensor LogitsOf(const at::Tensor& hidden, const at::Tensor& head) {
  if (head.scalar_type() != at::kBFloat16) return at::linear(hidden, head);
  at::Tensor logits = at::empty({hidden.size(0), head.size(0)},
                                hidden.options().dtype(at::kFloat));
  ComputeLogits(hidden, head, logits);
  return logits;
}

DivergenceSums TermOfChunk(const at::Tensor& head,
                           const at::Tensor& student_logprobs,
                           const HeadTerm& term,
                           int64_t begin,
                           double temperature,
                           const at::Tensor& grad) {
  const TeacherScores& teacher = *term.teacher;
  const int64_t count = student_logprobs.size(0);
  if (teacher.top_ids.defined()) {
    return ClippedForwardKlTopK(student_logprobs,
                                teacher.top_ids.narrow(0, begin, count),
                                teacher.top_logprobs.narrow(0, begin, count),
                                term.clip,
                                term.token_weight,
                                grad);
  }
  const at::Tensor logits =
      teacher.logits.defined()
          ? teacher.logits.narrow(0, begin, count)
          : LogitsOf(teacher.hidden.narrow(0, begin, count), head);
  return ClippedForwardKl(student_logprobs,
                          TemperedLogprobs(logits, temperature),
                          term.clip,
                          term.token_weight,
                          grad);
}

}  // namespace

HeadLoss ComputeHeadLossByTensors(const at::Tensor& head,
                                  std::span<const at::Tensor> students,
                                  std::span<const HeadTerm> terms,
                                  const HeadLossOptions& options,
                                  bool with_gradient) {
  at::NoGradGuard no_grad;
  HeadLoss loss;
  loss.sums.resize(terms.size());
  // A student's and a teacher's logits with what their divergence needs.
  constexpr int64_t kTensors = 10;
  constexpr int64_t kChunkBytes = int64_t{336} << 20;
  const int64_t row_bytes = kTensors * head.size(0) * 4;
  const int64_t bytes =
      options.chunk_bytes > 0 ? options.chunk_bytes : kChunkBytes;
  const int64_t chunk = std::max<int64_t>(1, bytes / row_bytes);
  for (size_t s = 0; s < students.size(); ++s) {
    const int64_t tokens = students[s].size(0);
    if (with_gradient) loss.grad_hidden.push_back(at::empty_like(students[s]));
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t count = std::min(chunk, tokens - begin);
      const at::Tensor logprobs =
          TemperedLogprobs(LogitsOf(students[s].narrow(0, begin, count), head),
                           options.temperature);
      const at::Tensor grad =
          with_gradient ? at::zeros_like(logprobs) : at::Tensor();
      for (size_t k = 0; k < terms.size(); ++k) {
        if (terms[k].student != s) continue;
        loss.sums[k] += TermOfChunk(
            head, logprobs, terms[k], begin, options.temperature, grad);
      }
      if (with_gradient) {
        const at::Tensor grad_logits =
            grad.div(options.temperature).to(head.scalar_type());
        loss.grad_hidden[s]
            .narrow(0, begin, count)
            .copy_(at::matmul(grad_logits, head));
      }
    }
  }
  return loss;
}

}  // namespace dapd
