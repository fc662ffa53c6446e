// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver.h"

// A matrix in device memory as Multiply() reads it.
struct Matrix {
  driver::DevicePointer data = 0;
  unsigned row_stride = 0;
  unsigned column_stride = 0;
};

inline Matrix Rows(driver::DevicePointer data, unsigned columns) {
  return {data, columns, 1};
}
inline Matrix Transposed(driver::DevicePointer data, unsigned columns) {
  return {data, 1, columns};
}

// The kernels of kernels.cu, launched on the default stream.
class Kernels {
 public:
  explicit Kernels(const driver::Api& cu);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // result (rows x columns) = beta * result + a * b
  void Multiply(driver::DevicePointer result,
                Matrix a,
                Matrix b,
                unsigned rows,
                unsigned columns,
                unsigned inner,
                float beta) const;
  void Fill(driver::DevicePointer target,
            unsigned count,
            float value,
            float noise = 0,
            unsigned seed = 0) const;
  void StepForward(driver::DevicePointer gates,
                   driver::DevicePointer cell_before,
                   driver::DevicePointer cell,
                   driver::DevicePointer hidden,
                   unsigned batch,
                   unsigned units) const;
  void StepBackward(driver::DevicePointer gates,
                    driver::DevicePointer cell_before,
                    driver::DevicePointer cell,
                    driver::DevicePointer hidden_gradient,
                    driver::DevicePointer cell_gradient,
                    driver::DevicePointer gates_gradient,
                    unsigned batch,
                    unsigned units) const;
  void Difference(driver::DevicePointer result,
                  driver::DevicePointer a,
                  driver::DevicePointer b,
                  unsigned count,
                  float scale) const;
  void Descend(driver::DevicePointer value,
               driver::DevicePointer gradient,
               driver::DevicePointer momentum,
               unsigned count,
               float rate) const;

 private:
  driver::Function Get(const char* name) const;
  template <class... Arguments>
  void Launch(driver::Function function, unsigned threads, Arguments... arguments) const;

  const driver::Api& cu_;
  driver::Module module_ = nullptr;
  driver::Function multiply_, fill_, step_forward_, step_backward_, difference_, descend_;
};
