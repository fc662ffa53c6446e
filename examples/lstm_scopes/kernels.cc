// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include "kernels_ptx.h"

Kernels::Kernels(const driver::Api& cu) : cu_(cu) {
  driver::Check(cu.ModuleLoadData(&module_, kKernelsPtx), "cuModuleLoadData");
  multiply_ = Get("Multiply");
  fill_ = Get("Fill");
  step_forward_ = Get("StepForward");
  step_backward_ = Get("StepBackward");
  difference_ = Get("Difference");
  descend_ = Get("Descend");
}

Kernels::~Kernels() {
  driver::Check(cu_.ModuleUnload(module_), "cuModuleUnload");
}

driver::Function Kernels::Get(const char* name) const {
  driver::Function function = nullptr;
  driver::Check(cu_.ModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
  return function;
}

template <class... Arguments>
void Kernels::Launch(driver::Function function, unsigned threads, Arguments... arguments) const {
  void* pointers[] = {&arguments...};
  driver::Check(cu_.LaunchKernel(function, (threads + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr,
                                 pointers, nullptr),
                "cuLaunchKernel");
}

void Kernels::Multiply(driver::DevicePointer result,
                       Matrix a,
                       Matrix b,
                       unsigned rows,
                       unsigned columns,
                       unsigned inner,
                       float beta) const {
  Launch(multiply_, rows * columns, result, a.data, b.data, rows, columns, inner, a.row_stride,
         a.column_stride, b.row_stride, b.column_stride, beta);
}

void Kernels::Fill(driver::DevicePointer target,
                   unsigned count,
                   float value,
                   float noise,
                   unsigned seed) const {
  Launch(fill_, count, target, count, value, noise, seed);
}

void Kernels::StepForward(driver::DevicePointer gates,
                          driver::DevicePointer cell_before,
                          driver::DevicePointer cell,
                          driver::DevicePointer hidden,
                          unsigned batch,
                          unsigned units) const {
  Launch(step_forward_, batch * units, gates, cell_before, cell, hidden, batch, units);
}

void Kernels::StepBackward(driver::DevicePointer gates,
                           driver::DevicePointer cell_before,
                           driver::DevicePointer cell,
                           driver::DevicePointer hidden_gradient,
                           driver::DevicePointer cell_gradient,
                           driver::DevicePointer gates_gradient,
                           unsigned batch,
                           unsigned units) const {
  Launch(step_backward_, batch * units, gates, cell_before, cell, hidden_gradient, cell_gradient,
         gates_gradient, batch, units);
}

void Kernels::Difference(driver::DevicePointer result,
                         driver::DevicePointer a,
                         driver::DevicePointer b,
                         unsigned count,
                         float scale) const {
  Launch(difference_, count, result, a, b, count, scale);
}

void Kernels::Descend(driver::DevicePointer value,
                      driver::DevicePointer gradient,
                      driver::DevicePointer momentum,
                      unsigned count,
                      float rate) const {
  Launch(descend_, count, value, gradient, momentum, count, rate);
}
