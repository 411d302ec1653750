// Determines which rows of logits a head loss needs, and how its terms refer to
// them: it translates a call of head_loss.h into the structures of
// common/kernels/divergence_kernel.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/kernels/divergence_kernel.h"
#include "common/objective/head_loss.h"

namespace dapd {

// A source of a token's logits: a student, or a teacher of any number of terms.
// A target that is made of other sources, or of none, has neither tensor.
struct TargetSource {
  at::Tensor hidden;  // [n, hidden], or
  at::Tensor logits;  // [n, V] float32 as a teacher sent them; V may exceed V_c
  size_t head = 0;    // of `hidden`: an index of the heads of the call
};

// A chunk of a call: `tokens` tokens from `begin` on, and the logits of every
// source that is not given as logits. Sources with hidden states come first, by
// their heads; the head of the call is the first, and its students come before
// its teachers.
struct HeadChunk {
  int64_t begin = 0;
  int64_t tokens = 0;
  at::Tensor logits;  // [rows * tokens, V_c] float32
  at::Tensor narrow;  // [rows * tokens, V_c] bfloat16, of the narrow heads
};

// The product that gives the logits of all sources with one head.
struct HeadProduct {
  at::Tensor head;                 // [V_c, hidden]
  std::vector<at::Tensor> hidden;  // [tokens, hidden] of each source
  at::Tensor logits;               // [sources * tokens, V_c], to be written
  bool is_rounded = false;         // float32 logits are rounded to bfloat16
};

class TargetSources {
 public:
  // `vocabulary` is V_c. Heads with the same tensor count as one.
  // `bfloat16_logits`: HeadLossOptions; the rounded logits are narrow on a GPU.
  TargetSources(const LmHead& head,
                std::span<const HeadStudent> students,
                std::span<const HeadTerm> terms,
                int64_t vocabulary,
                bool bfloat16_logits = false);

  // Lays out a chunk in the workspace's memory.
  HeadChunk ChunkOf(int64_t begin,
                    int64_t tokens,
                    HeadWorkspace& workspace) const;

  // Returns the products of a chunk, the head of the call first.
  std::vector<HeadProduct> ProductsOf(const HeadChunk& chunk) const;
  // Returns the heads of the call, whole.
  const std::vector<at::Tensor>& heads() const { return heads_; }
  // Returns the bytes of one token's hidden states of all sources.
  int64_t hidden_bytes() const;
  // Return the number of sources for which the chunk's logits have rows, with
  // the targets that are written, and how many of them have narrow rows.
  int64_t num_rows() const { return num_full_ + num_narrow_; }
  int64_t num_narrow() const { return num_narrow_; }
  size_t size() const { return sources_.size(); }
  size_t num_derived() const { return derived_.size(); }
  int64_t support_size() const;  // entries of the supports of all terms
  int64_t skip_tokens(size_t term) const { return terms_[term].first_token; }

  // The kernels' arguments for a chunk. `logprobs`: one tensor per student, for
  // its ids.
  struct Rows {
    std::vector<DivergenceSource> sources;
    std::vector<DerivedSource> derived;
    std::vector<DivergenceTerm> terms;
    std::vector<at::Tensor> supports;  // what the terms point to
  };
  Rows RowsOf(const HeadChunk& chunk,
              std::span<const HeadStudent> students,
              std::span<const HeadTerm> head_terms,
              std::span<const at::Tensor> logprobs) const;
  // Returns the same arguments before a chunk has memory, without rows.
  Rows ShapeOf(std::span<const HeadStudent> students) const;

 private:
  int FindOrAdd(const TeacherScores& teacher);
  size_t FindOrAddHead(const LmHead* head);
  // Return whether the logits of a head are rounded, and whether they are
  // narrow.
  bool IsRounded(size_t head) const;
  bool IsNarrow(size_t head) const;
  bool IsNarrow(const TargetSource& source) const;
  int AddTarget(const HeadTerm& term);
  int AddDerived(DerivedSource derived);
  // Returns the rows of a source within a chunk, [tokens, V_c].
  at::Tensor LogitsOf(int source, const HeadChunk& chunk) const;
  at::Tensor SupportOf(const HeadTerm& head_term,
                       const DivergenceTerm& term,
                       const HeadChunk& chunk) const;

  int64_t vocabulary_ = 0;
  std::vector<at::Tensor> heads_;
  std::vector<TargetSource> sources_;
  bool bfloat16_logits_ = false;
  // The place of each source in a chunk's logits, or in its narrow logits; -1:
  // none.
  std::vector<int64_t> row_block_;
  std::vector<DerivedSource> derived_;
  std::vector<size_t> term_of_derived_;  // of each derived source
  std::vector<DivergenceTerm> terms_;    // by index of source, without pointers
  int64_t num_students_ = 0;
  int64_t num_full_ = 0;
  int64_t num_narrow_ = 0;
};

}  // namespace dapd
