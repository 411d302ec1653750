// Overloaded: one visitor for std::visit made of a lambda for each alternative.
// A missing alternative does not compile.
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
