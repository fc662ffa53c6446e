// SPDX-License-Identifier: Apache-2.0
// The mathematics of the fast convolutions, for host and device: the kernels and the tests, which
// need no GPU, use the same functions.
#pragma once

#ifdef __CUDACC__
#define VGG19_HOST_DEVICE __host__ __device__
#else
#define VGG19_HOST_DEVICE
#endif

namespace vgg19 {

// Winograd F(2x2,3x3) (Lavin and Gray, arXiv:1509.09308): 2x2 outputs of a 3x3 convolution from 4x4
// inputs with 16 multiplications instead of 36:  output = A' [ (G filter G') * (B' input B) ] A
//
//        |  1    0    0  |         | 1  0 -1  0 |
//    G = | 1/2  1/2  1/2 |    B' = | 0  1  1  0 |    A' = | 1  1  1  0 |
//        | 1/2 -1/2  1/2 |         | 0 -1  1  0 |         | 0  1 -1 -1 |
//        |  0    0    1  |         | 0  1  0 -1 |
//
// All matrices are row by row.
constexpr int kWinogradOutput = 2;
constexpr int kWinogradTile = 4;
constexpr int kWinogradPoints = kWinogradTile * kWinogradTile;

VGG19_HOST_DEVICE inline void WinogradFilter(const float* filter, float* transformed) {
  float half[kWinogradTile][3];  // G filter
  for (int column = 0; column < 3; ++column) {
    const float a = filter[column];
    const float b = filter[3 + column];
    const float c = filter[6 + column];
    half[0][column] = a;
    half[1][column] = 0.5f * (a + b + c);
    half[2][column] = 0.5f * (a - b + c);
    half[3][column] = c;
  }
  for (int row = 0; row < kWinogradTile; ++row) {
    const float a = half[row][0];
    const float b = half[row][1];
    const float c = half[row][2];
    float* const out = transformed + row * kWinogradTile;
    out[0] = a;
    out[1] = 0.5f * (a + b + c);
    out[2] = 0.5f * (a - b + c);
    out[3] = c;
  }
}

VGG19_HOST_DEVICE inline void WinogradInput(const float* tile, float* transformed) {
  float half[kWinogradTile][kWinogradTile];  // B' tile
  for (int column = 0; column < kWinogradTile; ++column) {
    const float a = tile[column];
    const float b = tile[4 + column];
    const float c = tile[8 + column];
    const float d = tile[12 + column];
    half[0][column] = a - c;
    half[1][column] = b + c;
    half[2][column] = c - b;
    half[3][column] = b - d;
  }
  for (int row = 0; row < kWinogradTile; ++row) {
    const float a = half[row][0];
    const float b = half[row][1];
    const float c = half[row][2];
    const float d = half[row][3];
    float* const out = transformed + row * kWinogradTile;
    out[0] = a - c;
    out[1] = b + c;
    out[2] = c - b;
    out[3] = b - d;
  }
}

VGG19_HOST_DEVICE inline void WinogradOutput(const float* products, float* output) {
  float half[kWinogradOutput][kWinogradTile];  // A' products
  for (int column = 0; column < kWinogradTile; ++column) {
    const float a = products[column];
    const float b = products[4 + column];
    const float c = products[8 + column];
    const float d = products[12 + column];
    half[0][column] = a + b + c;
    half[1][column] = b - c - d;
  }
  for (int row = 0; row < kWinogradOutput; ++row) {
    const float a = half[row][0];
    const float b = half[row][1];
    const float c = half[row][2];
    const float d = half[row][3];
    output[row * kWinogradOutput] = a + b + c;
    output[row * kWinogradOutput + 1] = b - c - d;
  }
}

// Convolution by FFT: with f x f transforms, output = inverse( F(picture) * conj(F(filter)) ) is
//
//    output[y][x] = sum over (i, j) of picture[y + i][x + j] * filter[i][j],  all indices modulo f
//
// so the filter's offsets -1, 0, 1 are at f - 1, 0 and 1, and the output needs no shift. One zero
// row and column behind the picture serve both edges: index -1 is f - 1.
constexpr int FftSmallest(int picture) {
  return picture + 1;
}

// The position of offset -1, 0 or 1: `tap` counts from 0.
VGG19_HOST_DEVICE constexpr int FftTap(int tap, int size) {
  return tap == 0 ? size - 1 : tap - 1;
}

// The smallest size from `least` on whose only prime factors are 2, 3, 5 and 7. cuFFT has kernels
// for these; others cost it a longer transform and a larger workspace.
constexpr int FftSmooth(int least) {
  for (int size = least;; ++size) {
    int rest = size;
    for (const int factor : {2, 3, 5, 7}) {
      while (rest % factor == 0) {
        rest /= factor;
      }
    }
    if (rest == 1) {
      return size;
    }
  }
}

// sum += a * conj(b), of complex numbers as cuFFT has them: any type with x and y.
template <class Complex>
VGG19_HOST_DEVICE inline void AddProductWithConjugate(Complex a, Complex b, Complex* sum) {
  sum->x += a.x * b.x + a.y * b.y;
  sum->y += a.y * b.x - a.x * b.y;
}

// PyTorch's adaptive pooling: output `index` of `outputs` takes the inputs [first, end).
VGG19_HOST_DEVICE constexpr int AdaptiveFirst(int index, int inputs, int outputs) {
  return index * inputs / outputs;
}
VGG19_HOST_DEVICE constexpr int AdaptiveEnd(int index, int inputs, int outputs) {
  return ((index + 1) * inputs + outputs - 1) / outputs;
}

}  // namespace vgg19
