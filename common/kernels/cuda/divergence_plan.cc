#include "common/kernels/cuda/divergence_plan.h"

#include <algorithm>
#include <cstdint>

#include "common/kernels/bfloat16.h"

namespace dapd {
namespace {

// Returns whether nothing reads a target's row after the term `own`.
bool IsLastReader(const CudaDivergenceArgs& args, int target, int own) {
  if (args.sources[target].is_student) return false;
  for (int k = 0; k < args.num_terms; ++k) {
    if (k != own && args.terms[k].target == target) return false;
  }
  for (int d = 0; d < args.num_derived; ++d) {
    const DerivedSource& derived = args.derived[d];
    if (derived.kind != DerivedSource::Kind::kRouted) continue;
    for (int i = 0; i < derived.num_parts; ++i) {
      if (derived.parts[i] == target) return false;
    }
  }
  return true;
}

// Returns a slot whose row is no longer needed when the student's pull needs
// memory, or a new slot.
int RoomFor(const CudaDivergenceArgs& args, int student, ClusterPlan* plan) {
  for (int k = 0; k < args.num_terms; ++k) {
    const int target = args.terms[k].target;
    // Only a student's first term can offer its target's slot: the pull is
    // added from the first term on, and a later term's row must still be read
    // then.
    const bool is_first = std::none_of(
        args.terms, args.terms + k, [student](const DivergenceTerm& term) {
          return term.student == student;
        });
    if (args.terms[k].student == student && is_first &&
        plan->slot[target] >= 0 && IsLastReader(args, target, k)) {
      return plan->slot[target];
    }
  }
  return plan->num_slots++;
}

// Decides what becomes of the given rows after the terms' sums.
void SortGiven(const CudaDivergenceArgs& args, ClusterPlan* plan) {
  bool is_free[kClusterMaxGiven];
  std::fill_n(is_free, plan->num_given, true);
  for (int s = 0; args.with_gradient && s < plan->num_given; ++s) {
    const int source = plan->given[s];
    if (!args.sources[source].is_student) continue;
    is_free[s] = false;
    if (plan->room[source] < plan->num_given) {
      is_free[plan->room[source]] = false;
    }
    plan->last_student = s;
  }
  for (int s = 0; s < plan->num_given; ++s) {
    if (is_free[s]) plan->free[plan->num_free++] = s;
  }
}

}  // namespace

std::optional<ClusterPlan> SlotsOf(const CudaDivergenceArgs& args) {
  ClusterPlan plan;
  int measures = 0;
  plan.wide = args.vocabulary % kClusterGroup == 0;
  for (int s = 0; s < args.num_sources; ++s) {
    plan.slot[s] = -1;
    if (IsDerived(args, s)) continue;
    const DivergenceSource& source = args.sources[s];
    if (plan.num_given == kClusterMaxGiven) return std::nullopt;
    plan.given[plan.num_given] = s;
    plan.slot[s] = plan.num_given++;
    measures += source.ids == nullptr ? 1 : 2;
    const size_t number = source.is_narrow ? sizeof(BFloat16) : sizeof(float);
    plan.wide =
        plan.wide && source.stride % kClusterGroup == 0 &&
        reinterpret_cast<uintptr_t>(source.logits) % (kClusterGroup * number) ==
            0;
    plan.has_narrow = plan.has_narrow || source.is_narrow;
  }
  plan.num_slots = plan.num_given;
  for (int d = 0; d < args.num_derived; ++d) {
    if (args.derived[d].kind == DerivedSource::Kind::kRouted) continue;
    plan.slot[args.derived[d].source] = plan.num_slots++;
  }
  const bool has_support = std::any_of(
      args.terms, args.terms + args.num_terms, [](const DivergenceTerm& t) {
        return t.support_size > 0;
      });
  if (measures > kClusterMaxMeasures || args.num_terms > kClusterMaxTerms ||
      has_support) {
    return std::nullopt;
  }
  for (int s = 0; s < args.num_sources; ++s) {
    plan.room[s] = -1;
    if (args.sources[s].is_student) plan.room[s] = RoomFor(args, s, &plan);
  }
  SortGiven(args, &plan);
  return plan;
}

}  // namespace dapd
