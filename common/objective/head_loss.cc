#include "common/objective/head_loss.h"

#include <algorithm>

namespace dapd {
namespace {

// log softmax(logits / T) in float32.
at::Tensor TemperedLogprobs(const at::Tensor& logits, double temperature) {
  return at::log_softmax(logits.to(at::kFloat).div(temperature), -1);
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
          : at::linear(teacher.hidden.narrow(0, begin, count), head);
  return ClippedForwardKl(student_logprobs,
                          TemperedLogprobs(logits, temperature),
                          term.clip,
                          term.token_weight,
                          grad);
}

}  // namespace

HeadLoss ComputeHeadLoss(const at::Tensor& head,
                         const at::Tensor& student_hidden,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient) {
  at::NoGradGuard no_grad;
  HeadLoss loss;
  loss.sums.resize(terms.size());
  const int64_t tokens = student_hidden.size(0);
  if (with_gradient) loss.grad_hidden = at::empty_like(student_hidden);
  for (int64_t begin = 0; begin < tokens; begin += options.chunk_tokens) {
    const int64_t count = std::min(options.chunk_tokens, tokens - begin);
    const at::Tensor logprobs = TemperedLogprobs(
        at::linear(student_hidden.narrow(0, begin, count), head),
        options.temperature);
    const at::Tensor grad =
        with_gradient ? at::zeros_like(logprobs) : at::Tensor();
    for (size_t i = 0; i < terms.size(); ++i) {
      loss.sums[i] += TermOfChunk(
          head, logprobs, terms[i], begin, options.temperature, grad);
    }
    if (with_gradient) {
      const at::Tensor grad_logits =
          grad.div(options.temperature).to(head.scalar_type());
      loss.grad_hidden.narrow(0, begin, count)
          .copy_(at::matmul(grad_logits, head));
    }
  }
  return loss;
}

}  // namespace dapd
