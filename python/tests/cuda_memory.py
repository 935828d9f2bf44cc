"""Memory, streams and graphs of CUDA for tests, by the driver's own functions, and
arrays there that say so by DLPack: of the stand-ins for the vendors' libraries, or
of a real device, as HEDDLE_CUDA_LIB says."""
import ctypes
import os

import numpy as np

CUDA = 2
CODES = {"f": 2, "i": 0, "u": 1}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Word(ctypes.Structure):
    """CUstreamBatchMemOpParams of a wait."""
    _fields_ = [("operation", ctypes.c_int), ("address", ctypes.c_uint64),
                ("value", ctypes.c_uint64), ("flags", ctypes.c_uint),
                ("alias", ctypes.c_uint64), ("pad", ctypes.c_uint64)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Driver:
    """The driver, with the primary context of a device current on this thread."""

    def __init__(self, device=0):
        self.library = ctypes.CDLL(os.environ["HEDDLE_CUDA_LIB"])
        self.device = device
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxPushCurrent_v2", context)
        self.gate = ctypes.c_uint32.from_address(self.take("cuMemHostAlloc", 64, 1))

    def leave(self):
        """Leaves the thread to the context that was current before."""
        self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def __call__(self, symbol, *args):
        error = getattr(self.library, symbol)(*args)
        if error != 0:
            raise RuntimeError(f"{symbol}: error {error}")

    def take(self, symbol, *args):
        """What a function writes into its first parameter."""
        out = ctypes.c_void_p()
        self(symbol, ctypes.byref(out), *(ctypes.c_size_t(arg) for arg in args))
        return out.value

    def stream(self):
        return self.take("cuStreamCreateWithPriority", 1, 0)

    def wait(self, stream):
        self("cuStreamSynchronize", ctypes.c_void_p(stream))

    def copy(self, to, source, nbytes, stream):
        self("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source),
             ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def hold_up(self, stream):
        """What comes into the stream from now on waits until let_go."""
        self.gate.value = 0
        word = Word(operation=1, address=ctypes.addressof(self.gate), value=1)
        self("cuStreamBatchMemOp_v2", ctypes.c_void_p(stream), 1, ctypes.byref(word), 0)

    def let_go(self):
        self.gate.value = 1

    def capture(self, stream):
        self("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 1)

    def end_capture(self, stream):
        out = ctypes.c_void_p()
        self("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(out))
        made = ctypes.c_void_p()
        self("cuGraphInstantiateWithFlags", ctypes.byref(made), out, ctypes.c_uint64(0))
        self("cuGraphDestroy", out)
        return made

    def launch(self, graph, stream):
        self("cuGraphLaunch", graph, ctypes.c_void_p(stream))

    def drop(self, graph):
        self("cuGraphExecDestroy", graph)


class Array:
    """An array on a device, with what NumPy's has at first. Its memory is never given
    back: that would wait for streams that a test holds up."""

    def __init__(self, driver, values, skew=0):
        self.driver, self.shape, self.dtype = driver, values.shape, values.dtype
        self.asked = []  # the streams that __dlpack__ was given
        self.address = driver.take("cuMemAlloc_v2", max(values.nbytes, 1) + skew) + skew
        self.set(values)

    def set(self, values, stream=0):
        values = np.array(values, self.dtype)
        assert values.shape == self.shape
        self.driver.copy(self.address, values.ctypes.data, values.nbytes, stream)
        self.driver.wait(stream)

    def get(self, stream=0):
        values = np.empty(self.shape, self.dtype)
        self.driver.copy(values.ctypes.data, self.address, values.nbytes, stream)
        self.driver.wait(stream)
        return values

    def __dlpack_device__(self):
        return CUDA, self.driver.device

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        n = len(self.shape)
        self.shape_of = (ctypes.c_int64 * max(n, 1))(*self.shape)
        self.told = DLTensor(
            data=self.address, device_type=CUDA, device_id=self.driver.device, ndim=n,
            code=CODES[self.dtype.kind], bits=8 * self.dtype.itemsize, lanes=1,
            shape=ctypes.cast(self.shape_of, ctypes.POINTER(ctypes.c_int64)))
        return new_capsule(ctypes.addressof(self.told), b"dltensor", None)
