#include "common/objective/target_sources.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/overloaded.h"

namespace dapd {
namespace {

static_assert(Mixture::kMaxParts == static_cast<size_t>(kMaxMixtureParts));

bool IsSame(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.is_same(b);
}

// Returns the own numbers of a term; its sources and tensors are filled in
// elsewhere.
DivergenceTerm MakeTerm(const HeadTerm& term) {
  const Divergence& divergence = term.divergence;
  return {.student = static_cast<int>(term.student),
          .kind = divergence.kind,
          .beta = static_cast<float>(divergence.beta),
          .clip = static_cast<float>(divergence.clip),
          .weight = static_cast<float>(term.token_weight),
          .first_token = term.skip_tokens,
          .support_size = term.support.kind == SupportKind::kFull
                              ? 0
                              : static_cast<int>(term.support.k),
          .has_tail = term.support.tail};
}

// `passes` are the sources of PassesOf.
DerivedSource DerivedFrom(const Mixture& mixture,
                          const std::vector<int>& passes) {
  DerivedSource derived{.kind = DerivedSource::Kind::kMixture,
                        .anchor = passes[0],
                        .num_parts = static_cast<int>(mixture.delta.size()),
                        .recentre = mixture.recentre,
                        .soft_clip = static_cast<float>(mixture.soft_clip),
                        .strength = static_cast<float>(mixture.strength)};
  for (size_t i = 0; i < mixture.delta.size(); ++i) {
    derived.parts[i] = passes[i + 1];
    derived.factors[i] = static_cast<float>(mixture.delta[i].factor);
  }
  return derived;
}

DerivedSource DerivedByRoute(const std::vector<int>& passes) {
  DerivedSource derived{.kind = DerivedSource::Kind::kRouted, .num_parts = 2};
  std::copy(passes.begin(), passes.end(), derived.parts);
  return derived;
}

DerivedSource DerivedByIds() { return {.kind = DerivedSource::Kind::kOneHot}; }

}  // namespace

TargetSources::TargetSources(const LmHead& head,
                             std::span<const HeadStudent> students,
                             std::span<const HeadTerm> terms,
                             int64_t vocabulary,
                             bool bfloat16_logits)
    : vocabulary_(vocabulary),
      heads_({head.weight}),
      bfloat16_logits_(bfloat16_logits),
      num_students_(static_cast<int64_t>(students.size())) {
  for (const HeadStudent& student : students) {
    sources_.push_back({student.hidden, {}});
  }
  for (const HeadTerm& term : terms) {
    terms_.push_back(MakeTerm(term));
    terms_.back().target = AddTarget(term);
  }
  row_block_.assign(sources_.size(), -1);
  for (size_t h = 0; h < heads_.size(); ++h) {
    for (size_t s = 0; s < sources_.size(); ++s) {
      if (!sources_[s].hidden.defined() || sources_[s].head != h) continue;
      row_block_[s] = IsNarrow(sources_[s]) ? num_narrow_++ : num_full_++;
    }
  }
  for (const DerivedSource& derived : derived_) {
    if (derived.kind == DerivedSource::Kind::kRouted) continue;
    row_block_[static_cast<size_t>(derived.source)] = num_full_++;
  }
}

bool TargetSources::IsRounded(size_t head) const {
  return bfloat16_logits_ && heads_[0].scalar_type() == at::kBFloat16 &&
         heads_[head].scalar_type() == at::kBFloat16;
}

bool TargetSources::IsNarrow(size_t head) const {
  return IsRounded(head) && !heads_[0].is_cpu();
}

bool TargetSources::IsNarrow(const TargetSource& source) const {
  return source.hidden.defined() && IsNarrow(source.head);
}

HeadChunk TargetSources::ChunkOf(int64_t begin,
                                 int64_t tokens,
                                 HeadWorkspace& workspace) const {
  // Two narrow rows take the memory of a row.
  const int64_t full = num_full_ * tokens;
  const int64_t halves = (num_narrow_ * tokens + 1) / 2;
  const at::Tensor memory =
      workspace.Take(full + halves, vocabulary_, heads_[0].device());
  return {.begin = begin,
          .tokens = tokens,
          .logits = memory.narrow(0, 0, full),
          .narrow = memory.narrow(0, full, halves)
                        .view(at::kBFloat16)
                        .view({2 * halves, vocabulary_})
                        .narrow(0, 0, num_narrow_ * tokens)};
}

int TargetSources::FindOrAdd(const TeacherScores& teacher) {
  const size_t head =
      teacher.hidden.defined() ? FindOrAddHead(teacher.head) : 0;
  for (size_t i = static_cast<size_t>(num_students_); i < sources_.size();
       ++i) {
    if ((IsSame(sources_[i].hidden, teacher.hidden) &&
         sources_[i].head == head) ||
        IsSame(sources_[i].logits, teacher.logits)) {
      return static_cast<int>(i);
    }
  }
  if (teacher.logits.defined()) {
    sources_.push_back({{}, teacher.logits.to(at::kFloat).contiguous()});
  } else {
    sources_.push_back({teacher.hidden, {}, head});
  }
  return static_cast<int>(sources_.size()) - 1;
}

size_t TargetSources::FindOrAddHead(const LmHead* head) {
  if (head == nullptr) return 0;
  const auto found = std::ranges::find_if(heads_, [&](const at::Tensor& each) {
    return IsSame(each, head->weight);
  });
  const auto index = static_cast<size_t>(found - heads_.begin());
  if (index == heads_.size()) heads_.push_back(head->weight);
  return index;
}

int TargetSources::AddTarget(const HeadTerm& term) {
  std::vector<int> passes;
  for (const TeacherScores* scores : term.passes) {
    passes.push_back(scores == nullptr ? -1 : FindOrAdd(*scores));
  }
  return std::visit(
      Overloaded{
          [&](const TeacherPass&) { return passes[0]; },
          [&](const Mixture& mixture) {
            return AddDerived(DerivedFrom(mixture, passes));
          },
          [&](const Routed&) { return AddDerived(DerivedByRoute(passes)); },
          [&](const OneHot&) { return AddDerived(DerivedByIds()); }},
      *term.target);
}

int TargetSources::AddDerived(DerivedSource derived) {
  derived.source = static_cast<int>(sources_.size());
  sources_.push_back({});
  derived_.push_back(derived);
  term_of_derived_.push_back(terms_.size() - 1);
  return derived.source;
}

std::vector<HeadProduct> TargetSources::ProductsOf(
    const HeadChunk& chunk) const {
  std::vector<HeadProduct> products(heads_.size());
  for (size_t h = 0; h < heads_.size(); ++h) {
    products[h].head = heads_[h].narrow(0, 0, vocabulary_);
  }
  for (const TargetSource& source : sources_) {
    if (!source.hidden.defined()) continue;
    products[source.head].hidden.push_back(
        source.hidden.narrow(0, chunk.begin, chunk.tokens));
  }
  int64_t row = 0;
  int64_t narrow_row = 0;
  for (size_t h = 0; h < products.size(); ++h) {
    HeadProduct& product = products[h];
    const bool is_narrow = IsNarrow(h);
    int64_t& first = is_narrow ? narrow_row : row;
    const int64_t rows =
        static_cast<int64_t>(product.hidden.size()) * chunk.tokens;
    product.logits =
        (is_narrow ? chunk.narrow : chunk.logits).narrow(0, first, rows);
    product.is_rounded = IsRounded(h) && !is_narrow;
    first += rows;
  }
  return products;
}

int64_t TargetSources::hidden_bytes() const {
  int64_t bytes = 0;
  for (const TargetSource& source : sources_) {
    if (!source.hidden.defined()) continue;
    bytes += source.hidden.size(1) *
             static_cast<int64_t>(source.hidden.element_size());
  }
  return bytes;
}

int64_t TargetSources::support_size() const {
  int64_t size = 0;
  for (const DivergenceTerm& term : terms_) size += term.support_size;
  return size;
}

at::Tensor TargetSources::LogitsOf(int source, const HeadChunk& chunk) const {
  const TargetSource& from = sources_[static_cast<size_t>(source)];
  if (from.logits.defined()) {
    return from.logits.narrow(0, chunk.begin, chunk.tokens)
        .narrow(1, 0, vocabulary_);
  }
  const int64_t block = row_block_[static_cast<size_t>(source)];
  return (IsNarrow(from) ? chunk.narrow : chunk.logits)
      .narrow(0, block * chunk.tokens, chunk.tokens);
}

at::Tensor TargetSources::SupportOf(const HeadTerm& head_term,
                                    const DivergenceTerm& term,
                                    const HeadChunk& chunk) const {
  const int by = head_term.support.kind == SupportKind::kStudentTopK
                     ? term.student
                     : term.target;
  const at::Tensor logits = LogitsOf(by, chunk);
  const int64_t k = std::min(head_term.support.k, logits.size(1));
  return std::get<1>(logits.topk(k, -1)).contiguous();
}

TargetSources::Rows TargetSources::ShapeOf(
    std::span<const HeadStudent> students) const {
  Rows rows;
  rows.sources.resize(sources_.size());
  for (size_t s = 0; s < sources_.size(); ++s) {
    rows.sources[s].is_narrow = IsNarrow(sources_[s]);
  }
  for (size_t s = 0; s < students.size(); ++s) {
    rows.sources[s].is_student = true;
    if (!students[s].ids.defined()) continue;
    rows.sources[s].ids = students[s].ids.const_data_ptr<int64_t>();
  }
  rows.derived = derived_;
  rows.terms = terms_;
  return rows;
}

TargetSources::Rows TargetSources::RowsOf(
    const HeadChunk& chunk,
    std::span<const HeadStudent> students,
    std::span<const HeadTerm> head_terms,
    std::span<const at::Tensor> logprobs) const {
  Rows rows;
  for (size_t s = 0; s < sources_.size(); ++s) {
    DivergenceSource& source = rows.sources.emplace_back();
    if (row_block_[s] < 0 && !sources_[s].logits.defined()) continue;  // routed
    const at::Tensor logits = LogitsOf(static_cast<int>(s), chunk);
    // Only the students' logits and the targets that are made here are written.
    source.logits =
        static_cast<float*>(const_cast<void*>(logits.const_data_ptr()));
    source.stride = logits.stride(0);
    source.is_narrow = logits.scalar_type() == at::kBFloat16;
    source.is_student = s < students.size();
    if (!source.is_student || !students[s].ids.defined()) continue;
    source.ids = students[s].ids.const_data_ptr<int64_t>() + chunk.begin;
    source.logprobs = logprobs[s].mutable_data_ptr<float>() + chunk.begin;
  }
  rows.derived = derived_;
  for (size_t i = 0; i < derived_.size(); ++i) {
    const HeadTerm& term = head_terms[term_of_derived_[i]];
    DerivedSource& derived = rows.derived[i];
    switch (derived.kind) {
      case DerivedSource::Kind::kMixture:
        break;
      case DerivedSource::Kind::kRouted:
        derived.route = term.route.const_data_ptr<uint8_t>() + chunk.begin;
        break;
      case DerivedSource::Kind::kOneHot:
        derived.ids = term.ids.const_data_ptr<int64_t>() + chunk.begin;
        break;
    }
  }
  rows.terms = terms_;
  for (size_t k = 0; k < terms_.size(); ++k) {
    DivergenceTerm& term = rows.terms[k];
    term.first_token -= chunk.begin;
    if (head_terms[k].token_weights.defined()) {
      term.token_weights =
          head_terms[k].token_weights.const_data_ptr<float>() + chunk.begin;
    }
    if (term.support_size == 0) continue;
    rows.supports.push_back(SupportOf(head_terms[k], terms_[k], chunk));
    term.support = rows.supports.back().const_data_ptr<int64_t>();
    term.support_size = static_cast<int>(rows.supports.back().size(1));
    // No entry of the vocabulary is left.
    if (term.support_size == vocabulary_) term.has_tail = false;
  }
  return rows;
}

}  // namespace dapd
