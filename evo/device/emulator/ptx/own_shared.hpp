// Many accesses of one instruction to the shared memory of the warp's own CTA, which nearly all are.
//
// They are checked as `shared_at` does, one after the other. What all of them need lies in locals here, so
// that the compiler keeps it in registers: memory is read as several types, and it would load each pointer
// anew after each store. For the same reason `n` should be known where these functions are called.
#pragma once
#include <array>
#include <cstddef>

#include "memory.hpp"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ptx {

// The `n` bytes at `p` as a number. A copy whose length is not known when this is compiled takes them one by
// one, and whoever then loads all eight waits for them.
[[gnu::always_inline]] inline u64 element(const u8* p, u32 n) {
  const auto as = [p]<class T>(T x) -> u64 { return std::memcpy(&x, p, sizeof x), x; };
  switch (n) {
    case 1: return *p;
    case 2: return as(u16{});
    case 4: return as(u32{});
    default: return as(u64{});
  }
}

// An access that is not as most are: to another CTA, a write of a part of a cell, or wrong.
template <Access ACCESS>
[[gnu::noinline]] u8* rare_shared_at(Warp& w, u32 address, u32 n, u32 lane) {
  return shared_at<ACCESS>(w, address, n, lane);
}

[[gnu::noinline]] inline void rare_write(Warp& w, Cta& c, u32 offset, u32 n, u8 flags, u32 lane) {
  race_write(w, c, offset, n, w.agent, w.clock[w.agent], flags, lane);
}

// Whether all were written by one instruction: then one of them stands for all.
[[gnu::always_inline]] inline bool alike(const Cell* cell, u32 cells) {
#if defined(__AVX512F__)
  if (cells == 4) {  // three cells beside the next three
    const __m512i one = _mm512_maskz_loadu_epi32(511, cell), next = _mm512_maskz_loadu_epi32(511, cell + 1);
    return !_mm512_cmpneq_epu32_mask(one, next);
  }
#elif defined(__AVX2__)
  if (cells == 4) {
    const auto words = [cell](u32 k) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(reinterpret_cast<const u32*>(cell) + k));
    };
    const __m256i differ =
        _mm256_or_si256(_mm256_xor_si256(words(0), words(3)),  // the last seven words twice
                        _mm256_xor_si256(words(1), words(4)));
    return _mm256_testz_si256(differ, differ);
  }
#endif
  return std::memcmp(cell, cell + 1, (cells - 1) * sizeof(Cell)) == 0;
}

static_assert(sizeof(Cell) == 12 && offsetof(Cell, agent) == 8 && offsetof(Cell, flags) == 11);

class OwnShared {
 public:
  explicit OwnShared(Warp& w)
      : w_(w),
        c_(*w.cta),
        bytes_(c_.shared.data()),
        init_(c_.shared_init.data()),
        cells_(c_.cells.data()),
        seen_(w.clock),
        base_(c_.base),
        limit_(c_.shared_bytes),
        own_(w.agent),
        now_(w.clock[w.agent]),
        pc_(w.pc & PC_BITS),
        race_(w.worker->launch->race),
        check_init_(w.worker->launch->init) {}
  OwnShared(const OwnShared&) = delete;
  ~OwnShared() {
    if (end_) c_.newest[own_].add(now_, first_, end_ - first_);
  }

  // A weak read of `n` bytes.
  [[gnu::always_inline]] u8* read(u32 address, u32 n, u32 lane) {
    const u32 o = address - base_;
    if (u64(o) + n > limit_ || (o & (n - 1))) return rare_shared_at<Access::READ>(w_, address, n, lane);
    if (race_ && n < 4) remember_part(o, n, lane);
    else if (race_) remember(o, n, lane);
    const u32 mask = ((1u << n) - 1) << (o & 15);
    if (check_init_ && (init_[o >> 4] & mask) != mask) uninitialised_shared(w_, address, n);
    return bytes_ + o;
  }

  // Where up to 32 accesses of N bytes lie, and the first and the last of them. False unless all lie in the
  // memory, at multiples of N.
  template <u32 N, class T>
  [[gnu::always_inline]] bool offsets_of(const T* address, u32 lanes, u32* at, u32& low, u32& high) const {
    u32 bad = limit_ < N;
    low = ~0u, high = 0;
    for (u32 l = 0; l < lanes; l++) {
      at[l] = static_cast<u32>(address[l]) - base_;
      bad |= (at[l] & (N - 1)) | static_cast<u32>(at[l] > limit_ - N);
      low = at[l] < low ? at[l] : low, high = at[l] > high ? at[l] : high;
    }
    return !bad;
  }

  // What `read` does for N bytes, a word or a half of one, of each of 32 lanes, where nothing is wrong and no
  // cell has several owners. Else false, and nothing is done. Its loops are what compilers vectorise.
  template <u32 N>
  bool read_warp(const u64* address, u32* out) {
    u32 at[32], low, high, bad = 0;
    if (!offsets_of<N>(address, 32, at, low, high)) return false;
    const u32* const cell = reinterpret_cast<const u32*>(cells_);
    for (u32 l = 0; race_ && l < 32; l++) {
      const u32 k = 3 * (at[l] >> 2), who = cell[k + 2], agent = who & 0xffff;
      bad |= (who >> 24 & (CELL_IN_FLIGHT | CELL_PARTS)) |
             static_cast<u32>(cell[k] > seen_[agent] - static_cast<u32>(agent == own_));
    }
    for (u32 l = 0; check_init_ && l < 32; l++)
      bad |= ~static_cast<u32>(init_[at[l] >> 4]) >> (at[l] & 15) & ((1u << N) - 1);
    if (bad) return false;
    if (race_) {
      reaches(low >> 2, (high >> 2) + 1);
      for (u32 l = 0; l < 32; l++)
        if constexpr (N == 4) reads_[at[l] >> 2] = read_at(l);
        else note_part(at[l], N, l);
    }
    for (u32 l = 0; l < 32; l++) out[l] = static_cast<u32>(element(bytes_ + at[l], N));
    return true;
  }

  // What `read` does for rows of 16 bytes, which all lanes take; where they lie. False, and nothing is done,
  // where something may be wrong. First all is looked at and then all is noted: no row waits for another.
  [[gnu::always_inline]] bool read_rows(const u32* address, u32 rows, const u8** out) {
    u32 at[32], low, high, bad = 0;
    if (!race_ || !check_init_ || !offsets_of<16>(address, rows, at, low, high)) return false;
    for (u32 l = 0; l < rows; l++) {
      const Cell* cell = cells_ + (at[l] >> 2);
      bad |= unordered(cell[0], true) | static_cast<u32>(init_[at[l] >> 4] != 0xffff);
      if (!alike(cell, 4))
        bad |= unordered(cell[1], true) | unordered(cell[2], true) | unordered(cell[3], true);
      out[l] = bytes_ + at[l];
    }
    if (bad) return false;
    reaches(low >> 2, (high >> 2) + 4);
    for (u32 l = 0; l < rows; l++)
      for (u32 i = 0; i < 4; i++) reads_[(at[l] >> 2) + i] = read_at(ANY_LANE);
    return true;
  }

  // The part of `read` that the race detector has in it: `n` bytes at an offset, both multiples of 4.
  [[gnu::always_inline]] void remember(u32 offset, u32 n, u32 lane) {
    const u32 first = offset >> 2, cells = n >> 2;
    const Cell* cell = cells_ + first;
    u32 bad = unordered(cell[0], lane != NO_LANE);
    if (!alike(cell, cells))
      for (u32 i = 1; i < cells; i++) bad |= unordered(cell[i], lane != NO_LANE);
    if (bad) [[unlikely]]
      explain_read(w_, c_, offset, n, 0, lane);
    reaches(first, first + cells);
    for (u32 i = 0; i < cells; i++) reads_[first + i] = read_at(lane);
  }

  // The same for fewer than 4 bytes.
  [[gnu::always_inline]] void remember_part(u32 offset, u32 n, u32 lane) {
    const u32 i = offset >> 2;
    if (unordered(cells_[i], true)) [[unlikely]]
      explain_read(w_, c_, offset, n, 0, lane);
    reaches(i, i + 1);
    note_part(offset, n, lane);
  }

  // A weak write of `n` bytes.
  [[gnu::always_inline]] u8* write(u32 address, u32 n, u32 lane) {
    const u32 o = address - base_;
    if (n < 4 || u64(o) + n > limit_ || (o & (n - 1)))
      return rare_shared_at<Access::WRITE>(w_, address, n, lane);
    if (race_) replace(o, n, 0, lane);
    init_[o >> 4] |= static_cast<u16>(((1u << n) - 1) << (o & 15));
    return bytes_ + o;
  }

  // The part of `write` that the race detector has in it.
  [[gnu::always_inline]] void replace(u32 offset, u32 n, u8 flags, u32 lane) {
    if (!looked_) look_for_readers();
    const u32 first = offset >> 2, cells = n >> 2;
    Cell* cell = cells_ + first;
    u32 bad = unordered(cell[0], false);
    if (!alike(cell, cells))
      for (u32 i = 1; i < cells; i++) bad |= unordered(cell[i], false);
    for (u32 k = 0; k < late_; k++) bad |= static_cast<u32>(reader_[k].after(0, first, cells));
    if (own_reads_)  // what this very lane has read it may overwrite
      for (u32 i = 0; i < cells; i++) {
        const Read& r = own_reads_[first + i];
        bad |= static_cast<u32>(r.clock >> 4 == now_ && (r.lane != lane || lane >= ALL_LANES));
      }
    if (bad) [[unlikely]]
      return rare_write(w_, c_, offset, n, flags, lane);
    for (u32 i = 0; i < cells; i++) cell[i] = cell_at(lane, flags);
  }

 private:
  static constexpr u32 MOST_LATE = 8;

  // What a weak read of whole cells leaves: built as one word, for fields take a load each of what was there.
  [[gnu::always_inline]] Read read_at(u32 lane) const {
    return bits<Read>(u64(now_ << 4 | 15) | u64(pc_ | lane << 26) << 32);
  }
  // The same of a weak write.
  [[gnu::always_inline]] Cell cell_at(u32 lane, u8 flags) const {
    return bits<Cell>(std::array<u32, 3>{now_, pc_ | lane << 26, own_ | 15u << 16 | u32(flags) << 24});
  }
  // What a weak read of fewer than 4 bytes leaves: another lane may have read the rest of the cell, or an
  // earlier instruction.
  [[gnu::always_inline]] void note_part(u32 offset, u32 n, u32 lane) {
    const u32 i = offset >> 2, bytes = cell_bytes(offset, n), now = now_ << 4;
    const u64 old = bits<u64>(reads_[i]);  // one load, which need not wait for a field
    const u32 clock = static_cast<u32>(old), before = static_cast<u32>(old >> 58);
    const bool again = (clock & ~15u) == now;
    if (const u32 others = clock & 15 & ~bytes; others && !again) keep_older_read(c_, own_, i, others);
    const u32 who = again && before != lane ? static_cast<u32>(SEVERAL_LANES) : lane;
    reads_[i] = bits<Read>(u64((again ? clock : now) | bytes) | u64(pc_ | who << 26) << 32);
  }
  // The warp reads some cells from `first` up to `end`.
  [[gnu::always_inline]] void reaches(u32 first, u32 end) {
    if (!reads_) reads_ = w_.reads ? w_.reads : open_reads(w_, c_);
    first_ = end_ && first_ < first ? first_ : first;
    end_ = end_ > end ? end_ : end;
  }

  // Whether the last write of a cell may not be ordered before. Where lanes are told apart, the warp's own
  // writes since its clock rose are looked at, too.
  [[gnu::always_inline]] u32 unordered(const Cell& cell, bool by_lane) const {
    const u32 seen = seen_[cell.agent] - (by_lane && cell.agent == own_);
    return (cell.flags & (CELL_IN_FLIGHT | CELL_PARTS)) | static_cast<u32>(cell.clock > seen);
  }
  // The agents some of whose reads are not known to be over; if they are many, all cells count as theirs.
  [[gnu::always_inline]] void look_for_readers() {
    looked_ = true;
    for (u32 u : c_.readers) {
      const NewestReads& all = c_.newest[u];
      const u32 seen = seen_[u];
      if (u == own_ && all.clock == now_) own_reads_ = c_.reads[u].data();
      if (all.before <= seen && all.clock <= seen) continue;
      const bool anywhere = all.before > seen || late_ == MOST_LATE;
      late_ = late_ < MOST_LATE ? late_ + 1 : late_;
      reader_[late_ - 1] = anywhere ? NewestReads{1, 0, ~0u, 1} : NewestReads{1, all.first, all.end, 0};
    }
  }

  Warp& w_;
  Cta& c_;
  u8* const bytes_;
  u16* const init_;
  Cell* const cells_;
  const u32* const seen_;
  const u32 base_, limit_, own_, now_, pc_;
  const bool race_, check_init_;
  Read* reads_ = nullptr;
  const Read* own_reads_ = nullptr;  // if the warp has read since its clock rose
  u32 first_ = 0, end_ = 0;          // the cells that were read
  bool looked_ = false;
  u32 late_ = 0;
  NewestReads reader_[MOST_LATE];
};

// Calls f(lane, n) for the lanes, each of which accesses `n` bytes: if they are `shared`, for each `n` in
// code of its own.
template <class F>
[[gnu::always_inline]] inline void each_access(bool shared, u32 lanes, u32 n, F f) {
  const auto all = [&](auto known) { each_lane(lanes, [&](u32 l) { f(l, known); }); };
  if (shared && n == 4) all(std::integral_constant<u32, 4>{});
  else if (shared && n == 8) all(std::integral_constant<u32, 8>{});
  else if (shared && n == 16) all(std::integral_constant<u32, 16>{});
  else if (shared && n == 2) all(std::integral_constant<u32, 2>{});
  else all(n);
}

}  // namespace ptx
