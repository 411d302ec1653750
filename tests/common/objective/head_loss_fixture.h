// Inputs of a head loss, and the same loss with whole tensors of doubles and
// LibTorch's autograd.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "common/objective/head_loss.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/worse.h"

namespace dapd {

class HeadLossFixture : public testing::Test {
 protected:
  // at::manual_seed would ask for a GPU before DeviceOf() prepares it.
  HeadLossFixture() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(1);
  }

  static constexpr double kTemperature = 1.1;
  static constexpr int64_t kVocabulary = 50;
  static constexpr int64_t kTokens = 11;
  static constexpr int64_t kHidden = 8;

  // Limits memory to chunks of at most `tokens` tokens with `sources` sources.
  static HeadLossOptions InChunks(int64_t tokens, int64_t sources = 5) {
    return {.temperature = kTemperature,
            .chunk_bytes = tokens * sources * kVocabulary * 4};
  }

  // Has two students, three teachers and four terms: teacher 1 serves both
  // students.
  struct Inputs {
    at::Tensor head = at::randn({kVocabulary, kHidden});
    std::vector<at::Tensor> students = {at::randn({kTokens, kHidden}),
                                        at::randn({kTokens, kHidden})};
    std::vector<TeacherScores> teachers = {
        {at::randn({kTokens, kHidden}), {}, {}, {}},
        {at::randn({kTokens, kHidden}), {}, {}, {}},
        {at::randn({kTokens, kHidden}), {}, {}, {}}};
    double softcap = 0.0;  // of `head`
    // The heads of teachers that are other models; null: `head`.
    std::vector<std::shared_ptr<const LmHead>> heads{3};
    int64_t vocabulary = 0;  // as in HeadLossOptions
    bool bfloat16_logits = false;
    at::Tensor ids;
    at::Tensor scored = at::remainder(at::arange(kTokens) * 3, kVocabulary);
    Target target = TeacherPass{};
    Divergence divergence;
    Support support;
    int64_t skip_tokens = 0;
    at::Tensor route;
    at::Tensor token_weights;

    // Makes a teacher another model with a head of this size.
    void GiveHead(size_t teacher,
                  int64_t rows,
                  int64_t width,
                  double cap = 0.0) {
      SetHead(teacher, LmHead(at::randn({rows, width}), cap));
      teachers[teacher].hidden = at::randn({kTokens, width});
    }
    void SetHead(size_t teacher, const LmHead& of_teacher) {
      heads[teacher] = std::make_shared<const LmHead>(of_teacher);
      teachers[teacher].head = heads[teacher].get();
    }

    LmHead call_head() const { return {head, softcap}; }

    // Returns V_c.
    int64_t num_common() const {
      int64_t rows = vocabulary > 0 ? vocabulary : head.size(0);
      for (const auto& each : heads) {
        if (each != nullptr) rows = std::min(rows, each->weight.size(0));
      }
      return rows;
    }

    // Returns the logits over V_c tokens.
    at::Tensor LogitsOf(const at::Tensor& hidden, const LmHead& by) const {
      at::Tensor logits =
          at::linear(hidden, by.weight).narrow(1, 0, num_common());
      if (bfloat16_logits) logits = logits.to(at::kBFloat16).to(at::kDouble);
      if (by.softcap <= 0.0) return logits;
      return by.softcap * at::tanh(logits / by.softcap);
    }

    std::vector<HeadTerm> terms() const {
      std::vector<HeadTerm> terms;
      const auto add =
          [&](size_t teacher, double clip, double weight, size_t s) {
            terms.push_back({.target = &target,
                             .passes = {&teachers[teacher]},
                             .divergence = divergence,
                             .support = support,
                             .student = s,
                             .token_weight = weight});
            terms.back().divergence.clip =
                divergence.clip == kNoClip ? kNoClip : clip;
            if (std::holds_alternative<TeacherPass>(target)) return;
            if (std::holds_alternative<OneHot>(target)) {
              terms.back().passes.clear();
              terms.back().ids = scored;
              return;
            }
            terms.back().passes = {&teachers[0], &teachers[1]};
            if (std::holds_alternative<Mixture>(target)) {
              terms.back().passes.push_back(&teachers[2]);
            } else {
              terms.back().route = route;
              terms.back().token_weights = token_weights;
            }
          };
      add(0, 0.05, 0.3, 0);
      add(1, 0.02, 0.1, 1);
      add(2, 0.05, 0.7, 1);
      add(1, 0.05, 0.2, 0);
      terms[3].skip_tokens = skip_tokens;
      return terms;
    }

    std::vector<HeadStudent> head_students() const {
      return {{students[0], ids}, {students[1], {}}};
    }

    HeadLoss Run(const HeadLossOptions& options,
                 bool with_gradient = true) const {
      return ComputeHeadLoss(call_head(),
                             head_students(),
                             terms(),
                             WithVocabulary(options),
                             with_gradient);
    }
    HeadLoss RunByTensors(const HeadLossOptions& options) const {
      return ComputeHeadLossByTensors(
          call_head(), head_students(), terms(), WithVocabulary(options), true);
    }
    HeadLossOptions WithVocabulary(HeadLossOptions options) const {
      options.vocabulary = vocabulary;
      options.bfloat16_logits = bfloat16_logits;
      return options;
    }

    Inputs As(at::TensorOptions options) const {
      Inputs other = *this;
      other.head = head.to(options);
      for (at::Tensor& student : other.students) student = student.to(options);
      for (TeacherScores& teacher : other.teachers) {
        teacher.hidden = teacher.hidden.to(options);
      }
      for (size_t t = 0; t < heads.size(); ++t) {
        if (heads[t] == nullptr) continue;
        other.SetHead(t, {heads[t]->weight.to(options), heads[t]->softcap});
      }
      return other;
    }
  };

  // Returns bfloat16 inputs whose logits are exact in float32 and not in
  // bfloat16, so that every way to compute them rounds them to the same
  // numbers.
  static Inputs WithRoundedLogits(Inputs in) {
    const auto small = [](const at::Tensor& numbers) {
      return (numbers * 16).round().div(16);
    };
    in = in.As(at::kFloat);
    in.head = small(in.head);
    for (at::Tensor& student : in.students) student = small(student);
    for (size_t t = 0; t < in.teachers.size(); ++t) {
      in.teachers[t].hidden = small(in.teachers[t].hidden);
      if (in.heads[t] == nullptr) continue;
      in.SetHead(t, {small(in.heads[t]->weight), in.heads[t]->softcap});
    }
    in = in.As(at::kBFloat16);
    in.bfloat16_logits = true;
    return in;
  }

  // Returns inputs whose teachers are three models: teacher 1 has a larger
  // vocabulary than the students, teacher 2 a smaller one, which is that of the
  // loss even if a target does not use teacher 2.
  static Inputs WithThreeModels() {
    Inputs in;
    in.GiveHead(1, kVocabulary * 3 / 2, 12);
    in.GiveHead(2, 40, 5);
    in.vocabulary = 40;
    return in;
  }

  // Computes the same loss with whole tensors of doubles and LibTorch's
  // autograd.
  struct Slow {
    std::vector<double> values;  // by term
    std::vector<at::Tensor> gradients;

    explicit Slow(const Inputs& in) {
      const Inputs wide = in.As(at::kDouble);
      std::vector<at::Tensor> leaves;
      for (const at::Tensor& student : wide.students) {
        leaves.push_back(student.clone().requires_grad_(true));
      }
      const auto logprobs = [&](const TeacherScores& scores) {
        return at::log_softmax(
            wide.LogitsOf(
                scores.hidden,
                scores.head == nullptr ? wide.call_head() : *scores.head) /
                kTemperature,
            -1);
      };
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (const HeadTerm& term : wide.terms()) {
        const at::Tensor value = LossOf(
            in, term, logprobs({.hidden = leaves[term.student]}), logprobs);
        values.push_back(value.item<double>());
        loss = loss + term.token_weight * value;
      }
      loss.backward();
      for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
    }

    template <typename Logprobs>
    static at::Tensor TargetOf(const Inputs& in,
                               const HeadTerm& term,
                               const Logprobs& logprobs) {
      if (std::holds_alternative<OneHot>(*term.target)) {
        return at::full({kTokens, in.num_common()}, -1e3, at::kDouble)
            .scatter(1, in.scored.unsqueeze(1), 0.0);
      }
      const at::Tensor first = logprobs(*term.passes[0]);
      if (const auto* mixture = std::get_if<Mixture>(term.target)) {
        at::Tensor delta = at::zeros_like(first);
        for (size_t i = 0; i < mixture->delta.size(); ++i) {
          delta =
              delta + mixture->delta[i].factor * logprobs(*term.passes[i + 1]);
        }
        if (mixture->recentre) delta = delta - delta.mean(-1, true);
        if (mixture->soft_clip < kNoClip) {
          delta = mixture->soft_clip * at::tanh(delta / mixture->soft_clip);
        }
        return at::log_softmax(first + mixture->strength * delta, -1);
      }
      if (std::holds_alternative<Routed>(*term.target)) {
        return at::where(in.route.to(at::kBool).unsqueeze(1),
                         logprobs(*term.passes[1]),
                         first);
      }
      return first;
    }

    template <typename Logprobs>
    static at::Tensor LossOf(const Inputs& in,
                             const HeadTerm& term,
                             at::Tensor log_p,
                             const Logprobs& logprobs) {
      at::Tensor log_q = TargetOf(in, term, logprobs);
      if (term.support.kind != SupportKind::kFull) {
        const at::Tensor& by =
            term.support.kind == SupportKind::kStudentTopK ? log_p : log_q;
        const at::Tensor ids = std::get<1>(by.topk(term.support.k, -1));
        const auto restrict = [&](const at::Tensor& all) {
          const at::Tensor few = all.gather(1, ids);
          const at::Tensor sum = few.logsumexp(-1, true);
          return term.support.tail ? at::cat({few, at::log1p(-sum.exp())}, 1)
                                   : few - sum;
        };
        const at::Tensor few = restrict(log_p);
        log_q = restrict(log_q);
        log_p = few;
      }
      const at::Tensor p = log_p.exp();
      const at::Tensor q = log_q.exp();
      at::Tensor components = q * (log_q - log_p);
      if (term.divergence.kind == DivergenceKind::kReverseKl) {
        components = p * (log_p - log_q);
      } else if (term.divergence.kind == DivergenceKind::kJensenShannon) {
        const double beta = term.divergence.beta;
        const at::Tensor log_m = at::log(beta * q + (1.0 - beta) * p);
        components =
            beta * q * (log_q - log_m) + (1.0 - beta) * p * (log_p - log_m);
      }
      at::Tensor tokens = components.clamp_max(term.divergence.clip).sum(-1);
      if (term.token_weights.defined()) {
        tokens = tokens * term.token_weights.to(at::kDouble);
      }
      return tokens.slice(0, term.skip_tokens).sum();
    }
  };

  struct Errors {
    double value = 0.0;
    double gradient = 0.0;

    // Values below 0.01 per token are small differences of larger float32
    // numbers, so their error is relative to 0.01 per token.
    Errors(const HeadLoss& loss, const Slow& slow) {
      for (size_t k = 0; k < slow.values.size(); ++k) {
        value = Worse(value,
                      std::abs(loss.sums[k].clipped - slow.values[k]) /
                          std::max(std::abs(slow.values[k]), 0.01 * kTokens));
      }
      for (size_t s = 0; s < slow.gradients.size(); ++s) {
        gradient = std::max(
            gradient, RelativeError(loss.grad_hidden[s], slow.gradients[s]));
      }
    }
  };
};

}  // namespace dapd
