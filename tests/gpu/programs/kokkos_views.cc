// SPDX-License-Identifier: Apache-2.0
// A hundred labelled Views of a real Kokkos on a GPU, with kernels over them. Prints at each mark
// what the program has: [mark, {label: bytes}].
#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "vramscope/annotate.h"

namespace {

using View = Kokkos::View<double*, Kokkos::CudaSpace>;

constexpr int kViews = 100;
constexpr size_t kElements = size_t{1} << 18;

std::vector<View> g_views;

size_t ElementsOf(int view) {
  return kElements * static_cast<size_t>(1 + view % 5);
}

View Make(int view) {
  const std::string label = "field " + std::to_string(view);
  const View made(label, ElementsOf(view));
  Kokkos::parallel_for(
      "fill", made.extent(0), KOKKOS_LAMBDA(size_t i) { made(i) = static_cast<double>(i % 7); });
  return made;
}

double Sum() {
  double sum = 0;
  for (const View& view : g_views) {
    double part = 0;
    Kokkos::parallel_reduce(
        "sum", view.extent(0), KOKKOS_LAMBDA(size_t i, double& to) { to += view(i); }, part);
    sum += part;
  }
  return sum;
}

void Mark(const char* name) {
  std::printf("[\"%s\", {", name);
  const char* separator = "";
  for (const View& view : g_views) {
    std::printf("%s\"%s\": %zu", separator, view.label().c_str(), view.span() * sizeof(double));
    separator = ", ";
  }
  std::printf("}]\n");
  std::fflush(stdout);
  vramscope::Mark(name);
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  Kokkos::Profiling::pushRegion("assembly");
  for (int view = 0; view < kViews; ++view)
    g_views.push_back(Make(view));
  Kokkos::Profiling::popRegion();
  const double all = Sum();
  Mark("all");
  g_views.resize(kViews / 2);
  g_views.emplace_back("matrix", kElements * 3);
  Kokkos::fence();
  Mark("changed");
  std::fprintf(stderr, "sum %.0f, %.0f\n", all, Sum());
  g_views.clear();
  return 0;
}
