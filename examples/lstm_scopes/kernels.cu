// SPDX-License-Identifier: Apache-2.0
// What the network computes with. kernels.ptx is made of this file and kept beside it, so that the
// example builds without a CUDA toolkit, and declared as of PTX 6.4, so that older drivers take it:
//
//   nvcc -ptx -arch=compute_75 kernels.cu -o kernels.ptx
//   sed -i 's/^.version .*/.version 6.4/' kernels.ptx

// C = beta C + A B, one thread an element. Strides say where the rows and columns of A and B are:
// swapped ones transpose, zeros repeat one value.
extern "C" __global__ void Multiply(float* c,
                                    const float* a,
                                    const float* b,
                                    unsigned rows,
                                    unsigned columns,
                                    unsigned inner,
                                    unsigned a_row,
                                    unsigned a_column,
                                    unsigned b_row,
                                    unsigned b_column,
                                    float beta) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= rows * columns)
    return;
  const unsigned row = at / columns, column = at % columns;
  float sum = beta != 0 ? beta * c[at] : 0;
  for (unsigned k = 0; k < inner; ++k)
    sum += a[row * a_row + k * a_column] * b[k * b_row + column * b_column];
  c[at] = sum;
}

// Every element value +- noise.
extern "C" __global__ void Fill(float* target,
                                unsigned count,
                                float value,
                                float noise,
                                unsigned seed) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count)
    return;
  unsigned hash = (at + seed * 0x9e3779b9u) * 0x85ebca6bu;
  hash = (hash ^ (hash >> 13)) * 0xc2b2ae35u;
  hash ^= hash >> 16;
  target[at] = value + noise * (static_cast<float>(hash) * 4.656612873e-10f - 1.0f);
}

__device__ float Tanh(float x) {
  return 1.0f - 2.0f / (__expf(2.0f * x) + 1.0f);
}

__device__ float Sigmoid(float x) {
  return 1.0f / (__expf(-x) + 1.0f);
}

// One step of the cell. `gates` (batch x 4 units: in, forget, candidate, out) comes as sums and
// leaves as their activations, which the way back needs.
extern "C" __global__ void StepForward(float* gates,
                                       const float* cell_before,
                                       float* cell,
                                       float* hidden,
                                       unsigned batch,
                                       unsigned units) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= batch * units)
    return;
  float* const gate = gates + at / units * 4 * units + at % units;
  const float in = Sigmoid(gate[0]);
  const float forget = Sigmoid(gate[units]);
  const float candidate = Tanh(gate[2 * units]);
  const float out = Sigmoid(gate[3 * units]);
  gate[0] = in;
  gate[units] = forget;
  gate[2 * units] = candidate;
  gate[3 * units] = out;
  cell[at] = forget * cell_before[at] + in * candidate;
  hidden[at] = out * Tanh(cell[at]);
}

// The same step backwards. `cell_gradient` comes as that of the cell after the step and leaves as
// that of the cell before it.
extern "C" __global__ void StepBackward(const float* gates,
                                        const float* cell_before,
                                        const float* cell,
                                        const float* hidden_gradient,
                                        float* cell_gradient,
                                        float* gates_gradient,
                                        unsigned batch,
                                        unsigned units) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= batch * units)
    return;
  const unsigned first = at / units * 4 * units + at % units;
  const float in = gates[first], forget = gates[first + units];
  const float candidate = gates[first + 2 * units], out = gates[first + 3 * units];
  const float squashed = Tanh(cell[at]);
  const float of_hidden = hidden_gradient[at];
  const float of_cell = cell_gradient[at] + of_hidden * out * (1.0f - squashed * squashed);
  gates_gradient[first] = of_cell * candidate * in * (1.0f - in);
  gates_gradient[first + units] = of_cell * cell_before[at] * forget * (1.0f - forget);
  gates_gradient[first + 2 * units] = of_cell * in * (1.0f - candidate * candidate);
  gates_gradient[first + 3 * units] = of_hidden * squashed * out * (1.0f - out);
  cell_gradient[at] = of_cell * forget;
}

extern "C" __global__ void Difference(float* result,
                                      const float* a,
                                      const float* b,
                                      unsigned count,
                                      float scale) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count)
    result[at] = scale * (a[at] - b[at]);
}

extern "C" __global__ void Descend(float* value,
                                   const float* gradient,
                                   float* momentum,
                                   unsigned count,
                                   float rate) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count)
    return;
  momentum[at] = 0.9f * momentum[at] + gradient[at];
  value[at] -= rate * momentum[at];
}
