#include "common/objective/part_loss.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/objective/common_vocabulary.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

LmHead HeadOf(const ModelWeights& weights) {
  return {weights.head, ModelRecipeOf(weights.config).logit_softcap};
}

// Returns the scored tokens of a view. All of them must be tokens of the loss,
// since a kernel reads its rows there.
at::Tensor ScoredIds(const LossInputs& inputs, const View& view) {
  const std::span<const int32_t> ids(view.input_ids.data() + view.scored_from,
                                     static_cast<size_t>(view.scored_count));
  const int64_t vocabulary = inputs.head.vocabulary;
  for (const int32_t id : ids) {
    TORCH_CHECK(id >= 0 && id < vocabulary,
                "[part_loss] token ",
                id,
                " is scored, but the models of this objective share only the "
                "tokens below ",
                vocabulary);
  }
  return ToDevice(
      at::tensor(at::ArrayRef<int32_t>(ids.data(), ids.size())).to(at::kLong),
      inputs.weights.device());
}

HeadTerm HeadTermOf(const LossInputs& inputs, size_t k, size_t sample) {
  const Term& term = inputs.terms[k];
  HeadTerm head_term = {.target = &term.target,
                        .divergence = term.divergence,
                        .support = term.support,
                        .token_weight = inputs.term_weights[k],
                        .skip_tokens = term.skip_tokens};
  for (const TeacherPass& teacher : PassesOf(term.target)) {
    head_term.passes.push_back(&inputs.samples[sample].scores.at(teacher));
  }
  if (std::holds_alternative<OneHot>(term.target)) {
    head_term.ids = ScoredIds(
        inputs, (*inputs.views[sample])[static_cast<size_t>(term.student)]);
  }
  if (term.reduction != Reduction::kMicroToken) {
    head_term.token_weight /=
        static_cast<double>(TokensOf(term, *inputs.views[sample]));
  }
  if (const auto found = inputs.routes.find(k); found != inputs.routes.end()) {
    head_term.route = found->second.route[sample];
    head_term.token_weights = found->second.token_weights[sample];
  }
  return head_term;
}

// Returns log(p / p_sampler) for each token that the sampler drew in a part's
// answer, bounded so that its exponential is finite. Undefined if no term asks
// for it, or if the sampler's log-probabilities are not known.
at::Tensor SamplerLogRatios(const LossInputs& inputs,
                            const PackPart& part,
                            std::span<const at::Tensor> hidden) {
  constexpr double kBound = 20.0;
  const ScoredSample& sample = inputs.samples[part.sample];
  const auto student = std::ranges::find(part.students, ViewName::kNoneRollout);
  const bool is_asked = student != part.students.end() &&
                        std::ranges::any_of(inputs.terms, [](const Term& term) {
                          return term.importance != Importance::kNone;
                        });
  const View& view = sample.views[static_cast<size_t>(ViewName::kNoneRollout)];
  if (!is_asked || static_cast<int64_t>(sample.sampler_logprobs.size()) !=
                       view.scored_count) {
    return {};
  }
  const auto index = static_cast<size_t>(student - part.students.begin());
  const at::Device device = inputs.weights.device();
  const at::Tensor live = TokenLogprobsOf(HeadOf(inputs.weights),
                                          {.hidden = hidden[index]},
                                          ScoredIds(inputs, view),
                                          /*temperature=*/1.0,
                                          inputs.head.workspace,
                                          inputs.head.vocabulary);
  return (live - ToDevice(at::tensor(sample.sampler_logprobs), device))
      .clamp(-kBound, kBound);
}

// Returns the factor of each token's loss, [n] float32; undefined: 1.
at::Tensor ImportanceOf(const Term& term, const at::Tensor& log_ratios) {
  if (term.importance == Importance::kNone || !log_ratios.defined()) return {};
  const at::Tensor ratios = log_ratios.exp().clamp_max(term.importance_cap);
  if (term.importance == Importance::kToken) return ratios;
  return ratios.slice(0, term.skip_tokens)
      .mean()
      .expand_as(ratios)
      .contiguous();
}

// Returns the sums of an answer as the reduction of its term adds them up.
DivergenceSums Reduced(const Term& term, DivergenceSums sums) {
  if (term.reduction == Reduction::kMicroToken) {
    sums.denominator = static_cast<double>(sums.tokens);
    return sums;
  }
  sums.clipped /= static_cast<double>(sums.tokens);
  sums.unclipped /= static_cast<double>(sums.tokens);
  sums.denominator = 1.0;
  return sums;
}

// Returns the students of a part. Log-probabilities are asked for if the
// sampler's log-probabilities of the same tokens are known.
std::vector<HeadStudent> StudentsOf(const LossInputs& inputs,
                                    const PackPart& part,
                                    std::span<const at::Tensor> hidden) {
  const ScoredSample& sample = inputs.samples[part.sample];
  std::vector<HeadStudent> students;
  for (size_t i = 0; i < hidden.size(); ++i) {
    students.push_back({.hidden = hidden[i]});
    // The hidden states are not read after their gradient is computed.
    if (inputs.with_gradient) students.back().gradient = hidden[i];
    if (part.students[i] == ViewName::kNoneRollout &&
        !sample.sampler_logprobs.empty()) {
      students.back().ids = ScoredIds(
          inputs, sample.views[static_cast<size_t>(ViewName::kNoneRollout)]);
    }
  }
  return students;
}

SamplerMismatch MismatchOf(const std::vector<at::Tensor>& token_logprobs,
                           const ScoredSample& sample) {
  SamplerMismatch mismatch;
  for (const at::Tensor& logprobs : token_logprobs) {
    if (!logprobs.defined()) continue;
    mismatch += CompareLogprobs({logprobs.const_data_ptr<float>(),
                                 static_cast<size_t>(logprobs.numel())},
                                sample.sampler_logprobs);
  }
  return mismatch;
}

// Extends the routes of the counted tokens to all scored tokens: tokens that
// are left out take the first pass, at no cost.
void PutSkippedInFront(int64_t skip_tokens, TokenRoutes* routes) {
  if (skip_tokens == 0) return;
  for (auto* of_answers : {&routes->route, &routes->token_weights}) {
    for (at::Tensor& answer : *of_answers) {
      // Without a counted token the routes are not read.
      if (answer.numel() == 0) continue;
      answer = at::constant_pad_nd(answer, {skip_tokens, 0});
    }
  }
}

}  // namespace

int64_t VocabularyOf(const LossInputs& inputs) {
  std::vector<const TeacherScores*> scores;
  for (const ScoredSample& sample : inputs.samples) {
    for (const auto& [pass, of_pass] : sample.scores) {
      scores.push_back(&of_pass);
    }
  }
  return CommonVocabulary(
      HeadOf(inputs.weights), scores, inputs.head.vocabulary);
}

std::map<size_t, TokenRoutes> RouteTerms(const LossInputs& inputs) {
  std::map<size_t, TokenRoutes> routes;
  for (size_t k = 0; k < inputs.terms.size(); ++k) {
    const Term& term = inputs.terms[k];
    const auto* routed = std::get_if<Routed>(&term.target);
    if (routed == nullptr) continue;
    std::vector<at::Tensor> first;
    std::vector<at::Tensor> second;
    int64_t tokens = 0;
    for (const ScoredSample& sample : inputs.samples) {
      const int64_t counted = TokensOf(term, sample.views);
      if (counted == 0) {
        first.push_back(at::empty({0}, inputs.weights.device()));
        second.push_back(first.back());
        continue;
      }
      tokens += counted;
      const at::Tensor ids =
          ScoredIds(inputs, sample.views[static_cast<size_t>(term.student)]);
      for (const auto& [logprobs, teacher] :
           {std::pair{&first, routed->first},
            std::pair{&second, routed->second}}) {
        logprobs->push_back(TokenLogprobsOf(HeadOf(inputs.weights),
                                            sample.scores.at(teacher),
                                            ids,
                                            inputs.head.temperature,
                                            inputs.head.workspace,
                                            inputs.head.vocabulary)
                                .narrow(0, term.skip_tokens, counted));
      }
    }
    if (tokens == 0) continue;
    routes[k] = RouteTokens(*routed, first, second);
    PutSkippedInFront(term.skip_tokens, &routes[k]);
  }
  return routes;
}

void AddPartLoss(const LossInputs& inputs,
                 const PackPart& part,
                 std::span<const at::Tensor> hidden,
                 MicroBatchResult& result) {
  const at::Tensor log_ratios = SamplerLogRatios(inputs, part, hidden);
  std::vector<HeadTerm> head_terms;
  std::vector<size_t> indices;
  for (size_t k = 0; k < inputs.terms.size(); ++k) {
    const Term& term = inputs.terms[k];
    const auto student =
        std::find(part.students.begin(), part.students.end(), term.student);
    if (student == part.students.end() ||
        TokensOf(term, *inputs.views[part.sample]) == 0) {
      continue;
    }
    head_terms.push_back(HeadTermOf(inputs, k, part.sample));
    HeadTerm& head_term = head_terms.back();
    head_term.student = static_cast<size_t>(student - part.students.begin());
    if (const at::Tensor importance = ImportanceOf(term, log_ratios);
        importance.defined()) {
      head_term.token_weights = head_term.token_weights.defined()
                                    ? head_term.token_weights * importance
                                    : importance;
    }
    indices.push_back(k);
  }
  const HeadLoss loss = ComputeHeadLoss(HeadOf(inputs.weights),
                                        StudentsOf(inputs, part, hidden),
                                        head_terms,
                                        inputs.head,
                                        inputs.with_gradient);
  for (size_t i = 0; i < indices.size(); ++i) {
    const size_t k = indices[i];
    const DivergenceSums sums = Reduced(inputs.terms[k], loss.sums[i]);
    result.sums[k] += sums;
    if (ReadsRowTeacher(inputs.terms[k])) {
      const std::string& named = inputs.samples[part.sample].teacher;
      result.by_teacher[k][named.empty() ? NameOf(WeightSet::kBase) : named] +=
          sums;
    }
  }
  result.sampler_mismatch +=
      MismatchOf(loss.token_logprobs, inputs.samples[part.sample]);
}

}  // namespace dapd
