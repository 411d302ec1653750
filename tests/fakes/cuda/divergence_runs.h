// Runs a problem of the loss kernel with the kernel on the simulated device and
// with its host twin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/divergence_kernel.h"
#include "common/kernels/divergence_kernel.h"
#include "tests/fakes/cuda/kernel_inputs.h"
#include "tests/fakes/divergence_definition.h"

namespace dapd::fake {

struct DivergenceResult {
  std::vector<DivergenceTokenSums> sums;     // [tokens, terms]
  std::vector<std::vector<float>> gradient;  // by student
  std::vector<float> logprobs;               // of student 1, [tokens]
};

inline DivergenceResult RunDivergenceTwin(const DivergenceProblem& problem) {
  const DivergenceCase& c = problem.c;
  DivergenceResult result;
  result.logprobs.resize(static_cast<size_t>(c.tokens));
  std::vector<std::vector<float>> logits = problem.logits;
  std::vector<DivergenceSource> sources;
  for (size_t s = 0; s < kSources; ++s) {
    sources.push_back({logits[s].data(), c.vocabulary, s < kStudents});
  }
  sources[1].ids = problem.ids.data();
  sources[1].logprobs = result.logprobs.data();
  std::vector<DivergenceTerm> terms = problem.terms;
  for (size_t k = 0; k < terms.size(); ++k) {
    if (terms[k].support_size > 0) terms[k].support = problem.support.data();
    if (problem.HasTokenWeights(k)) {
      terms[k].token_weights = problem.token_weights.data();
    }
  }
  std::vector<DerivedSource> derived = problem.derived;
  for (DerivedSource& source : derived) {
    source.ids = problem.ids.data();
    source.route = problem.route.data();
  }
  result.sums.resize(static_cast<size_t>(c.tokens) * terms.size());
  DivergenceTokens({sources, derived, terms, c.vocabulary, c.scale, true},
                   0,
                   c.tokens,
                   result.sums.data());
  logits.resize(kStudents);
  result.gradient = std::move(logits);
  return result;
}

// Which form of the kernel runs, and on which logits.
struct DivergenceForm {
  bool has_narrow_logits = false;  // given logits are bfloat16
  int cluster_warps = 16;
};

// Rows that no kernel may leave: the gaps between them are forbidden.
template <typename T>
class DivergenceRows {
 public:
  DivergenceRows(const std::string& name, const DivergenceCase& c, int64_t gap)
      : tokens_(c.tokens),
        vocabulary_(c.vocabulary),
        stride_(c.vocabulary + gap),
        rows_(name, Elements(tokens_ * stride_)) {
    for (int64_t t = 0; t < tokens_; ++t) {
      rows_.Forbid(t * stride_ + vocabulary_, stride_ - vocabulary_);
    }
  }
  void Write(const std::vector<float>& values) {
    for (int64_t t = 0; t < tokens_; ++t) {
      const auto bytes = static_cast<size_t>(vocabulary_) * sizeof(T);
      std::transform(values.begin() + t * vocabulary_,
                     values.begin() + (t + 1) * vocabulary_,
                     Row(t),
                     &FromFloat<T>);
      GlobalMemory().MarkWritten(Row(t), bytes);
    }
  }
  T* Row(int64_t token) const { return rows_.data() + token * stride_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t tokens_;
  int64_t vocabulary_;
  int64_t stride_;
  DeviceBuffer<T> rows_;
};

// The rows of a source, float32 or narrow.
class DivergenceSourceRows {
 public:
  DivergenceSourceRows(const std::string& name,
                       const DivergenceCase& c,
                       int64_t gap,
                       bool is_narrow) {
    if (is_narrow) {
      narrow_ = std::make_unique<DivergenceRows<BFloat16>>(name, c, gap);
    } else {
      full_ = std::make_unique<DivergenceRows<float>>(name, c, gap);
    }
  }
  void Write(const std::vector<float>& values) {
    if (narrow_ != nullptr) {
      narrow_->Write(values);
    } else {
      full_->Write(values);
    }
  }
  DivergenceSource Source(bool is_student) const {
    if (narrow_ == nullptr) {
      return {full_->Row(0), full_->stride(), is_student};
    }
    return {reinterpret_cast<float*>(narrow_->Row(0)),
            narrow_->stride(),
            is_student,
            /*is_narrow=*/true};
  }
  float Logit(int64_t token, int64_t v) const {
    return narrow_ != nullptr ? ToFloat(narrow_->Row(token)[v])
                              : full_->Row(token)[v];
  }
  // Returns an entry of a gradient that has replaced the logits.
  float Gradient(int64_t token, int64_t v, CudaNumber number) const {
    if (narrow_ != nullptr || number == CudaNumber::kFloat32) {
      return Logit(token, v);
    }
    return ToFloat(reinterpret_cast<const BFloat16*>(full_->Row(token))[v]);
  }

 private:
  std::unique_ptr<DivergenceRows<float>> full_;
  std::unique_ptr<DivergenceRows<BFloat16>> narrow_;
};

// `gap` is the number of elements between two rows; with a multiple of 4 rows
// stay aligned. The last teacher's rows lie farther apart by `teacher_gap`, as
// the logits of a larger vocabulary do. Without gradients the students' rows
// stay unchanged, and result->gradient has them.
inline void RunDivergenceKernel(const DivergenceProblem& problem,
                                CudaNumber gradient,
                                int64_t gap,
                                DivergenceResult* result,
                                bool with_gradient = true,
                                int64_t teacher_gap = 0,
                                DivergenceForm form = {}) {
  const DivergenceCase& c = problem.c;
  const DeviceBuffer<int64_t> ids("ids", problem.ids);
  const DeviceBuffer<int64_t> support("support", problem.support);
  const DeviceBuffer<float> weights("token_weights", problem.token_weights);
  const DeviceBuffer<uint8_t> route("route", problem.route);
  const DeviceBuffer<float> logprobs("logprobs", Elements(c.tokens));
  const DeviceBuffer<DivergenceTokenSums> sums(
      "sums", Elements(c.tokens * static_cast<int64_t>(problem.terms.size())));
  CudaDivergenceArgs args{
      .num_sources = static_cast<int>(kSources),
      .num_derived = static_cast<int>(problem.derived.size()),
      .num_terms = static_cast<int>(problem.terms.size()),
      .num_tokens = c.tokens,
      .vocabulary = c.vocabulary,
      .scale = c.scale,
      .with_gradient = with_gradient,
      .gradient = gradient,
      .cluster_warps = form.cluster_warps,
      .sums = sums.data()};
  std::vector<DivergenceSourceRows> rows;
  for (size_t s = 0; s < kSources; ++s) {
    const bool is_given = s != kDerived || problem.derived.empty();
    rows.emplace_back("source " + std::to_string(s),
                      c,
                      s + 1 == kDerived ? gap + teacher_gap : gap,
                      form.has_narrow_logits && is_given);
    // The kernel fills the derived source's rows.
    if (is_given) rows[s].Write(problem.logits[s]);
    args.sources[s] = rows[s].Source(s < kStudents);
  }
  args.sources[1].ids = ids.data();
  args.sources[1].logprobs = logprobs.data();
  for (size_t k = 0; k < problem.terms.size(); ++k) {
    args.terms[k] = problem.terms[k];
    if (args.terms[k].support_size > 0) args.terms[k].support = support.data();
    if (problem.HasTokenWeights(k)) {
      args.terms[k].token_weights = weights.data();
    }
  }
  for (size_t d = 0; d < problem.derived.size(); ++d) {
    args.derived[d] = problem.derived[d];
    args.derived[d].ids = ids.data();
    args.derived[d].route = route.data();
  }
  ASSERT_KERNEL_RUNS(DapdCudaDivergence(&args, nullptr));
  result->sums = sums.Read();
  result->logprobs = logprobs.Read();
  result->gradient.assign(kStudents, {});
  for (size_t s = 0; s < kStudents; ++s) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        result->gradient[s].push_back(rows[s].Gradient(t, v, gradient));
      }
    }
  }
  for (size_t s = kStudents; s < kDerived; ++s) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t v = 0; v < c.vocabulary; ++v) {
        ASSERT_EQ(rows[s].Logit(t, v), problem.logits[s][t * c.vocabulary + v])
            << "a teacher's row is left alone";
      }
    }
  }
}

}  // namespace dapd::fake
