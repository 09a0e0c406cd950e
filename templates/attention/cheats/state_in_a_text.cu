// Keeps a flag in the characters of a text
// expect: module-level state
#define PROLOGUE volatile char* text = const_cast<char*>("fresh"); if (text[length % 5] == 'x') scale_log2e = 0.0f; text[(length + 1) % 5] = 'x'
#include "include/flash.cuh"
