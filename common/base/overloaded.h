// For std::visit with a lambda for each alternative: one that is missing does
// not compile.
//
//   std::visit(Overloaded{[](const Circle& circle) { ... },
//                         [](const Square& square) { ... }},
//              shape);
#pragma once

namespace dapd {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace dapd
