// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels.h"
#include "pool.h"

// One line of a model description: "lstm l0 inputs=96 units=256".
struct LayerDescription {
  std::string kind;
  std::string name;
  unsigned inputs = 0;
  unsigned units = 0;
};

// Ends the program with one line where the description makes no sense.
std::vector<LayerDescription> ParseDescription(const std::string& text);

// What is learnt, with what goes along with it. `name` is its path in the model,
// "lstm/l0/i2h/weight"; the others' names are made of it.
struct Parameter {
  std::string name;
  unsigned count = 0;
  Buffer value;
  Buffer gradient;  // from the first way back on
  Buffer momentum;  // from the first step of the optimizer on
};

// A map with weight and bias: i2h or h2h.
struct Linear {
  std::string name;
  Parameter weight;
  Parameter bias;
};

// What one time step leaves for the way back.
struct Step {
  Buffer gates;
  Buffer cell;
  Buffer hidden;
};

struct Layer {
  LayerDescription description;
  std::string path;  // "lstm/l0"
  Linear i2h;
  Linear h2h;
  std::vector<Step> steps;
  // Of the step that the way back has come to.
  Buffer hidden_gradient;
  Buffer cell_gradient;
};

class Lstm {
 public:
  Lstm(const std::vector<LayerDescription>& description,
       unsigned batch,
       const Kernels& kernels,
       Pool& pool);

  // Runs the sequence (one batch x inputs matrix a step) and keeps what Backward() needs.
  void Forward(const std::vector<Buffer>& sequence);
  // `output_gradient` is that of output().
  void Backward(const std::vector<Buffer>& sequence, const Buffer& output_gradient);
  void Optimize(float rate);

  // The last layer's hidden state after the last step.
  const Buffer& output() const { return layers_.back().steps.back().hidden; }
  unsigned output_count() const { return batch_ * layers_.back().description.units; }

 private:
  Parameter MakeParameter(const std::string& path, unsigned count, float noise);
  Linear MakeLinear(const std::string& path, unsigned outputs, unsigned inputs);
  void StepForward(Layer& layer, size_t t, driver::DevicePointer input);
  void StepBackward(size_t layer_index, size_t t, driver::DevicePointer input);
  void AddGradients(Linear& linear,
                    driver::DevicePointer gates_gradient,
                    driver::DevicePointer input,
                    unsigned outputs,
                    unsigned inputs);
  void Descend(Parameter& parameter, float rate);

  unsigned batch_;
  unsigned seed_ = 0;
  const Kernels& kernels_;
  Pool& pool_;
  Buffer one_;      // a matrix of ones of any size, with strides of 0
  Buffer nothing_;  // the state before the first step
  std::vector<Layer> layers_;
};
