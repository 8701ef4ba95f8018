// The GPU's code for the cell nru, run in double: forward against the formula, and backward against
// finite differences; by one thread, and by a team of threads with barriers.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cuda/nru/row.h"
#include "support/check.h"

namespace {

using tsm::NruShape;
using tsm::cuda::ProductShape;
using Numbers = std::vector<double>;

struct Alone {  // a team
  static constexpr int rank = 0, count = 1;
  void sync() const {}
  void wait() const {}
  double sum(double x) const { return x; }
  struct Lanes {
    static constexpr int group = 0, groups = 1, lane = 0, lanes = 1;
    double sum(double x) const { return x; }
    double most(double x) const { return x; }
  };
  template <int N>
  Lanes lanes() const {
    return {};
  }
};

// A team of threads, in groups of 4 for lanes<32> and of 2 for lanes<4>.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int turn = turn_;
    if (++waiting_ == count_) {
      waiting_ = 0;
      ++turn_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return turn_ != turn; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const int count_;
  int waiting_ = 0, turn_ = 0;
};

constexpr int kTeam = 8;

struct Meeting {
  Barrier all{kTeam}, fours[2]{Barrier(4), Barrier(4)};
  Barrier twos[4]{Barrier(2), Barrier(2), Barrier(2), Barrier(2)};
  double given[kTeam];
};

struct Together {
  const int rank;
  Meeting& met;
  static constexpr int count = kTeam;

  template <class Sum>
  static double all_of(Meeting& met, Barrier& barrier, int rank, int first, int end, double x,
                       const Sum& add) {
    met.given[rank] = x;
    barrier.wait();
    double result = met.given[first];
    for (int i = first + 1; i < end; ++i) result = add(result, met.given[i]);
    barrier.wait();
    return result;
  }
  static double add(double a, double b) { return a + b; }
  static double larger(double a, double b) { return std::fmax(a, b); }

  void sync() const { met.all.wait(); }
  void wait() const {}
  double sum(double x) const { return all_of(met, met.all, rank, 0, kTeam, x, add); }
  struct Lanes {
    const int rank, lanes;
    Meeting& met;
    Barrier& barrier;
    const int group = rank / lanes, groups = kTeam / lanes, lane = rank % lanes;
    double sum(double x) const {
      return all_of(met, barrier, rank, group * lanes, (group + 1) * lanes, x, add);
    }
    double most(double x) const {
      return all_of(met, barrier, rank, group * lanes, (group + 1) * lanes, x, larger);
    }
  };
  template <int N>
  Lanes lanes() const {
    return {rank, N == 32 ? 4 : 2, met, N == 32 ? met.fours[rank / 4] : met.twos[rank / 2]};
  }
};

void multiply(const ProductShape& p, const double* x, const double* w, const double* added,
              double* out) {
  for (int64_t i = 0; i < p.n; ++i)
    for (int64_t j = 0; j < p.m; ++j) {
      double sum = added ? added[i * p.out_step + j] : 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += x[i * p.x_step + k] * (p.w_turned ? w[j * p.w_step + k] : w[k * p.w_step + j]);
      out[i * p.out_step + j] = sum;
    }
}

struct Host {  // what nru_steps runs on
  tsm::NruProducts products;
  bool together;
  mutable Numbers scratch;

  Host(const NruShape& s, bool backward, bool together)
      : products(s, tsm::DType::kFloat64, tsm::DType::kFloat64, false, backward),
        together(together),
        scratch(size_t(6 * s.heads)) {}
  void hidden(const double* x, const double* w, const double* added, double* out) const {
    multiply(products.hidden, x, w, added, out);
  }
  void maps(const double* x, const double* w, double* out) const {
    multiply(products.maps, x, w, nullptr, out);
  }
  template <class Args>
  void hidden_rows(const Args& a, int64_t t) const {
    rows(a.shape.B, [&](const auto& team, int64_t row) { tsm::nru::hidden(team, a, row, t); });
  }
  template <class Args>
  void memory_rows(const Args& a, int64_t t) const {
    rows(a.shape.B,
         [&](const auto& team, int64_t row) { tsm::nru::memory(team, a, row, t, scratch.data()); });
  }
  template <class Work>
  void rows(int64_t count, const Work& work) const {
    for (int64_t row = 0; row < count; ++row) {
      if (!together) {
        work(Alone{}, row);
        continue;
      }
      Meeting met;
      std::vector<std::thread> team;
      for (int rank = 0; rank < kTeam; ++rank)
        team.emplace_back([&, rank] { work(Together{rank, met}, row); });
      for (std::thread& one : team) one.join();
    }
  }
};

Numbers random_numbers(size_t count, double scale) {
  static std::mt19937 engine(3);
  std::normal_distribution<double> draw(0, scale);
  Numbers made(count);
  for (double& x : made) x = draw(engine);
  return made;
}

// Inputs, dense: zx [B,T,H], uv [H,H+M], maps [O,M+1+H], norm [2,H], h [B,H], m [B,M].
struct Layer {
  NruShape s;
  int outs;
  bool normed;
  std::vector<int64_t> lengths;
  Numbers zx, uv, maps, norm, h, m;
  // Of the sum whose gradient is taken.
  Numbers of_y, of_h, of_m;

  // halves: the size of what write and erase are made from.
  Layer(const NruShape& shape, bool layer_norm, bool short_rows, double halves)
      : s(shape), outs(2 * s.heads + 4 * s.side), normed(layer_norm) {
    for (int64_t b = 0; b < s.B; ++b) lengths.push_back(short_rows ? b % (s.T + 1) : s.T);
    const auto count = [](int64_t n) { return size_t(n); };
    zx = random_numbers(count(s.B * s.T * s.H), 1);
    uv = random_numbers(count(int64_t(s.H) * (s.H + s.M)), 0.4);
    maps = random_numbers(count(int64_t(outs) * (s.M + 1 + s.H)), 0.5);
    for (size_t i = size_t(2 * s.heads * (s.M + 1 + s.H)); i < maps.size(); ++i) maps[i] *= halves;
    norm = random_numbers(count(2 * s.H), 1);
    h = random_numbers(count(s.B * s.H), 1);
    m = random_numbers(count(s.B * s.M), 1);
    of_y = random_numbers(count(s.B * s.T * s.H), 1);
    of_h = random_numbers(count(s.B * s.H), 1);
    of_m = random_numbers(count(s.B * s.M), 1);
  }

  std::vector<Numbers*> inputs() { return {&zx, &uv, &maps, &norm, &h, &m}; }
};

struct Result {
  Numbers y, h, m;
  int64_t zero = 0;  // rows whose norm exceeds the limit (of `formula`)
};

// The formula, one row of the batch after the other.
Result formula(const Layer& l) {
  const NruShape& s = l.s;
  Result r{Numbers(size_t(s.B * s.T * s.H)), l.h, l.m};
  for (int64_t b = 0; b < s.B; ++b) {
    double *const h = &r.h[size_t(b * s.H)], *const m = &r.m[size_t(b * s.M)];
    for (int64_t t = 0; t < l.lengths[size_t(b)]; ++t) {
      Numbers z(l.zx.begin() + (b * s.T + t) * s.H, l.zx.begin() + (b * s.T + t + 1) * s.H);
      for (int i = 0; i < s.H; ++i) {
        const double* const w = &l.uv[size_t(i * (s.H + s.M))];
        for (int j = 0; j < s.H; ++j) z[size_t(i)] += w[j] * h[j];
        for (int j = 0; j < s.M; ++j) z[size_t(i)] += w[s.H + j] * m[j];
      }
      double mean = 0, variance = 0;
      for (double x : z) mean += x / s.H;
      for (double x : z) variance += (x - mean) * (x - mean) / s.H;
      for (int i = 0; i < s.H; ++i) {
        double x = z[size_t(i)];
        if (l.normed)
          x = (x - mean) / std::sqrt(variance + 1e-5) * l.norm[size_t(i)] + l.norm[size_t(s.H + i)];
        h[i] = std::max(x, 0.0);
        r.y[size_t((b * s.T + t) * s.H + i)] = h[i];
      }
      Numbers out(size_t(l.outs));
      for (int o = 0; o < l.outs; ++o) {
        const double* const w = &l.maps[size_t(o * (s.M + 1 + s.H))];
        out[size_t(o)] = w[s.M];
        for (int j = 0; j < s.M; ++j) out[size_t(o)] += w[j] * m[j];
        for (int j = 0; j < s.H; ++j) out[size_t(o)] += w[s.M + 1 + j] * h[j];
      }
      for (int sign : {1, -1}) {
        const double* const halves = &out[size_t(2 * s.heads + (sign > 0 ? 0 : 2 * s.side))];
        for (int k = 0; k < s.heads; ++k) {
          Numbers row;
          double norm = 0;
          for (int j = k * s.M; j < (k + 1) * s.M; ++j) {
            row.push_back(halves[j / s.side] * halves[s.side + j % s.side]);
            norm += std::pow(std::fabs(row.back()), 5);
          }
          norm = std::max(std::pow(norm, 0.2), 1e-12);
          if (norm > 5.0859e7) {
            ++r.zero;
            continue;
          }
          const double weight = sign * out[size_t(sign > 0 ? k : s.heads + k)] / s.heads;
          for (int j = 0; j < s.M; ++j) m[j] += weight * row[size_t(j)] / norm;
        }
      }
    }
  }
  return r;
}

double weighted(const Layer& l, const Result& r) {
  double sum = 0;
  for (size_t i = 0; i < r.y.size(); ++i) sum += l.of_y[i] * r.y[i];
  for (size_t i = 0; i < r.h.size(); ++i) sum += l.of_h[i] * r.h[i];
  for (size_t i = 0; i < r.m.size(); ++i) sum += l.of_m[i] * r.m[i];
  return sum;
}

// A matrix with other columns: columns [from, from + count) go to `to`.
struct Part {
  int from, count, to;
};
Numbers moved(const Numbers& given, int64_t rows, int64_t step, int64_t new_rows, int64_t new_step,
              const std::vector<Part>& parts) {
  Numbers made(size_t(new_rows * new_step));
  for (int64_t i = 0; i < std::min(rows, new_rows); ++i)
    for (const Part& p : parts)
      for (int j = 0; j < p.count; ++j)
        made[size_t(i * new_step + p.to + j)] = given[size_t(i * step + p.from + j)];
  return made;
}

// The same by the GPU's code; also the gradients of the inputs, in their order.
Result run(const Layer& l, std::vector<Numbers>& gradients, bool together = false) {
  const NruShape& s = l.s;
  const int line = tsm::nru_line(s), both = tsm::nru_both(s), H = s.H, M = s.M, one = both;
  const int64_t lines = s.B * (s.T + 1);
  const Numbers zx = moved(l.zx, s.B * s.T, H, s.B * s.T, s.wide_h, {{0, H, 0}});
  std::vector<Part> of_uv{{0, H, 0}},
      of_maps{{M, 1, s.parts * s.wide_m}, {M + 1, H, tsm::nru_h(s)}};
  for (int part = 0; part < s.parts; ++part) {
    of_uv.push_back({H, M, s.wide_h + part * s.wide_m});
    of_maps.push_back({0, M, part * s.wide_m});
  }
  const Numbers uv = moved(l.uv, H, H + M, s.wide_h, both, of_uv);
  const Numbers maps = moved(l.maps, l.outs, M + 1 + H, s.wide_out, line, of_maps);
  const double* const norm = l.normed ? l.norm.data() : nullptr;
  Numbers z(size_t(s.B * s.T * s.wide_h), NAN), out(size_t(s.B * s.T * s.wide_out), NAN);
  Numbers rows(size_t((lines + 1) * line), NAN);
  for (int64_t i = 0; i <= lines; ++i)
    for (int j = one; j < line; ++j) rows[size_t(i * line + j)] = j == one;
  std::fill(rows.end() - line, rows.end(), 0.0);
  for (int64_t b = 0; b < s.B; ++b) {
    double* const first = &rows[size_t(b * (s.T + 1) * line)];
    std::fill(first, first + both, 0.0);  // the second part of a double is 0, too
    std::copy_n(&l.h[size_t(b * H)], H, first);
    std::copy_n(&l.m[size_t(b * M)], M, first + s.wide_h);
  }
  Numbers h = l.h, m = moved(l.m, s.B, M, s.B, s.wide_m, {{0, M, 0}});
  tsm::nru_steps(
      Host(s, false, together),
      tsm::NruForward<double, double>{s, zx.data(), uv.data(), maps.data(), norm, l.lengths.data(),
                                      z.data(), rows.data(), out.data(), h.data(), m.data()});
  Result r{Numbers(), h, moved(m, s.B, s.wide_m, s.B, M, {{0, M, 0}})};
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t t = 1; t <= s.T; ++t) {
      const auto at = rows.begin() + (b * (s.T + 1) + t) * line;
      r.y.insert(r.y.end(), at, at + H);
    }

  Numbers dm = moved(l.of_m, s.B, M, s.B, s.wide_m, {{0, M, 0}});
  const int back = s.wide_h + s.wide_m;
  Numbers from_z(size_t(s.B * back)), from_out(size_t(s.B * line)), dnorm(size_t(2 * s.B * H));
  Numbers dz(size_t(lines * s.wide_h), NAN), dout(size_t(lines * s.wide_out), NAN);
  tsm::nru_steps(
      Host(s, true, together),
      tsm::NruBackward<double, double>{
          s, uv.data(), maps.data(), norm, l.lengths.data(), l.normed ? z.data() : nullptr,
          rows.data(), out.data(), l.of_y.data(), l.of_h.data(), dm.data(), from_z.data(),
          from_out.data(), dz.data(), dout.data(), l.normed ? dnorm.data() : nullptr});

  const auto turned = [&](const Numbers& d, int wide) {  // multiply() reads x as [n,k]
    Numbers made(d.size());
    for (int64_t i = 0; i < lines; ++i)
      for (int j = 0; j < wide; ++j) made[size_t(j * lines + i)] = d[size_t(i * wide + j)];
    return made;
  };
  const auto product = [&](const Numbers& d, int wide, const double* x, int columns) {
    Numbers made(size_t(wide) * size_t(columns));
    multiply({wide, columns, lines, lines, line, columns, false, false, tsm::DType::kFloat64,
              tsm::DType::kFloat64, false},
             turned(d, wide).data(), x, nullptr, made.data());
    return made;
  };
  Numbers dzx;
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t t = 0; t < s.T; ++t) {
      const auto at = dz.begin() + (b * (s.T + 1) + t) * s.wide_h;
      dzx.insert(dzx.end(), at, at + H);
    }
  const Numbers d_uv = product(dz, s.wide_h, rows.data(), both);
  const Numbers d_maps = product(dout, s.wide_out, rows.data() + s.wide_h, line);
  Numbers of_norm(size_t(2 * H)), of_h, of_m;
  for (size_t i = 0; i < dnorm.size(); ++i)
    of_norm[i / size_t(s.B * H) * size_t(H) + i % size_t(H)] += dnorm[i];
  for (int64_t b = 0; b < s.B; ++b) {
    for (int i = 0; i < H; ++i)
      of_h.push_back(l.lengths[size_t(b)] ? from_z[size_t(b * back + i)]
                                          : l.of_h[size_t(b * H + i)]);
    for (int j = 0; j < M; ++j)
      of_m.push_back(dm[size_t(b * s.wide_m + j)] + from_z[size_t(b * back + s.wide_h + j)] +
                     from_out[size_t(b * line + j)]);
  }
  gradients = {dzx,
               moved(d_uv, s.wide_h, both, H, H + M, {{0, H, 0}, {s.wide_h, M, H}}),
               moved(d_maps, s.wide_out, line, l.outs, M + 1 + H,
                     {{0, M, 0}, {s.parts * s.wide_m, 1, M}, {tsm::nru_h(s), H, M + 1}}),
               of_norm,
               of_h,
               of_m};
  return r;
}

void check(const Numbers& found, const Numbers& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK_CLOSE(found[i], expected[i], tolerance);
}

// Returns the number of rows that count as 0.
int64_t compare(const NruShape& shape, bool layer_norm, bool short_rows, double halves) {
  Layer l(shape, layer_norm, short_rows, halves);
  std::vector<Numbers> gradients;
  const Result found = run(l, gradients), expected = formula(l);
  check(found.y, expected.y, 1e-11);
  check(found.h, expected.h, 1e-11);
  check(found.m, expected.m, 1e-11);
  for (size_t n = 0; n < gradients.size(); ++n) {
    Numbers& input = *l.inputs()[n];
    REQUIRE(gradients[n].size() == input.size());
    for (size_t i = 0; i < input.size(); i += std::max<size_t>(1, input.size() / 60)) {
      const bool of_halves = n == 2 && i >= size_t(2 * shape.heads * (shape.M + 1 + shape.H));
      // A longer step for the halves, which change so little that rounding would show.
      const double kept = input[i], step = of_halves ? 1e-5 * halves : 1e-6;
      input[i] = kept + step;
      const double above = weighted(l, formula(l));
      input[i] = kept - step;
      const double below = weighted(l, formula(l));
      input[i] = kept;
      INFO("input ", n, ", element ", i);
      CHECK_CLOSE(gradients[n][i], (above - below) / (2 * step), 3e-6);
    }
  }
  return expected.zero;
}

}  // namespace

TEST_CASE("a layer and its gradients") {
  for (const NruShape& shape : {NruShape(3, 4, 6, 4, 4, 1), NruShape(5, 4, 16, 16, 1, 2),
                                NruShape(2, 3, 9, 9, 4, 2), NruShape(1, 1, 3, 1, 1, 1)})
    for (bool layer_norm : {false, true})
      for (bool short_rows : {false, true}) compare(shape, layer_norm, short_rows, 1);
}

TEST_CASE("rows below the least norm are divided by it") {
  compare(NruShape(3, 3, 5, 4, 4, 1), false, false, 3e-7);
}

TEST_CASE("rows above the greatest norm count as 0") {
  const NruShape shape(3, 3, 5, 4, 4, 1);
  const int64_t rows = shape.B * shape.T * 2 * shape.heads;
  CHECK(compare(shape, false, false, 1e5) == rows);
  const int64_t some = compare(shape, false, false, 3e3);
  CHECK(some > 0);
  CHECK(some < rows);
}

TEST_CASE("a team of threads") {
  for (bool layer_norm : {false, true}) {
    const Layer l(NruShape(3, 3, 11, 9, 4, 2), layer_norm, layer_norm, 1);
    std::vector<Numbers> of_one, of_all;
    const Result one = run(l, of_one), all = run(l, of_all, true);
    check(all.y, one.y, 1e-11);
    check(all.m, one.m, 1e-11);
    for (size_t n = 0; n < of_one.size(); ++n) check(of_all[n], of_one[n], 1e-11);
  }
}

TEST_CASE("a quotient and a rest") {
  for (int by : {1, 2, 3, 7, 24, 144, 1000, 4095})
    for (int64_t n = 0; n < 1 << 24; n += 1 + n / 200) {
      const tsm::nru::Divided found(int(n), by, 1.0f / float(by));
      if (found.quotient != n / by || found.rest != n % by) FAIL(n, " / ", by);
    }
}

TEST_CASE("sizes that are refused") {
  CHECK_THROWS_AS(NruShape(1, 1, 4, 5, 4, 1), tsm::Error);
  CHECK_THROWS_AS(NruShape(1, 0, 4, 4, 4, 1), tsm::Error);
}
