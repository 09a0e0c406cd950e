// Calls of loaded kernels from Python, without asking Python anything twice.
//
// A Table remembers calls by what their arguments are: which tensors (type, shape, device) and flags, by
// which names. For a call that is known it checks what may differ between two such calls (strides, alignment,
// gradients, memory that overlaps), allocates the outputs by torch, and launches on torch's current stream.
// Whatever it does not know, or does not like, it answers with None, and Python decides.
//
// Tensors are read by the exchange functions of DLPack 1.3 (torch.Tensor.__dlpack_c_exchange_api__), so that
// nothing is linked against torch. The driver's functions come as addresses: nothing is linked against CUDA.

#include <initializer_list>

#include "plan.hpp"

namespace evo {
namespace {

// ---- reading the arguments

// 1: read; 0: not what a kernel may take; -1: an error is set
int read_tensor(const Table* table, PyObject* value, Seen* seen, Py_ssize_t at, bool* gradient) {
  DLTensor& tensor = seen->tensors[at];
  if (table->exchange->dltensor_from_py_object_no_sync(value, &tensor)) {
    PyErr_Clear();  // of a tensor without memory
    return 0;
  }
  seen->is_tensor[at] = true;
  seen->device = tensor.device;
  seen->aligned &= is_plain(tensor);
  bool fits = seen->add(int64_t{1} << 56 | int64_t{tensor.dtype.code} << 48 |
                        int64_t{tensor.dtype.bits} << 40 | int64_t{tensor.dtype.lanes} << 24 | tensor.ndim);
  fits &=
      seen->add(int64_t{tensor.device.device_type} << 32 | static_cast<uint32_t>(tensor.device.device_id));
  for (int side = 0; side < tensor.ndim; ++side) fits &= seen->add(tensor.shape[side]);
  PyObject* required = PyObject_GetAttr(value, table->requires_grad);
  if (!required) return -1;
  *gradient |= required == Py_True;
  Py_DECREF(required);
  return fits;
}

int name_of(const Table* table, PyObject* name) {
  const Py_ssize_t count = PyTuple_Size(table->names);
  for (int at = 0; at < count; ++at)
    if (PyTuple_GetItem(table->names, at) == name) return at;
  for (int at = 0; at < count; ++at)
    if (!PyUnicode_Compare(PyTuple_GetItem(table->names, at), name)) return at;
  return -1;
}

// As read_tensor, of one argument.
int read_value(const Table* table, PyObject* value, Seen* seen, bool* gradient) {
  const Py_ssize_t at = seen->count;
  if (at == kMostArguments) return 0;
  seen->values[at] = value;
  seen->is_tensor[at] = false;
  ++seen->count;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  if (type == table->tensor_type || type == table->parameter_type)
    return read_tensor(table, value, seen, at, gradient);
  if (value != Py_None && value != Py_True && value != Py_False) return 0;
  return seen->add(int64_t{2} << 56 | (value == Py_None ? 2 : value == Py_True));
}

// As read_tensor, of a call: a tuple of arguments by place, what `out` is, and a dictionary of others by
// name.
int read_call(const Table* table, PyObject* const* call, Seen* seen) {
  seen->count = 0;
  seen->words = 0;
  seen->aligned = true;
  bool gradient = false;
  int read = 1;
  const Py_ssize_t placed = PyTuple_Size(call[0]);
  for (Py_ssize_t at = 0; at < placed && read == 1; ++at)
    read = read_value(table, PyTuple_GetItem(call[0], at), seen, &gradient);
  if (read == 1 && !seen->add(int64_t{3} << 56)) return 0;
  if (read == 1) read = read_value(table, call[1], seen, &gradient);
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t next = 0;
  while (read == 1 && PyDict_Next(call[2], &next, &name, &value)) {
    const int known = name_of(table, name);
    if (known < 0 || !seen->add(int64_t{4} << 56 | known)) return 0;
    read = read_value(table, value, seen, &gradient);
  }
  if (read < 1 || !gradient) return read;
  PyObject* enabled = PyObject_CallNoArgs(table->is_grad_enabled);
  if (!enabled) return -1;
  Py_DECREF(enabled);
  return enabled != Py_True;
}

bool is_call(PyObject* const* call, Py_ssize_t count) {
  if (count == 3 && PyTuple_Check(call[0]) && PyDict_Check(call[2])) return true;
  PyErr_SetString(PyExc_TypeError, "a call is a tuple, an output or None, and a dict");
  return false;
}

// ---- launching

struct Outputs {
  PyObject* owned[kMostOutputs];
  void* addresses[kMostOutputs];
  int count;

  ~Outputs() {
    for (int at = 0; at < count; ++at) Py_XDECREF(owned[at]);
  }
};

// Of a tensor, or the number that says it. False: an error is set.
bool read_address(const Table* table, PyObject* made, void** out) {
  DLTensor fresh;
  if (PyLong_Check(made)) {
    *out = PyLong_AsVoidPtr(made);
    return !PyErr_Occurred();
  }
  if (table->exchange->dltensor_from_py_object_no_sync(made, &fresh)) return false;
  *out = address_of(fresh);
  return true;
}

// As read_tensor.
int make_outputs(Table* table, const Plan* plan, const Seen& seen, Outputs* outputs) {
  for (int at = 0; at < plan->outputs_count; ++at) {
    const Output& output = plan->outputs[at];
    PyObject* made = nullptr;
    if (output.given >= 0) {
      for (Py_ssize_t other = 0; other < seen.count; ++other)
        if (other != output.given && seen.is_tensor[other] &&
            overlap(seen.tensors[other], seen.tensors[output.given]))
          return 0;
      outputs->addresses[at] = address_of(seen.tensors[output.given]);
      made = seen.values[output.given];
      Py_INCREF(made);
    } else {
      PyObject* make = output.make == Py_None ? table->empty : output.make;
      made = output.like >= 0
                 ? PyObject_CallFunctionObjArgs(table->empty_like, seen.values[output.like], nullptr)
                 : PyObject_Call(make, table->nothing, output.kwargs);
      if (!made) return -1;
      if (!read_address(table, made, &outputs->addresses[at])) {
        Py_DECREF(made);
        return -1;
      }
    }
    outputs->owned[outputs->count++] = made;
  }
  return 1;
}

// The driver's answer.
int launch(const Table* table, const Plan* plan, const Seen& seen, const Outputs& outputs, void* stream) {
  alignas(64) unsigned char maps[kMostMaps][128];
  void* pointers[kMostParameters];
  void* parameters[kMostParameters];
  int next_map = 0, status = 0;
  for (int at = 0; at < plan->parameters_count && !status; ++at) {
    const Parameter& one = plan->parameters[at];
    if (one.kind == Parameter::kBytes) {
      parameters[at] = const_cast<unsigned char*>(one.bytes);
      continue;
    }
    void* address =
        one.source >= 0 ? address_of(seen.tensors[one.source]) : outputs.addresses[-1 - one.source];
    if (one.kind == Parameter::kPointer) {
      pointers[at] = address;
      parameters[at] = &pointers[at];
    } else {
      status = encode(table->driver, one.map, address, maps[next_map]);
      parameters[at] = maps[next_map++];
    }
  }
  if (status) return status;
  LaunchConfig config = plan->config;
  config.stream = stream;
  config.attributes = const_cast<LaunchAttribute*>(plan->attributes);
  return in_context(table->driver, plan->context,
                    [&] { return table->driver.launch(&config, plan->function, parameters, nullptr); });
}

PyObject* results_of(const Plan* plan, const Seen& seen, const Outputs& outputs) {
  const Py_ssize_t count = PyTuple_Size(plan->results);
  PyObject* named = count == 1 ? nullptr : PyDict_New();
  if (count != 1 && !named) return nullptr;
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* pair = PyTuple_GetItem(plan->results, at);
    const long source = PyLong_AsLong(PyTuple_GetItem(pair, 1));
    PyObject* value = source >= 0 ? seen.values[source] : outputs.owned[-1 - source];
    if (!named) {
      Py_INCREF(value);
      return value;
    }
    if (PyDict_SetItem(named, PyTuple_GetItem(pair, 0), value)) {
      Py_DECREF(named);
      return nullptr;
    }
  }
  return named;
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

PyObject* call(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (!is_call(given, count)) return nullptr;
  Table* table = reinterpret_cast<Table*>(self);
  Seen seen;
  const int read = read_call(table, given, &seen);
  if (read < 0) return nullptr;
  Plan* plan = read && seen.aligned ? find(table, seen) : nullptr;
  if (!plan) return none();
  Outputs outputs{};
  const int made = make_outputs(table, plan, seen, &outputs);
  if (made < 1) return made ? nullptr : none();
  void* stream = nullptr;
  const DLDevice device = seen.device;
  if (device.device_type != kDLCPU &&
      table->exchange->current_work_stream(device.device_type, device.device_id, &stream))
    return nullptr;
  ++plan->references;  // another thread may forget it meanwhile
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = launch(table, plan, seen, outputs, stream);
  Py_END_ALLOW_THREADS;
  PyObject* results = status ? none() : results_of(plan, seen, outputs);
  release(plan);
  return results;
}

// ---- what Python says once

bool read_numbers(PyObject* tuple, unsigned* out, int count) {
  for (int at = 0; at < count; ++at) {
    PyObject* one = PyTuple_GetItem(tuple, at);
    const unsigned long value = one ? PyLong_AsUnsignedLong(one) : 0;
    if (PyErr_Occurred()) return false;
    out[at] = static_cast<unsigned>(value);
  }
  return true;
}

// (kind, source, bytes): kind 0 a pointer, 1 bytes, 2 a tensor map.
bool read_parameter(PyObject* said, Parameter* out) {
  int kind = 0;
  const char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(said, "iiy#", &kind, &out->source, &bytes, &size)) return false;
  out->kind = static_cast<Parameter::Kind>(kind);
  const bool fits = kind == 0   ? true
                    : kind == 1 ? size <= static_cast<Py_ssize_t>(sizeof out->bytes)
                                : size == static_cast<Py_ssize_t>(sizeof out->map);
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "a parameter of another size");
    return false;
  }
  if (kind == 1) std::memcpy(out->bytes, bytes, size);
  if (kind == 2) std::memcpy(&out->map, bytes, size);
  return true;
}

bool read_lists(PyObject* parameters, PyObject* outputs, Plan* plan) {
  const Py_ssize_t parameters_count = PyTuple_Size(parameters), outputs_count = PyTuple_Size(outputs);
  int maps = 0;
  if (parameters_count > kMostParameters || outputs_count > kMostOutputs) {
    PyErr_SetString(PyExc_ValueError, "too many parameters or outputs");
    return false;
  }
  for (Py_ssize_t at = 0; at < parameters_count; ++at, ++plan->parameters_count) {
    if (!read_parameter(PyTuple_GetItem(parameters, at), &plan->parameters[at])) return false;
    maps += plan->parameters[at].kind == Parameter::kMap;
  }
  for (Py_ssize_t at = 0; at < outputs_count; ++at) {
    Output& output = plan->outputs[at];
    if (!PyArg_ParseTuple(PyTuple_GetItem(outputs, at), "iiOO", &output.given, &output.like, &output.kwargs,
                          &output.make))
      return false;
    Py_INCREF(output.kwargs);
    Py_INCREF(output.make);
    ++plan->outputs_count;
  }
  if (maps > kMostMaps) PyErr_SetString(PyExc_ValueError, "too many tensor maps");
  return maps <= kMostMaps;
}

void set_attributes(Plan* plan, const unsigned* cluster, bool cooperative) {
  unsigned count = 0;
  if (cluster[0] * cluster[1] * cluster[2] != 1) {
    plan->attributes[count].id = kClusterDimension;
    std::memcpy(plan->attributes[count++].value, cluster, 3 * sizeof(unsigned));
  }
  if (cooperative) {
    plan->attributes[count].id = kCooperative;
    plan->attributes[count++].value[0] = 1;
  }
  plan->config.attributes_count = count;
}

// (keep, function, context, (grid, block, shared memory), cluster, cooperative, parameters, outputs, results)
bool read_plan(PyObject* said, Plan* plan) {
  PyObject *numbers, *cluster, *parameters, *outputs;
  unsigned long long function = 0, context = 0;
  int cooperative = 0;
  unsigned sides[7], shape[3];
  if (!PyArg_ParseTuple(said, "OKKO!O!pO!O!O!", &plan->keep, &function, &context, &PyTuple_Type, &numbers,
                        &PyTuple_Type, &cluster, &cooperative, &PyTuple_Type, &parameters, &PyTuple_Type,
                        &outputs, &PyTuple_Type, &plan->results)) {
    plan->keep = plan->results = nullptr;
    return false;
  }
  Py_INCREF(plan->keep);
  Py_INCREF(plan->results);
  plan->function = reinterpret_cast<void*>(function);
  plan->context = reinterpret_cast<void*>(context);
  if (!read_numbers(numbers, sides, 7) || !read_numbers(cluster, shape, 3)) return false;
  std::memcpy(plan->config.grid, sides, sizeof plan->config.grid);
  std::memcpy(plan->config.block, sides + 3, sizeof plan->config.block);
  plan->config.smem_bytes = sides[6];
  set_attributes(plan, shape, cooperative);
  return read_lists(parameters, outputs, plan);
}

PyObject* add(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  Table* table = reinterpret_cast<Table*>(self);
  Seen seen;
  if (!is_call(given + 1, count - 1)) return nullptr;
  if (!PyTuple_Check(given[0])) return PyErr_SetString(PyExc_TypeError, "a plan is a tuple"), nullptr;
  const int read = read_call(table, given + 1, &seen);
  if (read < 0) return nullptr;
  if (!read || !seen.aligned || find(table, seen)) return PyBool_FromLong(0);
  Plan* plan = static_cast<Plan*>(std::calloc(1, sizeof(Plan)));
  if (!plan) return PyErr_NoMemory();
  plan->references = 1;
  plan->signature = static_cast<int64_t*>(std::malloc(sizeof(int64_t) * seen.words));
  if (!table->slots) table->slots = static_cast<Plan**>(std::calloc(kSlots, sizeof(Plan*)));
  if (!plan->signature || !table->slots || !read_plan(given[0], plan)) {
    release(plan);
    return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
  }
  std::memcpy(plan->signature, seen.signature, sizeof(int64_t) * seen.words);
  plan->words = seen.words;
  plan->hash = hash_of(seen.signature, seen.words);
  if (table->plans >= kMostPlans) forget(table);
  insert(table, plan);
  return PyBool_FromLong(1);
}

PyObject* drive(PyObject* self, PyObject* addresses) {
  unsigned long long at[6];
  if (!PyArg_ParseTuple(addresses, "KKKKKK", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5])) return nullptr;
  static_assert(sizeof(Driver) == sizeof at);
  std::memcpy(&reinterpret_cast<Table*>(self)->driver, at, sizeof at);
  return none();
}

PyObject* size(PyObject* self, PyObject*) {
  return PyLong_FromSsize_t(reinterpret_cast<Table*>(self)->plans);
}

// Table(tensor types, exchange, empty, empty_like, is_grad_enabled, names)
int begin(PyObject* self, PyObject* arguments, PyObject*) {
  Table* table = reinterpret_cast<Table*>(self);
  PyObject* exchange;
  if (!PyArg_ParseTuple(arguments, "OOOOOOO!", &table->tensor_type, &table->parameter_type, &exchange,
                        &table->empty, &table->empty_like, &table->is_grad_enabled, &PyTuple_Type,
                        &table->names)) {
    // what was read is borrowed still
    table->tensor_type = table->parameter_type = table->empty = table->empty_like = nullptr;
    table->is_grad_enabled = table->names = nullptr;
    return -1;
  }
  for (PyObject* kept : {table->tensor_type, table->parameter_type, table->empty, table->empty_like,
                         table->is_grad_enabled, table->names})
    Py_INCREF(kept);
  table->requires_grad = PyUnicode_InternFromString("requires_grad");
  table->nothing = PyTuple_New(0);
  table->exchange =
      static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(exchange, "dlpack_exchange_api"));
  if (!table->exchange) return -1;
  if (table->exchange->major != kDLPackMajor || !table->exchange->dltensor_from_py_object_no_sync) {
    PyErr_SetString(PyExc_RuntimeError, "torch has another DLPack");
    return -1;
  }
  return 0;
}

void end(PyObject* self) {
  Table* table = reinterpret_cast<Table*>(self);
  PyTypeObject* type = Py_TYPE(self);
  forget(table);
  std::free(table->slots);
  for (PyObject* kept : {table->tensor_type, table->parameter_type, table->empty, table->empty_like,
                         table->is_grad_enabled, table->names, table->requires_grad, table->nothing})
    Py_XDECREF(kept);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

template <class Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"call", as_method(call), METH_FASTCALL,
     "Launches a call that is known, and gives its outputs; else None."},
    {"add", as_method(add), METH_FASTCALL, "From now on such calls are known."},
    {"drive", drive, METH_VARARGS, "The addresses of the driver's functions, in the order of abi.hpp."},
    {"size", size, METH_NOARGS, "How many calls are known."},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot kTable[] = {
    {Py_tp_init, reinterpret_cast<void*>(begin)},
    {Py_tp_dealloc, reinterpret_cast<void*>(end)},
    {Py_tp_methods, kMethods},
    {0, nullptr},
};
PyType_Spec kTableSpec = {"evo_fast.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, kTable};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "evo_fast",
                       "Calls of loaded kernels.",
                       -1,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace evo

PyMODINIT_FUNC PyInit_evo_fast() {
  PyObject* module = PyModule_Create(&evo::kModule);
  PyObject* type = module ? PyType_FromSpec(&evo::kTableSpec) : nullptr;
  if (!type || PyModule_AddObject(module, "Table", type)) {
    Py_XDECREF(type);
    Py_XDECREF(module);
    return nullptr;
  }
  return module;
}
