// Facts about a compiled cell that hold for every backend. The entries of each backend's table
// derive from it and add the backend's functions.
#pragma once

namespace tsm {

struct CellInfo {
  const char* name;
  // The hash of the compiled program, kProgramHash in the generated header. If the program in a
  // model file has another hash, it is interpreted from the file.
  unsigned long long hash;
  int gates, states, vectors, prepared, constants;
  unsigned reads;  // bit i: the step reads the previous state i
  bool takes_dt;

  template <class Cell>
  static constexpr CellInfo of() {
    return {Cell::kName,     Cell::kProgramHash, Cell::kGates, Cell::kStates, Cell::kVectors,
            Cell::kPrepared, Cell::kConstants,   Cell::kReads, Cell::kTakesDt};
  }
};

// The table entry with that hash; null if there is none.
template <class Entry>
const Entry* find_cell(const Entry* cells, int count, unsigned long long hash) {
  for (int i = 0; i < count; ++i)
    if (cells[i].hash == hash) return &cells[i];
  return nullptr;
}

}  // namespace tsm
