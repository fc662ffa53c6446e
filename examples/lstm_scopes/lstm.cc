// SPDX-License-Identifier: Apache-2.0
#include "lstm.h"

#include <vramscope/annotate.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace {

[[noreturn]] void Refuse(const std::string& line, const char* why) {
  std::fprintf(stderr, "example_lstm_scopes: %s: %s\n", line.c_str(), why);
  std::exit(2);
}

std::string StepPath(const Layer& layer, size_t t) {
  return layer.path + "/t" + std::to_string(t);
}

}  // namespace

std::vector<LayerDescription> ParseDescription(const std::string& text) {
  std::vector<LayerDescription> layers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty())
      continue;
    LayerDescription layer;
    char kind[32] = "", name[32] = "";
    if (std::sscanf(line.c_str(), "%31s %31s inputs=%u units=%u", kind, name, &layer.inputs,
                    &layer.units) != 4) {
      Refuse(line, "not of the form `lstm NAME inputs=N units=N`");
    }
    layer.kind = kind;
    layer.name = name;
    if (layer.kind != "lstm" || layer.inputs == 0 || layer.units == 0)
      Refuse(line, "only lstm layers of one unit or more can be built");
    if (!layers.empty() && layers.back().units != layer.inputs)
      Refuse(line, "its inputs are not the units of the layer before it");
    layers.push_back(std::move(layer));
  }
  if (layers.empty())
    Refuse("the model", "has no layers");
  return layers;
}

Lstm::Lstm(const std::vector<LayerDescription>& description,
           unsigned batch,
           const Kernels& kernels,
           Pool& pool)
    : batch_(batch), kernels_(kernels), pool_(pool) {
  unsigned widest = 0;
  for (const LayerDescription& one : description) {
    // Everything that is allocated until the end of the block is in this scope.
    vramscope::Scope kind(one.kind.c_str());
    vramscope::Scope name(one.name.c_str());
    Layer layer;
    layer.description = one;
    layer.path = one.kind + "/" + one.name;
    layer.i2h = MakeLinear(layer.path + "/i2h", 4 * one.units, one.inputs);
    layer.h2h = MakeLinear(layer.path + "/h2h", 4 * one.units, one.units);
    widest = std::max(widest, one.units);
    layers_.push_back(std::move(layer));
  }
  one_ = Buffer(pool_, 1, "lstm/one");
  nothing_ = Buffer(pool_, batch * widest, "lstm/state before the first step");
  kernels_.Fill(one_.get(), 1, 1.0f);
  kernels_.Fill(nothing_.get(), batch * widest, 0.0f);
}

Parameter Lstm::MakeParameter(const std::string& path, unsigned count, float noise) {
  Parameter parameter;
  parameter.name = path;
  parameter.count = count;
  parameter.value = Buffer(pool_, count, path);
  kernels_.Fill(parameter.value.get(), count, 0.0f, noise, ++seed_);
  return parameter;
}

Linear Lstm::MakeLinear(const std::string& path, unsigned outputs, unsigned inputs) {
  const std::string name = path.substr(path.rfind('/') + 1);
  vramscope::Scope scope(name.c_str());
  const float noise = 1.0f / std::sqrt(static_cast<float>(inputs));
  return {name, MakeParameter(path + "/weight", outputs * inputs, noise),
          MakeParameter(path + "/bias", outputs, 0.0f)};
}

void Lstm::Forward(const std::vector<Buffer>& sequence) {
  for (Layer& layer : layers_)
    layer.steps.clear();  // in case there was no way back
  for (size_t t = 0; t < sequence.size(); ++t) {
    driver::DevicePointer input = sequence[t].get();
    for (Layer& layer : layers_) {
      StepForward(layer, t, input);
      input = layer.steps[t].hidden.get();
    }
  }
}

// gates = input * i2h^T + hidden * h2h^T + both biases, then the cell.
void Lstm::StepForward(Layer& layer, size_t t, driver::DevicePointer input) {
  vramscope::Scope kind(layer.description.kind.c_str());
  vramscope::Scope name(layer.description.name.c_str());
  const unsigned inputs = layer.description.inputs, units = layer.description.units;
  const std::string path = StepPath(layer, t);
  Step step;
  step.gates = Buffer(pool_, batch_ * 4 * units, path + "/gates");
  step.cell = Buffer(pool_, batch_ * units, path + "/cell");
  step.hidden = Buffer(pool_, batch_ * units, path + "/hidden");
  const driver::DevicePointer hidden = t > 0 ? layer.steps[t - 1].hidden.get() : nothing_.get();
  const driver::DevicePointer cell = t > 0 ? layer.steps[t - 1].cell.get() : nothing_.get();
  const Matrix ones = {one_.get(), 0, 0};
  const auto add = [&](Matrix a, Matrix b, unsigned inner, float beta) {
    kernels_.Multiply(step.gates.get(), a, b, batch_, 4 * units, inner, beta);
  };
  add(Rows(input, inputs), Transposed(layer.i2h.weight.value.get(), inputs), inputs, 0);
  add(Rows(hidden, units), Transposed(layer.h2h.weight.value.get(), units), units, 1);
  add(ones, Rows(layer.i2h.bias.value.get(), 0), 1, 1);
  add(ones, Rows(layer.h2h.bias.value.get(), 0), 1, 1);
  kernels_.StepForward(step.gates.get(), cell, step.cell.get(), step.hidden.get(), batch_, units);
  layer.steps.push_back(std::move(step));
}

void Lstm::Backward(const std::vector<Buffer>& sequence, const Buffer& output_gradient) {
  for (Layer& layer : layers_) {
    vramscope::Scope kind(layer.description.kind.c_str());
    vramscope::Scope name(layer.description.name.c_str());
    const unsigned count = batch_ * layer.description.units;
    layer.hidden_gradient = Buffer(pool_, count, layer.path + "/hidden/gradient");
    layer.cell_gradient = Buffer(pool_, count, layer.path + "/cell/gradient");
    kernels_.Fill(layer.hidden_gradient.get(), count, 0.0f);
    kernels_.Fill(layer.cell_gradient.get(), count, 0.0f);
  }
  // Less nothing: a copy.
  kernels_.Difference(layers_.back().hidden_gradient.get(), output_gradient.get(), nothing_.get(),
                      output_count(), 1.0f);
  for (Layer& layer : layers_) {
    for (Linear* linear : {&layer.i2h, &layer.h2h}) {
      for (Parameter* parameter : {&linear->weight, &linear->bias}) {
        if (parameter->gradient)
          kernels_.Fill(parameter->gradient.get(), parameter->count, 0.0f);
      }
    }
  }
  for (size_t t = sequence.size(); t-- != 0;) {
    for (size_t i = layers_.size(); i-- != 0;)
      StepBackward(i, t, i > 0 ? layers_[i - 1].steps[t].hidden.get() : sequence[t].get());
    // The step's activations go back to the pool, whose next taker gives them its own name.
    for (Layer& layer : layers_)
      layer.steps.pop_back();
  }
  for (Layer& layer : layers_) {
    layer.hidden_gradient = Buffer();
    layer.cell_gradient = Buffer();
  }
}

void Lstm::StepBackward(size_t layer_index, size_t t, driver::DevicePointer input) {
  Layer& layer = layers_[layer_index];
  vramscope::Scope kind(layer.description.kind.c_str());
  vramscope::Scope name(layer.description.name.c_str());
  const unsigned inputs = layer.description.inputs, units = layer.description.units;
  const Step& step = layer.steps[t];
  const driver::DevicePointer hidden = t > 0 ? layer.steps[t - 1].hidden.get() : nothing_.get();
  const driver::DevicePointer cell = t > 0 ? layer.steps[t - 1].cell.get() : nothing_.get();
  const Buffer gates(pool_, batch_ * 4 * units, StepPath(layer, t) + "/gates/gradient");
  kernels_.StepBackward(step.gates.get(), cell, step.cell.get(), layer.hidden_gradient.get(),
                        layer.cell_gradient.get(), gates.get(), batch_, units);
  AddGradients(layer.i2h, gates.get(), input, 4 * units, inputs);
  AddGradients(layer.h2h, gates.get(), hidden, 4 * units, units);
  kernels_.Multiply(layer.hidden_gradient.get(), Rows(gates.get(), 4 * units),
                    Rows(layer.h2h.weight.value.get(), units), batch_, units, 4 * units, 0);
  if (layer_index > 0) {
    kernels_.Multiply(layers_[layer_index - 1].hidden_gradient.get(), Rows(gates.get(), 4 * units),
                      Rows(layer.i2h.weight.value.get(), inputs), batch_, inputs, 4 * units, 1);
  }
}

void Lstm::AddGradients(Linear& linear,
                        driver::DevicePointer gates_gradient,
                        driver::DevicePointer input,
                        unsigned outputs,
                        unsigned inputs) {
  vramscope::Scope scope(linear.name.c_str());
  for (Parameter* parameter : {&linear.weight, &linear.bias}) {
    if (parameter->gradient)
      continue;
    parameter->gradient = Buffer(pool_, parameter->count, parameter->name + "/gradient");
    kernels_.Fill(parameter->gradient.get(), parameter->count, 0.0f);
  }
  const Matrix gates = Transposed(gates_gradient, outputs);
  kernels_.Multiply(linear.weight.gradient.get(), gates, Rows(input, inputs), outputs, inputs,
                    batch_, 1);
  kernels_.Multiply(linear.bias.gradient.get(), gates, {one_.get(), 0, 0}, outputs, 1, batch_, 1);
}

void Lstm::Optimize(float rate) {
  for (Layer& layer : layers_) {
    vramscope::Scope kind(layer.description.kind.c_str());
    vramscope::Scope name(layer.description.name.c_str());
    for (Linear* linear : {&layer.i2h, &layer.h2h}) {
      vramscope::Scope scope(linear->name.c_str());
      Descend(linear->weight, rate);
      Descend(linear->bias, rate);
    }
  }
}

void Lstm::Descend(Parameter& parameter, float rate) {
  if (!parameter.momentum) {
    parameter.momentum = Buffer(pool_, parameter.count, parameter.name + "/momentum");
    kernels_.Fill(parameter.momentum.get(), parameter.count, 0.0f);
  }
  kernels_.Descend(parameter.value.get(), parameter.gradient.get(), parameter.momentum.get(),
                   parameter.count, rate);
}
