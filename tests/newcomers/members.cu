struct Config { static constexpr int THREADS = 128; static constexpr int PER = 2; };
__global__ void addone(const float* x, float* y, int n) {
  int i = blockIdx.x * Config::THREADS * Config::PER + threadIdx.x;
  for (int k = 0; k < Config::PER; ++k, i += Config::THREADS)
    if (i < n) y[i] = x[i] + 1.f;
}
