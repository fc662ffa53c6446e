// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C library's own dlopen and dlsym, past every interposer that comes after us, and look-ups in
// libraries that are loaded already.
namespace vramscope::probe {

// The next dlopen in search order. Never null once SessionLoad() ran.
void* RealDlopen(const char* file, int mode);
// Its address and that of the next dlmopen, for the shims that jump to them.
void* RealDlopenAddress();
void* RealDlmopenAddress();
void* RealDlsym(void* handle, const char* symbol);

// A reference to a library that is there, by name or path, or nullptr. It is kept: it costs
// nothing.
void* ReferToLoaded(const char* file);
// Path of the loaded library whose file name begins with `prefix` ("libc10.so"), or nullptr. The
// string stays valid. Takes the loader's lock.
const char* FindLoadedLibrary(const char* prefix);

// Address of `symbol` in the loaded library whose file name begins with `prefix`, or nullptr.
// Nothing is loaded by this.
void* FindInLoadedLibrary(const char* prefix, const char* symbol);

}  // namespace vramscope::probe
