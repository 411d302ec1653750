#include <algorithm>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/overloaded.h"
#include "common/kernels/derived_source.h"
#include "common/model/fast/matrix_product.h"
#include "common/model/reference/decoder.h"
#include "common/objective/common_vocabulary.h"
#include "common/objective/divergence_by_tensors.h"
#include "common/objective/head_loss.h"
#include "common/objective/head_workspace.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// Returns log softmax(logits / T) in float32.
at::Tensor TemperedLogprobs(const at::Tensor& logits, double temperature) {
  return at::log_softmax(logits.to(at::kFloat).div(temperature), -1);
}

// Returns the gradient of the logits before the cap from the gradient of the
// capped logits: the derivative of c tanh(z / c) is 1 - tanh(z / c)^2.
at::Tensor UncappedGradient(const LmHead& head,
                            const at::Tensor& capped,
                            const at::Tensor& grad) {
  if (head.softcap <= 0.0) return grad;
  return grad * (1.0 - (capped / head.softcap).square());
}

at::Tensor LogitsOf(const at::Tensor& hidden,
                    const LmHead& head,
                    bool is_rounded) {
  at::Tensor logits;
  if (head.weight.scalar_type() != at::kBFloat16) {
    logits = at::linear(hidden, head.weight);
  } else {
    logits = at::empty({hidden.size(0), head.weight.size(0)},
                       hidden.options().dtype(at::kFloat));
    ComputeLogits(hidden, head.weight, logits);
    if (is_rounded) logits.copy_(logits.to(at::kBFloat16));
  }
  CapLogits(head.softcap, logits);
  return logits;
}

// Tokens of a call that are computed together.
struct Tokens {
  const LmHead& head;  // of the call, cut to V_c rows
  double temperature;
  int64_t begin;
  int64_t count;
  bool bfloat16_logits = false;  // HeadLossOptions

  at::Tensor Of(const at::Tensor& all) const {
    return all.defined() ? all.narrow(0, begin, count) : all;
  }

  int64_t vocabulary() const { return head.weight.size(0); }

  // Returns the head of a teacher, cut to V_c rows.
  LmHead HeadOf(const TeacherScores& scores) const {
    return FirstRows(HeadOfScores(head, scores), vocabulary());
  }

  // Returns the logits of this head or of a teacher's.
  at::Tensor LogitsBy(const LmHead& by, const at::Tensor& hidden) const {
    return LogitsOf(
        hidden,
        by,
        bfloat16_logits && head.weight.scalar_type() == at::kBFloat16);
  }

  // Returns the logits that a teacher sent, cut to V_c columns.
  at::Tensor GivenLogits(const TeacherScores& scores) const {
    return Of(scores.logits).narrow(1, 0, vocabulary());
  }

  at::Tensor Logprobs(const TeacherScores& scores) const {
    return TemperedLogprobs(scores.logits.defined()
                                ? GivenLogits(scores)
                                : LogitsBy(HeadOf(scores), Of(scores.hidden)),
                            temperature);
  }

  // Returns these log-probabilities in the memory of `workspace`, valid until
  // its next use.
  at::Tensor LogprobsIn(const TeacherScores& scores,
                        HeadWorkspace& workspace) const {
    const at::Tensor memory =
        workspace.Take(2 * count, vocabulary(), head.weight.device());
    at::Tensor logits = memory.narrow(0, 0, count);
    at::Tensor logprobs = memory.narrow(0, count, count);
    if (scores.logits.defined()) {
      logits.copy_(GivenLogits(scores));
    } else {
      const LmHead of_teacher = HeadOf(scores);
      ComputeLogits(Of(scores.hidden), of_teacher.weight, logits);
      CapLogits(of_teacher.softcap, logits);
    }
    return at::log_softmax_out(logprobs, logits.div_(temperature), -1);
  }
};

at::Tensor MixtureOf(const Tokens& tokens,
                     const HeadTerm& term,
                     const Mixture& mixture) {
  at::Tensor delta;
  for (size_t i = 0; i < mixture.delta.size(); ++i) {
    const at::Tensor part =
        tokens.Logprobs(*term.passes[i + 1]) * mixture.delta[i].factor;
    delta = delta.defined() ? delta + part : part;
  }
  if (mixture.recentre) delta = delta - delta.mean(-1, /*keepdim=*/true);
  if (mixture.soft_clip < kNoClip) {
    delta = mixture.soft_clip * at::tanh(delta / mixture.soft_clip);
  }
  return at::log_softmax(
      tokens.Logprobs(*term.passes[0]) + mixture.strength * delta, -1);
}

TargetLogprobs PassTarget(const Tokens& tokens, const TeacherScores& scores) {
  if (scores.top_ids.defined()) {
    return {tokens.Of(scores.top_logprobs), tokens.Of(scores.top_ids)};
  }
  return {tokens.Logprobs(scores), {}};
}

TargetLogprobs RoutedTarget(const Tokens& tokens, const HeadTerm& term) {
  const at::Tensor second = tokens.Of(term.route).to(at::kBool).unsqueeze(1);
  return {at::where(second,
                    tokens.Logprobs(*term.passes[1]),
                    tokens.Logprobs(*term.passes[0])),
          {}};
}

TargetLogprobs OneHotTarget(const Tokens& tokens, const HeadTerm& term) {
  at::Tensor logprobs =
      at::full({tokens.count, tokens.vocabulary()},
               kOneHotRest,
               tokens.head.weight.options().dtype(at::kFloat));
  logprobs.scatter_(1, tokens.Of(term.ids).unsqueeze(1), 0.0);
  return {logprobs, {}};
}

TargetLogprobs TargetOf(const Tokens& tokens, const HeadTerm& term) {
  return std::visit(
      Overloaded{[&](const TeacherPass&) {
                   return PassTarget(tokens, *term.passes[0]);
                 },
                 [&](const Mixture& mixture) {
                   return TargetLogprobs{MixtureOf(tokens, term, mixture), {}};
                 },
                 [&](const Routed&) { return RoutedTarget(tokens, term); },
                 [&](const OneHot&) { return OneHotTarget(tokens, term); }},
      *term.target);
}

// Sums of a term over some tokens, which the host has not read yet.
struct TermSums {
  size_t term = 0;
  at::Tensor sums;  // from DivergenceOnDevice; undefined: no token
  int64_t tokens = 0;
};

TermSums TermOfTokens(const Tokens& tokens,
                      const at::Tensor& student_logprobs,
                      std::span<const HeadTerm> terms,
                      size_t k,
                      const at::Tensor& grad) {
  const HeadTerm& term = terms[k];
  // Tokens that are left out take no part.
  const int64_t skipped =
      std::clamp<int64_t>(term.skip_tokens - tokens.begin, 0, tokens.count);
  if (skipped == tokens.count) return {.term = k};
  const int64_t count = tokens.count - skipped;
  const Tokens rest{tokens.head,
                    tokens.temperature,
                    tokens.begin + skipped,
                    count,
                    tokens.bfloat16_logits};
  return {.term = k,
          .sums = DivergenceOnDevice(
              {.student_logprobs = student_logprobs.narrow(0, skipped, count),
               .target = TargetOf(rest, term),
               .divergence = term.divergence,
               .support = term.support,
               .token_weights = rest.Of(term.token_weights)},
              term.token_weight,
              grad.defined() ? grad.narrow(0, skipped, count) : grad),
          .tokens = count};
}

// Reads all sums of the device with one wait.
void ReadSums(const std::vector<TermSums>& parts, HeadLoss* loss) {
  std::vector<at::Tensor> read = loss->token_logprobs;
  for (const TermSums& part : parts) read.push_back(part.sums);
  read = ToHost(std::move(read));
  const size_t students = loss->token_logprobs.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& sums = read[students + i];
    if (!sums.defined()) continue;
    loss->sums[parts[i].term] += SumsOf(sums, parts[i].tokens);
  }
  read.resize(students);
  loss->token_logprobs = std::move(read);
}

}  // namespace

HeadLoss ComputeHeadLossByTensors(const LmHead& whole_head,
                                  std::span<const HeadStudent> students,
                                  std::span<const HeadTerm> terms,
                                  const HeadLossOptions& options,
                                  bool with_gradient) {
  at::NoGradGuard no_grad;
  const LmHead head = FirstRows(
      whole_head, CommonVocabulary(whole_head, terms, options.vocabulary));
  HeadLoss loss;
  loss.sums.resize(terms.size());
  // Counts a student's and a target's logits and the tensors that their
  // divergence needs.
  constexpr int64_t kTensors = 10;
  constexpr int64_t kChunkBytes = int64_t{336} << 20;
  const int64_t row_bytes = kTensors * head.weight.size(0) * 4;
  const int64_t bytes =
      options.chunk_bytes > 0 ? options.chunk_bytes : kChunkBytes;
  const int64_t chunk = std::max<int64_t>(1, bytes / row_bytes);
  std::vector<TermSums> sums;
  for (size_t s = 0; s < students.size(); ++s) {
    const HeadStudent& student = students[s];
    const int64_t num_tokens = student.hidden.size(0);
    if (with_gradient) {
      loss.grad_hidden.push_back(student.MakeGradient());
    }
    loss.token_logprobs.push_back(
        student.ids.defined()
            ? TokenLogprobsOf(
                  head, {.hidden = student.hidden}, student.ids, 1.0)
            : at::Tensor());
    for (int64_t begin = 0; begin < num_tokens; begin += chunk) {
      const Tokens tokens{head,
                          options.temperature,
                          begin,
                          std::min(chunk, num_tokens - begin),
                          options.bfloat16_logits};
      const at::Tensor logits =
          tokens.LogitsBy(head, tokens.Of(student.hidden));
      const at::Tensor logprobs = TemperedLogprobs(logits, options.temperature);
      const at::Tensor grad =
          with_gradient ? at::zeros_like(logprobs) : at::Tensor();
      for (size_t k = 0; k < terms.size(); ++k) {
        if (terms[k].student != s) continue;
        sums.push_back(TermOfTokens(tokens, logprobs, terms, k, grad));
      }
      if (with_gradient) {
        const at::Tensor grad_logits =
            UncappedGradient(head, logits, grad.div(options.temperature))
                .to(head.weight.scalar_type());
        tokens.Of(loss.grad_hidden[s])
            .copy_(at::matmul(grad_logits, head.weight));
      }
    }
  }
  ReadSums(sums, &loss);
  return loss;
}

at::Tensor TokenLogprobsOf(const LmHead& call_head,
                           const TeacherScores& scores,
                           const at::Tensor& ids,
                           double temperature,
                           HeadWorkspace* workspace,
                           int64_t vocabulary) {
  at::NoGradGuard no_grad;
  const TeacherScores* const given[] = {&scores};
  const LmHead& whole_head = HeadOfScores(call_head, scores);
  const LmHead head =
      FirstRows(whole_head, CommonVocabulary(whole_head, given, vocabulary));
  if (scores.top_ids.defined()) {
    const at::Tensor is_it = scores.top_ids == ids.unsqueeze(1);
    TORCH_CHECK(is_it.any(-1).all().item<bool>(),
                "[head_loss] a scored token is not among the teacher's top_k");
    return scores.top_logprobs.masked_select(is_it);
  }
  constexpr int64_t kChunkTokens = 128;
  HeadWorkspace own;
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < ids.size(0); begin += kChunkTokens) {
    const Tokens tokens{
        head, temperature, begin, std::min(kChunkTokens, ids.size(0) - begin)};
    const at::Tensor logprobs =
        head.weight.is_cpu()
            ? tokens.Logprobs(scores)
            : tokens.LogprobsIn(scores,
                                workspace != nullptr ? *workspace : own);
    parts.push_back(logprobs.gather(1, tokens.Of(ids).unsqueeze(1)).squeeze(1));
  }
  return at::cat(parts);
}

}  // namespace dapd
