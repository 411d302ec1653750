// Computes the objective of one completion for C1 and G1, from hidden states to
// their gradient, and the bare products of the same size.
//
//   dapd_loss_benchmark ours|products cpu|cuda float32|bfloat16 HIDDEN TOKENS V
//                       [LOGITS [WARPS]]
//
// LOGITS is the precision of the loss's logits (trainer.logits_precision),
// WARPS the form of its cluster kernel (HeadLossOptions::cluster_warps). A
// round's request is its number of tokens, at most TOKENS. c1_loss.py has the
// peer, which draws the same inputs.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "absl/time/clock.h"

#include "ATen/DeviceAccelerator.h"
#include "common/model/fast/matrix_product.h"
#include "common/model/weights/placement.h"
#include "common/objective/head_loss.h"
#include "common/tensor/aten.h"
#include "tests/benchmarks/contender.h"
#include "tests/fakes/relative_error.h"

namespace dapd {
namespace {

constexpr double kTemperature = 1.1;
constexpr double kClip = 0.05;
// The terms entangled, inference and privileged have these weights in the
// released Qwen3-4B setting.
constexpr double kWeights[] = {2.0 / 15, 2.0 / 5, 2.0 / 15};
constexpr int64_t kForwardProducts = 5;
constexpr int64_t kBackwardProducts = 2;

struct Inputs {
  at::Tensor head;                   // [V, hidden]
  std::vector<at::Tensor> students;  // none, self
  std::vector<at::Tensor> teachers;  // snapshot cross, base none, base cross

  Inputs(at::TensorOptions options,
         int64_t hidden,
         int64_t tokens,
         int64_t vocabulary) {
    const at::TensorOptions wide = options.dtype(at::kFloat);
    at::manual_seed(1);
    head = at::randn({vocabulary, hidden}, wide);
    head.mul_(2.0 / std::sqrt(static_cast<double>(hidden)));
    const at::Tensor common = at::randn({tokens, hidden}, wide);
    for (int i = 0; i < 5; ++i) {
      (i < 2 ? students : teachers)
          .push_back(common.add(at::randn({tokens, hidden}, wide), 0.3)
                         .to(options.dtype()));
    }
    head = head.to(options.dtype());
  }

  // Returns the first `tokens` tokens.
  Inputs First(int64_t tokens) const {
    Inputs part = *this;
    for (at::Tensor& t : part.students) t = t.narrow(0, 0, tokens);
    for (at::Tensor& t : part.teachers) t = t.narrow(0, 0, tokens);
    return part;
  }
};

// Computes the loss in the form of `options`.
HeadLoss Compute(const Inputs& in, const HeadLossOptions& options) {
  const double tokens = static_cast<double>(in.students[0].size(0));
  std::vector<TeacherScores> teachers;
  for (const at::Tensor& teacher : in.teachers) teachers.push_back({teacher});
  std::vector<HeadStudent> students;
  for (const at::Tensor& student : in.students) students.push_back({student});
  const Target target = TeacherPass{};
  std::vector<HeadTerm> terms;
  for (size_t k = 0; k < teachers.size(); ++k) {
    terms.push_back({.target = &target,
                     .passes = {&teachers[k]},
                     .divergence = {.clip = kClip},
                     .student = k == 0 ? size_t{0} : size_t{1},
                     .token_weight = kWeights[k] / tokens});
  }
  return ComputeHeadLoss(in.head,
                         students,
                         terms,
                         options,
                         /*with_gradient=*/true);
}

double WeightedLoss(const HeadLoss& loss) {
  double sum = 0.0;
  for (size_t k = 0; k < loss.sums.size(); ++k) {
    sum += kWeights[k] * loss.sums[k].clipped /
           static_cast<double>(loss.sums[k].tokens);
  }
  return sum;
}

// Returns all hidden states, students before teachers.
at::Tensor HiddenOf(const Inputs& in) {
  std::vector<at::Tensor> hidden = in.students;
  hidden.insert(hidden.end(), in.teachers.begin(), in.teachers.end());
  return at::cat(hidden);
}

// Computes loss and gradients in double precision by LibTorch's autograd.
struct Exact {
  double loss;
  std::vector<at::Tensor> gradients;

  // `logits` belong to HiddenOf(in).
  Exact(const Inputs& in, const at::Tensor& logits) {
    std::vector<at::Tensor> rows =
        logits.to(at::kDouble).split(in.students[0].size(0));
    const std::span<at::Tensor> students(rows.data(), in.students.size());
    for (at::Tensor& student : students) {
      student = student.clone().requires_grad_(true);
    }
    const auto logprobs = [](const at::Tensor& row) {
      return at::log_softmax(row / kTemperature, -1);
    };
    at::Tensor total = at::zeros({}, rows[0].options());
    for (size_t k = 0; k < in.teachers.size(); ++k) {
      const at::Tensor log_q = logprobs(rows[students.size() + k]);
      const at::Tensor log_p = logprobs(students[k == 0 ? 0 : 1]);
      total =
          total +
          kWeights[k] *
              (log_q.exp() * (log_q - log_p)).clamp_max(kClip).sum(-1).mean();
    }
    total.backward();
    loss = total.item<double>();
    const at::Tensor head = in.head.to(at::kDouble);
    for (const at::Tensor& student : students) {
      gradients.push_back(student.grad().mm(head));
    }
  }
};

// Returns relative errors of the loss and gradients of a few tokens. The loss
// is also compared with the exact loss of the same logits, which shows the
// error of the passes over the logits alone.
nlohmann::json CompareWithDoubles(const Inputs& in,
                                  const HeadLossOptions& options) {
  const at::Tensor hidden = HiddenOf(in);
  const Exact exact(
      in, at::linear(hidden.to(at::kDouble), in.head.to(at::kDouble)));
  const at::Tensor rounded = at::empty({hidden.size(0), in.head.size(0)},
                                       hidden.options().dtype(at::kFloat));
  ComputeLogits(hidden, in.head, rounded);
  if (options.bfloat16_logits) rounded.copy_(rounded.to(at::kBFloat16));
  const Exact of_same_logits(in, rounded);
  const HeadLoss loss = Compute(in, options);
  double gradient = 0.0;
  for (size_t s = 0; s < exact.gradients.size(); ++s) {
    gradient = std::max(gradient,
                        RelativeError(loss.grad_hidden[s], exact.gradients[s]));
  }
  const auto error = [found = WeightedLoss(loss)](const Exact& expected) {
    return std::abs(found / expected.loss - 1.0);
  };
  return {{"loss_error", error(exact)},
          {"loss_error_of_passes", error(of_same_logits)},
          {"gradient_error", gradient}};
}

// Resets the peak of resident memory.
void ForgetPeakMemory() { std::ofstream("/proc/self/clear_refs") << 5; }

// Returns the bytes of tensors on a GPU: now, and the most since the last
// reset.
c10::CachingAllocator::Stat GpuBytes() {
  return at::accelerator::getDeviceStats(0).allocated_bytes[static_cast<size_t>(
      c10::CachingAllocator::StatType::AGGREGATE)];
}

void Synchronize(const at::Tensor& tensor) {
  if (tensor.is_cuda()) tensor.flatten()[0].item();
}

// Returns the seconds of `work`.
template <typename Work>
double Time(const at::Tensor& any, const Work& work) {
  Synchronize(any);
  const absl::Time start = absl::Now();
  work();
  Synchronize(any);
  return absl::ToDoubleSeconds(absl::Now() - start);
}

int ServeOurs(const Inputs& in, HeadLossOptions options, nlohmann::json ready) {
  HeadWorkspace workspace;
  options.workspace = &workspace;
  const bool on_gpu = in.head.is_cuda();
  const int64_t before = on_gpu ? GpuBytes().current : 0;
  return ServeRounds(std::move(ready), [&](const std::string& request) {
    const Inputs part = in.First(std::stoll(request));
    if (on_gpu) at::accelerator::resetPeakStats(0);
    HeadLoss loss;
    const double seconds =
        Time(in.head, [&] { loss = Compute(part, options); });
    const int64_t extra = on_gpu ? GpuBytes().peak - before : 0;
    return nlohmann::json{
        {"seconds", seconds},
        {"gpu_extra_bytes", extra},
        {"loss", WeightedLoss(loss)},
        {"gradient_norm",
         at::cat(loss.grad_hidden).to(at::kDouble).norm().item<double>()}};
  });
}

// Runs the seven products by LibTorch's mm, in memory that is already
// allocated.
int ServeProducts(const Inputs& in, nlohmann::json ready) {
  const int64_t chunk = in.head.is_cpu() ? 128 : 512;
  const at::TensorOptions options = in.head.options();
  const int64_t vocabulary = in.head.size(0);
  at::Tensor logits =
      at::zeros({kForwardProducts * chunk, vocabulary}, options);
  return ServeRounds(std::move(ready), [&](const std::string& request) {
    const int64_t tokens = std::stoll(request);
    at::Tensor hidden =
        at::randn({kForwardProducts * chunk, in.head.size(1)}, options);
    at::Tensor gradient =
        at::empty({kBackwardProducts * chunk, in.head.size(1)}, options);
    const double seconds = Time(in.head, [&] {
      for (int64_t begin = 0; begin < tokens; begin += chunk) {
        at::mm_out(logits, hidden, in.head.t());
        at::mm_out(
            gradient, logits.narrow(0, 0, kBackwardProducts * chunk), in.head);
      }
    });
    return nlohmann::json{{"seconds", seconds}};
  });
}

int Main(int argc, char** argv) {
  if (argc < 7 || argc > 9) {
    std::cerr << "usage: dapd_loss_benchmark ours|products cpu|cuda "
                 "float32|bfloat16 HIDDEN TOKENS V [LOGITS [WARPS]]\n";
    return 2;
  }
  const auto choice = ParseName<DeviceChoice>(argv[2]);
  const auto precision = ParseName<Precision>(argv[3]);
  const auto logits =
      ParseName<Precision>(argc > 7 ? argv[7] : NameOf(Precision::kFloat32));
  TORCH_CHECK(choice && precision && logits, "unknown device or precision");
  const HeadLossOptions options{
      .temperature = kTemperature,
      .bfloat16_logits = *logits == Precision::kBfloat16,
      .cluster_warps = argc > 8 ? std::atoi(argv[8]) : 16};
  const auto device = OpenDevice({.device = *choice});
  TORCH_CHECK(device.ok(), device.status().message());
  at::NoGradGuard no_grad;
  const Inputs in(at::TensorOptions(TypeOf(*precision)).device(*device),
                  std::atoll(argv[4]),
                  std::atoll(argv[5]),
                  std::atoll(argv[6]));
  if (std::string(argv[1]) == "products") return ServeProducts(in, {});
  nlohmann::json ready;
  {
    at::AutoGradMode with_grad(true);
    ready = CompareWithDoubles(in.First(4), options);
  }
  ForgetPeakMemory();
  return ServeOurs(in, options, std::move(ready));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
