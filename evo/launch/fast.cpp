// Calls of loaded kernels from Python, without asking Python anything twice.
//
// A Table remembers calls by what their arguments are: which tensors (type, shape, device) and flags, by
// which names. For a call that is known it checks what may differ between two such calls (strides, alignment,
// gradients, memory that overlaps), allocates the outputs by torch, and launches on torch's current stream.
// Whatever it does not know, or does not like, it answers with None, and Python decides.
//
// Tensors are read by the exchange functions of DLPack 1.3 (torch.Tensor.__dlpack_c_exchange_api__), so that
// nothing is linked against torch. The driver's functions come as addresses: nothing is linked against CUDA.

#include "plan.hpp"

namespace evo {
namespace {

// ---- reading the arguments

// 1: read; 0: not what a kernel may take; -1: an error is set
int read_tensor(const Table* table, PyObject* value, Seen* seen, Py_ssize_t at) {
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
  if (!fits || !seen->gradients) return fits;
  PyObject* required = PyObject_GetAttr(value, table->requires_grad);
  if (!required) return -1;
  Py_DECREF(required);
  return required != Py_True;
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
int read_value(const Table* table, PyObject* value, Seen* seen) {
  const Py_ssize_t at = seen->count;
  if (at == kMostArguments) return 0;
  seen->values[at] = value;
  seen->is_tensor[at] = false;
  ++seen->count;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  if (type == table->tensor_type || type == table->parameter_type) return read_tensor(table, value, seen, at);
  return add_flag(seen, value);
}

// As read_tensor, of a call: a tuple of arguments by place, what `out` is, and a dictionary of others by
// name.
int read_call(const Table* table, PyObject* const* call, Seen* seen) {
  seen->count = 0;
  seen->words = 0;
  seen->aligned = true;
  PyObject* enabled = PyObject_CallNoArgs(table->is_grad_enabled);
  if (!enabled) return -1;
  seen->gradients = enabled == Py_True;
  Py_DECREF(enabled);
  int read = 1;
  const Py_ssize_t placed = PyTuple_Size(call[0]);
  for (Py_ssize_t at = 0; at < placed && read == 1; ++at)
    read = read_value(table, PyTuple_GetItem(call[0], at), seen);
  if (read == 1 && !seen->add(int64_t{3} << 56)) return 0;
  if (read == 1) read = read_value(table, call[1], seen);
  PyObject *name = nullptr, *value = nullptr;
  Py_ssize_t next = 0;
  while (read == 1 && PyDict_Next(call[2], &next, &name, &value)) {
    const int known = name_of(table, name);
    if (known < 0 || !seen->add(int64_t{4} << 56 | known)) return 0;
    read = read_value(table, value, seen);
  }
  return read;
}

bool is_call(PyObject* const* call, Py_ssize_t count) {
  if (count == 3 && PyTuple_Check(call[0]) && PyDict_Check(call[2])) return true;
  PyErr_SetString(PyExc_TypeError, "a call is a tuple, an output or None, and a dict");
  return false;
}

// ---- launching

// Where and when a call is made.
struct Moment {
  void* stream;
  uint64_t capture;
  bool on_device;  // what is allocated for the current device lies on the call's
};

struct Made {
  PyObject* owned[kMostOutputs];  // nullptr: an address alone
  void* addresses[kMostOutputs];
  int count;

  ~Made() {
    for (int at = 0; at < count; ++at) Py_XDECREF(owned[at]);
  }
};

// As read_tensor.
int read_moment(const Table* table, const Plan* plan, DLDevice device, Moment* moment) {
  *moment = {};
  if (device.device_type != kDLCPU &&
      table->exchange->current_work_stream(device.device_type, device.device_id, &moment->stream))
    return -1;
  void* context = nullptr;
  if (plan->context && table->driver.current && table->driver.current(&context)) return 0;
  moment->on_device = context == plan->context;
  for (int at = 0; at < plan->outputs_count; ++at)
    if (plan->outputs[at].kept != Py_None)
      return !captured_by(table->driver, moment->stream, &moment->capture);
  return 1;
}

// As read_tensor: of a workspace that is kept.
int find_home(Output* output, const Moment& moment, void** out) {
  for (const Home& home : output->homes)
    if (home.address && home.stream == moment.stream && home.capture == moment.capture)
      return *out = home.address, 1;
  PyObject* found = PyObject_CallFunction(output->kept, "KK", reinterpret_cast<uintptr_t>(moment.stream),
                                          static_cast<unsigned long long>(moment.capture));
  if (!found) return -1;
  *out = PyLong_AsVoidPtr(found);
  Py_DECREF(found);
  if (PyErr_Occurred()) return -1;
  output->homes[output->next_home++ % kRecent] = {moment.stream, moment.capture, *out};
  return 1;
}

// As read_tensor: of an output that is a fresh tensor, or of a workspace that is.
int make_tensor(const Table* table, const Output& output, const Moment& moment, Made* made) {
  PyObject* fresh =
      moment.on_device && output.quick != Py_None
          ? PyObject_CallFunctionObjArgs(output.quick, output.size, output.strides, output.dtype, nullptr)
          : PyObject_Call(table->empty, table->nothing, output.kwargs);
  if (!fresh) return -1;
  DLTensor tensor;
  made->owned[made->count] = fresh;
  if (table->exchange->dltensor_from_py_object_no_sync(fresh, &tensor)) return ++made->count, -1;
  made->addresses[made->count++] = address_of(tensor);
  return 1;
}

// As read_tensor.
int make_outputs(const Table* table, Plan* plan, const Seen& seen, const Moment& moment, Made* made) {
  for (int at = 0; at < plan->outputs_count; ++at) {
    Output& output = plan->outputs[at];
    int done = 1;
    if (output.given >= 0) {
      for (Py_ssize_t other = 0; other < seen.count; ++other)
        if (other != output.given && seen.is_tensor[other] &&
            overlap(seen.tensors[other], seen.tensors[output.given]))
          return 0;
      made->addresses[made->count] = address_of(seen.tensors[output.given]);
      Py_INCREF(made->owned[made->count++] = seen.values[output.given]);
    } else if (output.kept != Py_None) {
      done = find_home(&output, moment, &made->addresses[made->count++]);
    } else {
      done = make_tensor(table, output, moment, made);
    }
    if (done < 1) return done;
  }
  return 1;
}

struct Arguments {
  alignas(64) unsigned char maps[kMostMaps][kMapBytes];
  void* pointers[kMostParameters];
  void* parameters[kMostParameters];
};

// The driver's answer.
int encode_once(const Driver& driver, const TensorMap& map, Encoded* recent, void* address, void* out) {
  for (int at = 0; at < kRecent; ++at)
    if (recent->addresses[at] == address) return std::memcpy(out, recent->maps[at], kMapBytes), 0;
  if (const int status = encode(driver, map, address, out)) return status;
  const unsigned at = recent->next++ % kRecent;
  recent->addresses[at] = address;
  std::memcpy(recent->maps[at], out, kMapBytes);
  return 0;
}

// The driver's answer.
int fill(const Driver& driver, Plan* plan, const Seen& seen, const Made& made, Arguments* out) {
  int next_map = 0, status = 0;
  for (int at = 0; at < plan->parameters_count && !status; ++at) {
    Parameter& one = plan->parameters[at];
    if (one.kind == Parameter::kBytes) {
      out->parameters[at] = one.bytes;
      continue;
    }
    void* address = one.source >= 0 ? address_of(seen.tensors[one.source]) : made.addresses[-1 - one.source];
    if (one.kind == Parameter::kPointer) {
      out->pointers[at] = address;
      out->parameters[at] = &out->pointers[at];
    } else {
      out->parameters[at] = out->maps[next_map];
      status = encode_once(driver, one.map, &plan->encoded[next_map], address, out->maps[next_map]);
      ++next_map;
    }
  }
  return status;
}

// The driver's answer.
int launch(const Driver& driver, Plan* plan, void* stream, Arguments* arguments) {
  LaunchConfig config = plan->config;
  config.stream = stream;
  config.attributes = plan->attributes;
  return in_context(driver, plan->context,
                    [&] { return driver.launch(&config, plan->function, arguments->parameters, nullptr); });
}

PyObject* results_of(const Plan* plan, const Seen& seen, const Made& made) {
  const Py_ssize_t count = PyTuple_Size(plan->results);
  PyObject* named = count == 1 ? nullptr : PyDict_New();
  if (count != 1 && !named) return nullptr;
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* pair = PyTuple_GetItem(plan->results, at);
    const long source = PyLong_AsLong(PyTuple_GetItem(pair, 1));
    PyObject* value = source >= 0 ? seen.values[source] : made.owned[-1 - source];
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
  Moment moment;
  Made made{};
  ++plan->references;  // what Python is asked, or another thread, may forget it meanwhile
  int done = read_moment(table, plan, seen.device, &moment);
  if (done == 1) done = make_outputs(table, plan, seen, moment, &made);
  PyObject* results = nullptr;
  if (done == 1) {
    Arguments arguments;
    int status = fill(table->driver, plan, seen, made, &arguments);
    if (!status) {
      Py_BEGIN_ALLOW_THREADS;
      status = launch(table->driver, plan, moment.stream, &arguments);
      Py_END_ALLOW_THREADS;
    }
    results = status ? none() : results_of(plan, seen, made);
  }
  release(plan);
  return done ? results : none();
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
    Output& one = plan->outputs[at];
    if (!PyArg_ParseTuple(PyTuple_GetItem(outputs, at), "iOOOOOO!", &one.given, &one.kept, &one.quick,
                          &one.size, &one.strides, &one.dtype, &PyDict_Type, &one.kwargs))
      return false;
    for (PyObject* held : {one.kept, one.quick, one.size, one.strides, one.dtype, one.kwargs})
      Py_INCREF(held);
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
  unsigned long long at[7];
  if (!PyArg_ParseTuple(addresses, "KKKKKKK", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6]))
    return nullptr;
  static_assert(sizeof(Driver) == sizeof at);
  std::memcpy(&reinterpret_cast<Table*>(self)->driver, at, sizeof at);
  return none();
}

PyObject* size(PyObject* self, PyObject*) {
  return PyLong_FromSsize_t(reinterpret_cast<Table*>(self)->plans);
}

// Table(tensor types, exchange, empty, is_grad_enabled, names)
int begin(PyObject* self, PyObject* arguments, PyObject*) {
  Table* table = reinterpret_cast<Table*>(self);
  PyObject* exchange;
  if (!PyArg_ParseTuple(arguments, "OOOOOO!", &table->tensor_type, &table->parameter_type, &exchange,
                        &table->empty, &table->is_grad_enabled, &PyTuple_Type, &table->names)) {
    // what was read is borrowed still
    table->tensor_type = table->parameter_type = table->empty = nullptr;
    table->is_grad_enabled = table->names = nullptr;
    return -1;
  }
  for (PyObject* kept :
       {table->tensor_type, table->parameter_type, table->empty, table->is_grad_enabled, table->names})
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
  for (PyObject* kept : {table->tensor_type, table->parameter_type, table->empty, table->is_grad_enabled,
                         table->names, table->requires_grad, table->nothing})
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
