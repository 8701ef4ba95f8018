// What is known of a compiled cell, whatever computes it. Every table of cells has entries that
// derive from it and add the functions of one backend.
#pragma once

namespace tsm {

struct CellInfo {
  const char* name;
  // Of the program that was compiled: the generated header's kProgramHash. A model file whose
  // program has another hash runs from the file.
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

// The entry of a table with that hash; null: none.
template <class Entry>
const Entry* find_cell(const Entry* cells, int count, unsigned long long hash) {
  for (int i = 0; i < count; ++i)
    if (cells[i].hash == hash) return &cells[i];
  return nullptr;
}

}  // namespace tsm
