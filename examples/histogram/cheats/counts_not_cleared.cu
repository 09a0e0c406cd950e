// Shared memory is not cleared
// expect: uninitialised read
// on a GPU: wrong integer, runs differ, emulator: uninitialised read
// instead of: found[i] = 0;
// there is: ;
